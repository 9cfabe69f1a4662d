//! The `roundel-lab` command: experiments, measurements, simulations and advice. It reads flags, shows results and
//! starts processes; what is measured belongs to the crates below. It must not know of queries.

mod advise;
mod cli;
mod experiment;
mod perf;
mod progress;
mod scorecard;
mod simulate;

use std::process::ExitCode;

use clap::Parser as _;
use roundel_terminal::{Failure, failure, log};
use tokio::runtime::Builder;

use crate::cli::{Cli, Command};

/// The crates whose log `-v` shows.
const CRATES: [&str; 5] = [
    "roundel_lab",
    "roundel_experiments",
    "roundel_exchange",
    "roundel_protocols",
    "roundel_verbs",
];

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
    log::start(cli.verbose, &CRATES);
    if matches!(cli.command, Command::Node) {
        return roundel_experiments::node_main();
    }
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    // What is measured has threads of its own.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| Failure::Run(format!("cannot start a thread: {e}")))?;
    let work = async {
        match command {
            Command::Experiment(args) => experiment::run(args.action).await,
            Command::Scorecard(args) => scorecard::run(&args).await,
            Command::Simulate(args) => simulate::run(&args),
            Command::Perf(args) => perf::run(&args).await,
            Command::Advise(args) => advise::run(&args).await,
            Command::Node => Ok(()),
        }
    };
    let done = failure::caught(|| runtime.block_on(work));
    // A thread that still waits for the terminal must not hold the process up.
    runtime.shutdown_background();
    done
}
