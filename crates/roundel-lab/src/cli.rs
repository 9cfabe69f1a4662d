//! The command line: every flag, its default and what is refused before anything starts. It must
//! not start anything itself.

mod advise;
mod experiment;
mod perf;
mod protocols;
mod scorecard;
mod simulate;

use clap::{Parser, Subcommand};

pub use advise::{
    AdviseArgs, AdviseCheckArgs, AdviseCommand, AdviseProtocolArgs, AdviseShuffleArgs, ModelArgs,
    PatternArg,
};
pub use experiment::{ExperimentAction, ExperimentArgs, HostsArgs, RunArgs};
pub use perf::{MeasureArg, PerfArgs, PerfCommand, PollArg, TransportArg, VerbArg};
pub use protocols::ProtocolsArgs;
pub use scorecard::ScorecardArgs;
pub use simulate::SimulateArgs;

/// Shuffles and message protocols over RDMA verbs: measured, simulated and compared.
#[derive(Debug, Parser)]
#[command(name = "roundel-lab", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    /// Say more on standard error; -vv for debugging, or RUST_LOG.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  roundel-lab perf                                 bandwidth and latency of each verb
  roundel-lab advise protocol --paradigm M:1       which protocol, and why
  roundel-lab experiment run all --quick --plot    every design beside its baselines
  roundel-lab simulate --minutes 1                 exchanges with faults

`roundel` runs SQL, and `roundel doctor` says what works on this host.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the papers' experiments on this host, and show each figure beside the paper's.
    Experiment(ExperimentArgs),
    /// Judge the claims of a paper by runs on simulated hardware.
    Scorecard(ScorecardArgs),
    /// Run exchanges of simulated clusters, drawn from seeds, with faults.
    Simulate(SimulateArgs),
    /// Measure single verbs, or message protocols.
    Perf(PerfArgs),
    /// Say which message protocol or which design of the shuffle to use, and why.
    Advise(AdviseArgs),
    /// Be a node of a run.
    #[command(hide = true)]
    Node,
}
