//! The `roundel` command. It reads flags, shows results and checks them; planning, workers and
//! exchanges belong to the crates below.

mod cli;
mod cluster;
mod doctor;
mod progress;
mod sql;
mod tpch;
mod verify;
mod worker;

use std::process::ExitCode;
use std::thread;

use roundel_engine::STACK_BYTES;
use roundel_terminal::{Failure, failure, log};
use tokio::runtime::Runtime;

use crate::cli::Command;

/// The crates whose log `-v` shows.
const CRATES: [&str; 4] = [
    "roundel",
    "roundel_engine",
    "roundel_exchange",
    "roundel_verbs",
];

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            return match cli::refused(&error) {
                Ok(failure) => failure.report(),
                Err(code) => code,
            };
        }
    };
    log::start(cli.verbose, &CRATES);
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
        // Both hosts of a ring are in this process.
        Command::Doctor(args) if args.calibrate => None,
        Command::Doctor(_) => Some(1),
        Command::Tpch(_) | Command::Sql(_) => None,
    };
    let runtime = runtime(threads)?;
    let work = async {
        match command {
            Command::Tpch(args) => tpch::run(args).await,
            Command::Sql(args) => sql::run(args).await,
            Command::Worker(args) => worker::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
        }
    };
    // Libraries panic on some damaged files. Unwinding drops the cluster, which ends its workers.
    let done = failure::caught(|| runtime.block_on(work));
    // A thread that still waits for the terminal must not hold the process up.
    runtime.shutdown_background();
    done
}

/// A runtime with as many threads, or one per core.
pub fn runtime(threads: Option<usize>) -> Result<Runtime, Failure> {
    roundel_engine::runtime(threads)
        .map_err(|e| Failure::Run(format!("cannot start the runtime's threads: {e}")))
}
