//! Flags of `roundel-lab perf`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::protocols::ProtocolsArgs;
use roundel_terminal::flags;
use roundel_verbs::DeviceChoice;

const EXAMPLES: &str = "\
Examples:
  roundel-lab perf                                  each verb over rc, between two processes of this host
  roundel-lab perf --transport ud --size 4096
  roundel-lab perf --verb fetch-and-add             how many a second, and how long one takes
  roundel-lab perf --verb send,write --measure bandwidth --size 8,4KiB,64KiB --seconds 10 --runs 5
  roundel-lab perf protocols                        message protocols of many nodes: see its --help
  roundel-lab perf --listen 7070                    one end by hand, and
  roundel-lab perf --connect 7070                   the other; over shm both on one host

Whoever reaches the address of --listen can take part: use a trusted network.";

/// Flags of `roundel-lab perf`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct PerfArgs {
    /// What else is measured.
    #[command(subcommand)]
    pub command: Option<PerfCommand>,
    /// What carries the messages.
    #[arg(long, value_name = "shm|rdma[:DEVICE]|tcp[:ADDRESS]", default_value_t)]
    pub fabric: DeviceChoice,
    /// Be one end, for one measurement, of which the other end says what it is: `HOST:PORT`, or a
    /// port on loopback; port 0 takes any free one.
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = flags::listen_address,
        conflicts_with_all = [
            "connect", "verb", "measure", "transport", "size", "depth", "batch", "iterations",
            "seconds", "warm_up", "runs", "inline", "poll", "json",
        ]
    )]
    pub listen: Option<SocketAddr>,
    /// Measure with the end that listens there, instead of a second process of this host.
    #[arg(long, value_name = "ADDR", value_parser = flags::listen_address)]
    pub connect: Option<SocketAddr>,
    /// Verbs to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    pub verb: Vec<VerbArg>,
    /// What to measure of them. Bandwidth includes the message rate.
    #[arg(long, value_enum, default_value = "all")]
    pub measure: MeasureArg,
    /// Transport service of the queue pairs.
    #[arg(long, value_enum, default_value = "rc")]
    pub transport: TransportArg,
    /// Bytes of a message [default: of bandwidth 8 and 64KiB, over ud the longest; of latency
    /// and of atomics 8].
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = flags::size)]
    pub size: Vec<u64>,
    /// Messages in flight, of bandwidth.
    #[arg(long, value_name = "N", default_value = "128")]
    pub depth: usize,
    /// Work requests that are posted with one call, of bandwidth [default: 16, or as
    /// many as make 64 KiB].
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Messages of a timed run; of latency, round trips.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub iterations: Option<u64>,
    /// Length of a timed run.
    #[arg(
        long,
        value_name = "S",
        default_value = "1",
        allow_negative_numbers = true
    )]
    pub seconds: f64,
    /// Messages before the timed runs [default: each posted receive is used once].
    #[arg(long, value_name = "N")]
    pub warm_up: Option<u64>,
    /// Timed runs of each test; the median counts.
    #[arg(long, value_name = "N", default_value = "1")]
    pub runs: u32,
    /// Messages of at most so many bytes travel inside their work request [default: of latency as
    /// many as the device takes, of bandwidth none].
    #[arg(long, value_name = "BYTES")]
    pub inline: Option<usize>,
    /// How both ends wait: they poll without a pause, or sleep on a completion channel.
    #[arg(long, value_enum, default_value = "busy")]
    pub poll: PollArg,
    /// Write the results as JSON to FILE, or to standard output; the text for people then goes to
    /// standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Started by the other end: the rendezvous' token is the first line of standard input, and
    /// this process ends when standard input does.
    #[arg(long, hide = true, requires = "listen")]
    pub lifeline: bool,
}

/// What is measured instead of single verbs.
#[derive(Debug, Subcommand)]
pub enum PerfCommand {
    /// Message protocols: threads of nodes that ask and answer each other, M:1, 1:M and M:M.
    Protocols(Box<ProtocolsArgs>),
}

/// A `--verb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VerbArg {
    /// SEND to posted receives.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// RDMA WRITE with immediate data, which consumes receives.
    WriteImm,
    /// Atomic compare-and-swap of a word of 8 bytes.
    CompareAndSwap,
    /// Atomic addition to a word of 8 bytes.
    FetchAndAdd,
    /// All that the transport and the device have; atomics at 8 bytes only.
    All,
}

/// A `--measure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MeasureArg {
    /// As many messages as possible, in one direction.
    Bandwidth,
    /// One message at a time: half of a round trip; of READ and of atomics the whole.
    Latency,
    /// Bandwidth and latency.
    All,
}

/// A `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// Reliable connection.
    Rc,
    /// Unreliable connection: no READ, no atomics, and messages may be lost.
    Uc,
    /// Unreliable datagram: SEND only, and datagrams may be lost.
    Ud,
}

/// A `--poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PollArg {
    /// Without a pause.
    Busy,
    /// Asleep until there is an event.
    Event,
}
