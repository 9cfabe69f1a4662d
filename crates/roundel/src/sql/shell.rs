//! The shell: reads statements from a terminal, with a history that lasts.

use std::fs;
use std::path::PathBuf;

use roundel_engine::Session;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper};

use super::output::Results;
use super::{run_one, statements};
use crate::cli::SqlArgs;
use roundel_terminal::Signals;
use roundel_terminal::failure::{self, Failure};

const GREETING: &str = "Statements end with ';'. \\? for help, \\q to leave.";
const HELP: &str = "\
\\d        the tables
\\d NAME   the columns of a table
\\?        this help
\\q        leave, as does Ctrl-D
Ctrl-C cancels the query that runs, or drops the line.";
/// What `\d` runs: the user's tables, without those that describe them.
const TABLES: &str = "SELECT table_schema, table_name, table_type FROM information_schema.tables
    WHERE table_schema <> 'information_schema' ORDER BY 1, 2";
const HISTORY_ENTRIES_MAX: usize = 10_000;

/// Decides when Enter ends a statement and when it starts another line of it.
struct StatementHelper;

impl Helper for StatementHelper {}
impl Hinter for StatementHelper {
    type Hint = String;
}
impl Highlighter for StatementHelper {}
impl Completer for StatementHelper {
    type Candidate = String;
}
impl Validator for StatementHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let complete = text.starts_with('\\') || statements::is_complete(text);
        let incomplete = ValidationResult::Incomplete;
        Ok(if complete {
            ValidationResult::Valid(None)
        } else {
            incomplete
        })
    }
}

type LineEditor = Editor<StatementHelper, FileHistory>;

/// Serves the terminal until the user leaves.
pub async fn run(session: &Session, args: &SqlArgs, signals: &mut Signals) -> Result<(), Failure> {
    let mut results = Results::new(args.format, args.max_rows);
    let history = history_file();
    let mut editor = editor(history.as_ref())?;
    eprintln!("{GREETING}");
    loop {
        // The editor blocks its thread while the user thinks; it comes back with the line.
        let reading = tokio::task::spawn_blocking(move || {
            let line = editor.readline("roundel> ");
            (line, editor)
        });
        let read = tokio::select! {
            read = reading => read,
            ended = signals.terminated() => return Err(ended),
        };
        let line;
        (line, editor) = read.map_err(|e| Failure::Run(format!("the line editor failed: {e}")))?;
        let line = match line {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failure::Run(format!("cannot read the terminal: {error}"))),
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        remember(&mut editor, history.as_ref(), line);
        match line.strip_prefix('\\').map(str::trim) {
            None => run_text(session, &mut results, signals, line).await?,
            Some("q") => return Ok(()),
            Some("d") => run_text(session, &mut results, signals, TABLES).await?,
            Some("?") => eprintln!("{HELP}"),
            Some(command) => match command.strip_prefix("d ") {
                Some(table) => {
                    let describe = format!("DESCRIBE {}", table.trim().trim_end_matches(';'));
                    run_text(session, &mut results, signals, &describe).await?;
                }
                None => failure::say(&format!("unknown command \\{command}; \\? lists them")),
            },
        }
    }
}

/// Runs the statements of one input. Only what ends the whole shell is an error.
async fn run_text(
    session: &Session,
    results: &mut Results,
    signals: &mut Signals,
    text: &str,
) -> Result<(), Failure> {
    let statements = match statements::split(text) {
        Ok(statements) => statements,
        Err(error) => {
            failure::say(&format!("bad SQL: {error}"));
            return Ok(());
        }
    };
    signals.forget_interrupts();
    for statement in statements {
        // Dropping the query cancels it on every worker.
        match signals
            .or_signal(run_one(session, results, &statement))
            .await
        {
            Ok(done) => {
                let plural = if done.rows == 1 { "" } else { "s" };
                eprintln!("{} row{plural} in {:.3} s\n", done.rows, done.seconds);
            }
            Err(Failure::Signal(signal)) if Signals::is_interrupt(signal) => {
                eprintln!("cancelled\n");
                return Ok(());
            }
            Err(ended @ (Failure::Signal(_) | Failure::OutputClosed)) => return Err(ended),
            Err(error) => {
                failure::say(&error.to_string());
                eprintln!();
                return Ok(());
            }
        }
    }
    Ok(())
}

fn editor(history: Option<&PathBuf>) -> Result<LineEditor, Failure> {
    let failed = |e: ReadlineError| Failure::Run(format!("cannot start the shell: {e}"));
    let config = Config::builder()
        .max_history_size(HISTORY_ENTRIES_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(failed)?
        .build();
    let mut editor = LineEditor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(StatementHelper));
    if let Some(file) = history {
        // There is none on the first run.
        if let Err(error) = editor.load_history(file) {
            tracing::debug!("no history in {}: {error}", file.display());
        }
    }
    Ok(editor)
}

fn remember(editor: &mut LineEditor, history: Option<&PathBuf>, line: &str) {
    let added = editor.add_history_entry(line);
    let saved = added.and_then(|_| match history {
        Some(file) => editor.append_history(file),
        None => Ok(()),
    });
    if let Err(error) = saved {
        tracing::warn!("cannot keep the history: {error}");
    }
}

/// `$XDG_STATE_HOME/roundel/history`, which defaults to `~/.local/state/roundel/history`.
fn history_file() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    let directory = state.join("roundel");
    if let Err(error) = fs::create_dir_all(&directory) {
        tracing::warn!(
            "no history is kept: cannot make {}: {error}",
            directory.display()
        );
        return None;
    }
    Some(directory.join("history"))
}
