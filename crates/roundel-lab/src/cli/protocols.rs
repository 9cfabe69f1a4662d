//! Flags of `roundel-lab perf protocols`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use roundel_experiments::FabricChoice;
use roundel_protocols::Protocol;
use roundel_protocols::paradigm::Paradigm;
use roundel_terminal::flags;

const EXAMPLES: &str = "\
Examples:
  roundel-lab perf protocols                        each protocol between two processes of this host
  roundel-lab perf protocols --paradigm M:M --nodes 3 --protocol READ,WRITE/WRITE
  roundel-lab perf protocols --pending 1,4,16,64 --plot figures
  roundel-lab perf protocols --fabric sim:fdr --paradigm 1:M --nodes 28 --threads 16 --pending 128
  roundel-lab perf protocols --rate 100000          latency at so many calls a second, not at the most

Two hosts, of which each runs a node; node 0 is the one with --listen, and says what is measured:
  roundel-lab perf protocols --fabric rdma --paradigm M:1 --nodes 1 --listen 10.0.0.1:7070
  roundel-lab perf protocols --fabric rdma --node 1 --of 2 --connect 10.0.0.1:7070

Whoever reaches the address of --listen can take part: use a trusted network.";

/// Flags of `roundel-lab perf protocols`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProtocolsArgs {
    /// What carries the messages.
    #[arg(
        long,
        value_name = "shm|rdma[:DEVICE]|tcp[:ADDRESS]|sim:NAME",
        default_value_t
    )]
    pub fabric: FabricChoice,
    /// Who asks whom: M:1, 1:M or M:M.
    #[arg(long, value_delimiter = ',', default_value = "M:1")]
    pub paradigm: Vec<Paradigm>,
    /// Protocols, such as `SEND/SEND` or `READ` [default: all that the device can].
    #[arg(long, value_delimiter = ',')]
    pub protocol: Vec<Protocol>,
    /// Nodes that ask the one (M:1), that the one asks (1:M), or all (M:M) [default: 1; of M:M 2].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub nodes: Vec<usize>,
    /// Threads that ask on a node, and threads that answer.
    #[arg(long, value_name = "S,…", value_delimiter = ',', default_value = "1")]
    pub threads: Vec<usize>,
    /// Threads that answer, where they are not as many as those that ask.
    #[arg(long, value_name = "N")]
    pub responder_threads: Option<usize>,
    /// Calls pending on each connection.
    #[arg(long, value_name = "R,…", value_delimiter = ',', default_value = "16")]
    pub pending: Vec<usize>,
    /// Bytes of a request.
    #[arg(long, value_name = "SIZE", value_parser = flags::size, default_value = "36")]
    pub request: u64,
    /// Bytes of a response.
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        value_parser = flags::size,
        default_value = "365"
    )]
    pub value: Vec<u64>,
    /// Calls that each asking thread begins in a second, at random moments, whatever has ended
    /// [default: as many as can be].
    #[arg(long, value_name = "CALLS")]
    pub rate: Option<f64>,
    /// Length of a run [default: 1; simulated 0.001].
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Seconds before it counts [default: 0.2; simulated until the first calls have drained].
    #[arg(long, value_name = "S")]
    pub warm_up: Option<f64>,
    /// Runs of each setting; the median counts.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write a plot of each sweep, that is of each flag with several values, as SVG to DIR, with the figures
    /// as JSON.
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Write the results as JSON to FILE, or to standard output; the text for people then goes to
    /// standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Be node 0, and let the others connect to this address: `HOST:PORT`.
    #[arg(long, value_name = "ADDR", value_parser = flags::listen_address, conflicts_with = "connect")]
    pub listen: Option<SocketAddr>,
    /// Be another node, of those that meet at this address; what is measured node 0 says.
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = flags::listen_address,
        requires = "node",
        requires = "of"
    )]
    pub connect: Option<SocketAddr>,
    /// Which node this is, from 1.
    #[arg(long, value_name = "K", requires = "connect")]
    pub node: Option<usize>,
    /// How many nodes meet.
    #[arg(long, value_name = "N", requires = "connect")]
    pub of: Option<usize>,
    /// Started by node 0: the rendezvous' token is the first line of standard input, and this process ends when
    /// standard input does.
    #[arg(long, hide = true, requires = "connect")]
    pub lifeline: bool,
}
