//! `roundel sql`: statements from the command line, a file or a shell, run on a cluster.

mod output;
mod shell;
mod statements;

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Instant;

use futures::StreamExt;
use roundel_engine::Session;

use crate::cli::SqlArgs;
use crate::cluster;
use crate::failure::Failure;
use crate::signals::Signals;
use output::ResultWriter;

/// Runs the command.
pub async fn run(args: &SqlArgs) -> Result<(), Failure> {
    // What cannot be read or split is refused before any worker starts.
    let statements = match (&args.file, args.command.is_empty()) {
        (Some(file), _) => Some(read(file)?),
        (None, false) => Some(args.command.join(";\n")),
        (None, true) if std::io::stdin().is_terminal() => None,
        (None, true) => Some(read(Path::new("-"))?),
    };
    let statements = statements
        .map(|text| statements::split(&text).map_err(|e| Failure::Run(format!("bad SQL: {e}"))))
        .transpose()?;
    let mut signals = Signals::watch()?;
    let cluster = cluster::join_or_start(&args.cluster, &mut signals).await?;
    let work = match cluster.session() {
        Err(error) => Err(error.into()),
        Ok(session) => match statements {
            Some(statements) => {
                signals
                    .or_signal(run_all(&session, args, &statements))
                    .await
            }
            None => {
                let registered = signals.or_signal(register_tables(&session, args)).await;
                match registered {
                    Ok(()) => shell::run(&session, args, &mut signals).await,
                    failed => failed,
                }
            }
        },
    };
    cluster::stop(cluster, &mut signals, work).await
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|e| Failure::Run(format!("cannot read {}: {e}", file.display())))?;
    Ok(text)
}

async fn run_all(session: &Session, args: &SqlArgs, statements: &[String]) -> Result<(), Failure> {
    register_tables(session, args).await?;
    for statement in statements {
        run_one(session, args, statement).await?;
    }
    Ok(())
}

async fn register_tables(session: &Session, args: &SqlArgs) -> Result<(), Failure> {
    for table in &args.tables {
        session.register_file(&table.name, &table.path).await?;
    }
    Ok(())
}

/// What a statement did.
struct Outcome {
    rows: usize,
    seconds: f64,
}

/// Runs one statement and writes its rows to standard output as they come.
async fn run_one(session: &Session, args: &SqlArgs, sql: &str) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let mut rows = session.sql(sql).await?;
    let out = output::stdout();
    let mut writer = ResultWriter::new(out, args.format, rows.schema(), args.max_rows)?;
    while let Some(batch) = rows.next().await {
        writer.write(&batch?)?;
    }
    let rows = writer.finish()?;
    Ok(Outcome {
        rows,
        seconds: start.elapsed().as_secs_f64(),
    })
}
