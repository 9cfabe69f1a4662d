//! Flags of `roundel-lab advise`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use roundel_experiments::FabricChoice;
use roundel_protocols::Protocol;
use roundel_protocols::paradigm::Paradigm;
use roundel_terminal::flags;
use roundel_verbs::DeviceChoice;
use roundel_verbs::sim::Parameters;

const EXAMPLES: &str = "\
Examples:
  roundel-lab advise protocol --paradigm M:1 --nodes 28 --threads 16 --pending 128
  roundel-lab advise protocol --paradigm M:M --nodes 8 --writes --value 4KiB --nic edr
  roundel-lab advise protocol --measure               for this host, after a few seconds of measuring
  roundel-lab advise shuffle --nodes 16 --threads 14 --memory-limit 256MiB --ordered
  roundel-lab advise check                            how often the advice is good, in simulation
  roundel-lab advise check --measure --settings 24    the same on this host";

/// Flags of `roundel-lab advise`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// For what.
    #[command(subcommand)]
    pub command: AdviseCommand,
}

/// For what there is advice.
#[derive(Debug, Subcommand)]
pub enum AdviseCommand {
    /// Which message protocol for a conversation, and with how many threads and pending calls.
    Protocol(AdviseProtocolArgs),
    /// Which design of the shuffle, with which messages and how many buffers.
    Shuffle(AdviseShuffleArgs),
    /// Whether advice on protocols is good: settings drawn from a seed, each measured with every protocol.
    Check(AdviseCheckArgs),
}

/// Where the numbers come from.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// The hardware that the advice is for, as simulations have it.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "edr",
        value_parser = clap::builder::PossibleValuesParser::new(Parameters::NAMES),
        conflicts_with = "measure"
    )]
    pub nic: String,
    /// Measure each protocol on this host first, at a few points.
    #[arg(long)]
    pub measure: bool,
    /// What carries the messages that are measured.
    #[arg(
        long,
        value_name = "shm|rdma[:DEVICE]|tcp[:ADDRESS]",
        default_value_t,
        requires = "measure"
    )]
    pub fabric: DeviceChoice,
    /// Protocols to choose from [default: all that the device can].
    #[arg(long, value_delimiter = ',')]
    pub protocol: Vec<Protocol>,
    /// Write the results as JSON to FILE, or to standard output; the text for people then goes to
    /// standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// Flags of `roundel-lab advise protocol`.
#[derive(Debug, Args)]
pub struct AdviseProtocolArgs {
    /// Where the numbers come from.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Who asks whom: M:1, 1:M or M:M.
    #[arg(long, default_value = "M:1")]
    pub paradigm: Paradigm,
    /// Nodes that ask the one (M:1), that the one asks (1:M), or all (M:M) [default: 1; of M:M 2].
    #[arg(long, value_name = "N")]
    pub nodes: Option<usize>,
    /// Most threads that ask on a node, and that answer.
    #[arg(long, value_name = "S", default_value = "1")]
    pub threads: usize,
    /// Most calls pending on each connection.
    #[arg(long, value_name = "R", default_value = "16")]
    pub pending: usize,
    /// Bytes of a request.
    #[arg(long, value_name = "SIZE", value_parser = flags::size, default_value = "36")]
    pub request: u64,
    /// Bytes of a response.
    #[arg(long, value_name = "SIZE", value_parser = flags::size, default_value = "365")]
    pub value: u64,
    /// Requests change something, or ask for more than bytes at a known place: READ is not for them.
    #[arg(long)]
    pub writes: bool,
    /// Take the threads and pending calls as they are, not as the most that there can be.
    #[arg(long)]
    pub fixed: bool,
}

/// Flags of `roundel-lab advise shuffle`.
#[derive(Debug, Args)]
pub struct AdviseShuffleArgs {
    /// What it runs over: hardware in simulation, or a device of this host, where nodes are processes.
    #[arg(
        long,
        value_name = "sim:NAME|shm|rdma[:DEVICE]|tcp[:ADDRESS]",
        default_value = "sim:edr"
    )]
    pub fabric: FabricChoice,
    /// Nodes that shuffle, each with all.
    #[arg(long, value_name = "N", default_value = "4")]
    pub nodes: usize,
    /// Threads of each.
    #[arg(long, value_name = "N", default_value = "4")]
    pub threads: usize,
    /// Who gets which rows.
    #[arg(long, value_enum, default_value = "repartition")]
    pub pattern: PatternArg,
    /// Most bytes that a node may register.
    #[arg(long, value_name = "SIZE", value_parser = flags::size)]
    pub memory_limit: Option<u64>,
    /// Rows must come out in their order.
    #[arg(long)]
    pub ordered: bool,
    /// Write the results as JSON to FILE, or to standard output; the text for people then goes to
    /// standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// A `--pattern`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PatternArg {
    /// Each row goes to one node, by a hash of its key.
    Repartition,
    /// Each row goes to all nodes.
    Broadcast,
}

/// Flags of `roundel-lab advise check`.
#[derive(Debug, Args)]
pub struct AdviseCheckArgs {
    /// Where the numbers come from, and what the advice is held against: the same hardware in simulation, or this
    /// host.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Settings to draw.
    #[arg(long, value_name = "N", default_value = "150", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub settings: u32,
    /// What they are drawn from.
    #[arg(long, value_name = "SEED", default_value = "7")]
    pub seed: u64,
    /// Share of settings for which the advice must reach 90 % of the best, or the command fails.
    #[arg(long, value_name = "SHARE", default_value = "0.9")]
    pub at_least: f64,
    /// Settings that are simulated at a time.
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,
}
