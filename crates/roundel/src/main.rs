//! The `roundel` command. It reads flags, shows results and checks them; planning, workers and
//! exchanges belong to the crates below.

mod advise;
mod cli;
mod cluster;
mod doctor;
mod experiment;
mod failure;
mod perf;
mod progress;
mod report;
mod signals;
mod simulate;
mod sql;
mod tpch;
mod verify;
mod worker;

use std::backtrace::Backtrace;
use std::io::IsTerminal;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use roundel_engine::STACK_BYTES;
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command, ExperimentAction};
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return match failure::usage(&error) {
                Ok(failure) => failure.report(),
                Err(code) => code,
            };
        }
    };
    log_to_stderr(cli.verbose);
    // A panic becomes one line, or its task's error; where it came from is for debugging.
    panic::set_hook(Box::new(|info| {
        tracing::debug!("{info}\n{}", Backtrace::force_capture());
    }));
    if let Command::Experiment(args) = &cli.command
        && matches!(args.action, ExperimentAction::Node)
    {
        return roundel_experiments::node_main();
    }
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Runs a command in a thread with a stack as large as that of the runtime's threads: queries are planned in it.
fn run(command: &Command) -> Result<(), Failure> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        let running = builder.spawn_scoped(scope, || run_here(command));
        let running = running.map_err(|e| Failure::Run(format!("cannot start a thread: {e}")))?;
        let done = running.join();
        done.unwrap_or_else(|payload| Err(Failure::panicked(payload.as_ref())))
    })
}

fn run_here(command: &Command) -> Result<(), Failure> {
    let threads = match command {
        Command::Worker(args) => Some(usize::from(args.node.threads)),
        // What is measured has a thread of its own.
        Command::Advise(_) | Command::Perf(_) => Some(1),
        // Both hosts of a ring are in this process.
        Command::Doctor(args) if args.calibrate => None,
        Command::Doctor(_) | Command::Experiment(_) | Command::Simulate(_) => Some(1),
        Command::Tpch(_) | Command::Sql(_) => None,
    };
    let runtime = runtime(threads)?;
    let work = async {
        match command {
            Command::Tpch(args) => tpch::run(args).await,
            Command::Sql(args) => sql::run(args).await,
            Command::Worker(args) => worker::run(args).await,
            Command::Advise(args) => advise::run(args).await,
            Command::Perf(args) => perf::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Experiment(args) => experiment::run(args).await,
            Command::Simulate(args) => simulate::run(args),
        }
    };
    // Libraries panic on some damaged files. Unwinding drops the cluster, which ends its workers.
    let done = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)))
        .unwrap_or_else(|payload| Err(Failure::panicked(payload.as_ref())));
    // A thread that still waits for the terminal must not hold the process up.
    runtime.shutdown_background();
    done
}

/// A runtime with as many threads, or one per core.
pub fn runtime(threads: Option<usize>) -> Result<Runtime, Failure> {
    roundel_engine::runtime(threads)
        .map_err(|e| Failure::Run(format!("cannot start the runtime's threads: {e}")))
}

fn log_to_stderr(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "warn,roundel=info,roundel_engine=info,roundel_exchange=info,roundel_verbs=info",
        _ => "info,roundel=debug,roundel_engine=debug,roundel_exchange=debug,roundel_verbs=debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(has_colours(&std::io::stderr()))
        .init();
}

/// Whether what is written there may have colours: it is a terminal, and nobody said no.
fn has_colours(stream: &impl IsTerminal) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !no_color
}
