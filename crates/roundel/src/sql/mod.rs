//! `roundel sql`: statements from the command line, a file or a shell, run on a cluster.

mod output;
mod shell;
mod statements;

use std::collections::HashMap;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Instant;

use datafusion::common::TableReference;
use futures::StreamExt;
use roundel_engine::{EngineError, Session};

use crate::cli::{SqlArgs, TableArg};
use crate::cluster;
use output::Results;
use roundel_terminal::Failure;
use roundel_terminal::Signals;

/// Runs the command.
pub async fn run(args: &SqlArgs) -> Result<(), Failure> {
    // What cannot be is refused before any worker starts.
    check_tables(&args.tables)?;
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

/// Whether each table has one path.
fn check_tables(tables: &[TableArg]) -> Result<(), Failure> {
    let mut seen: HashMap<TableReference, &str> = HashMap::new();
    for TableArg { name, path } in tables {
        // As SQL reads it: without quotes, T is t.
        if let Some(other) = seen.insert(TableReference::from(name.as_str()), path) {
            return Err(Failure::Usage(format!(
                "table {name} is given twice: as {other} and as {path}"
            )));
        }
    }
    Ok(())
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
    let mut results = Results::new(args.format, args.max_rows);
    for statement in statements {
        run_one(session, &mut results, statement).await?;
    }
    Ok(())
}

async fn register_tables(session: &Session, args: &SqlArgs) -> Result<(), Failure> {
    for table in &args.tables {
        session.register_file(&table.name, &table.path).await?;
    }
    tell_notices(session);
    Ok(())
}

/// Says what was guessed of tables of files.
fn tell_notices(session: &Session) {
    for notice in session.take_notices() {
        eprintln!("{notice}");
    }
}

/// What a statement did.
struct Outcome {
    rows: usize,
    seconds: f64,
}

/// Runs one statement and writes its rows to standard output as they come.
async fn run_one(session: &Session, results: &mut Results, sql: &str) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let rows = session.sql(sql).await;
    tell_notices(session);
    let mut rows = rows?;
    let missing = session.missing_workers();
    let mut writer = results.next(output::stdout(), rows.schema())?;
    while let Some(batch) = rows.next().await {
        writer.write(&batch.map_err(EngineError::from)?)?;
    }
    let rows = writer.finish()?;
    // One can have been lost on the way, and the query run again without it.
    say_missing(
        session,
        match missing.is_empty() {
            true => session.missing_workers(),
            false => missing,
        },
    );
    Ok(Outcome {
        rows,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Says that a query ran without these workers, and why.
fn say_missing(session: &Session, missing: Vec<EngineError>) {
    let Some(first) = missing.first() else {
        return;
    };
    let all = session.worker_count();
    let others = match missing.len() {
        1 => String::new(),
        more => format!(", and {} more", more - 1),
    };
    let ran = all - missing.len();
    let said = format!("note: the query ran on {ran} of {all} workers: {first}{others}");
    eprintln!("{}", roundel_verbs::one_line(&said));
}
