//! The command line: every flag, its default and what is refused before anything starts. It must
//! not start anything itself.

mod doctor;
mod help;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use roundel_engine::{
    Architecture, BuffersChoice, DesignChoice, Fabric, FabricChoice, OnLoss, Scheduling, Skew,
};
use roundel_terminal::flags;

pub use doctor::DoctorArgs;
pub use help::{parse, refused};
pub use values::{QueryList, TableArg, Tables};

/// SQL over a cluster of worker processes, shuffled through registered memory.
#[derive(Debug, Parser)]
#[command(name = "roundel", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
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
  roundel tpch                           22 TPC-H queries at scale 1, verified
  roundel sql --table t=events.parquet   a shell on a file
  roundel sql --table t=t.csv -c 'SELECT count(*) FROM t'
  roundel doctor                         what works here

Roundel runs on Linux. `roundel-lab` measures and simulates networks.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run SQL on files, over worker processes.
    ///
    /// Without -c and -f, it opens a shell.
    Sql(SqlArgs),
    /// Run the TPC-H queries on workers of this host, and verify every row.
    Tpch(TpchArgs),
    /// Serve as one worker of a cluster that is started by hand.
    Worker(WorkerArgs),
    /// Say what works on this host, and what to do about the rest.
    ///
    /// It looks at every fabric and at every RDMA device.
    Doctor(DoctorArgs),
}

const TPCH_EXAMPLES: &str = "\
Examples:
  roundel tpch
  roundel tpch --scale 0.1 --queries 1,3-5 --workers 3
  roundel tpch --fabric rdma:mlx5_0
  roundel tpch --cluster 10.0.0.1:7070,10.0.0.2:7070 --token-file token
  roundel tpch --tables tpch-sf1 --iterations 5 --compare grpc
  roundel tpch --scale 0.1 --streams 16 --seconds 60
  roundel tpch --scale 10 --memory-limit 4GiB --json result.json

Exit codes: 0 when every query ran and every row was right, 1 when one was not, 2 for wrong usage,
130 after Ctrl-C.";

/// Flags of `roundel tpch`.
#[derive(Debug, Args)]
#[command(after_help = TPCH_EXAMPLES)]
pub struct TpchArgs {
    /// Scale factor; 1 is about 1 GB of data.
    #[arg(long, default_value = "1", value_parser = values::scale, allow_negative_numbers = true)]
    pub scale: f64,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Where the tables live: `memory`, dealt to the workers at random; `memory:co-partitioned`, dealt by
    /// the hash of their keys, so that orders meet their line items without an exchange; or a directory of
    /// Parquet files, which is filled first when it is empty.
    #[arg(
        long,
        value_name = "memory|memory:co-partitioned|DIR",
        default_value = "memory"
    )]
    pub tables: Tables,
    /// Queries to run, such as `1,3-5`.
    #[arg(long, value_name = "LIST", default_value_t)]
    pub queries: QueryList,
    /// How joins of rows on several workers are done, as `SET roundel.join` has it.
    #[arg(long, value_enum, default_value_t = JoinChoice::Auto, hide = true, help_heading = help::RESEARCH)]
    pub join: JoinChoice,
    /// Runs of each query; the median counts.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub iterations: u32,
    /// Run so many streams of queries at once, as the throughput test of TPC-H does: each runs the queries in an order
    /// of its own, and what counts is how many queries end.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256),
        conflicts_with_all = ["iterations", "compare"]
    )]
    pub streams: Option<u16>,
    /// How long streams begin queries; each ends the one that it is in [default: until it has run each once].
    #[arg(
        long,
        value_name = "S",
        requires = "streams",
        value_parser = values::seconds,
        allow_negative_numbers = true
    )]
    pub seconds: Option<f64>,
    /// Do not compare the rows with those of single-process DataFusion.
    #[arg(long)]
    pub no_verify: bool,
    /// Alternate with this transport in the same run, and print both and the ratio.
    #[arg(long, value_name = "TRANSPORT")]
    pub compare: Option<Baseline>,
    /// Write the results as JSON to FILE, or to standard output; the text for people then goes to
    /// standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// How joins of rows on several workers are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JoinChoice {
    /// As suits each.
    Auto,
    /// On a ring, wherever that can be.
    Cyclo,
    /// With both sides partitioned by the keys.
    Repartition,
    /// With the one side sent to all workers.
    Broadcast,
}

impl JoinChoice {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cyclo => "cyclo",
            Self::Repartition => "repartition",
            Self::Broadcast => "broadcast",
        }
    }
}

/// What `tpch --compare` can run beside Roundel's exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// datafusion-distributed's own transport, without compression.
    Grpc,
}

impl From<Baseline> for Fabric {
    fn from(baseline: Baseline) -> Self {
        match baseline {
            Baseline::Grpc => Fabric::Grpc,
        }
    }
}

/// Flags of a cluster that the command starts, or joins.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Worker processes to start, when --cluster names none.
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,
    /// Workers to join, which were started by hand with `roundel worker`.
    #[arg(
        long,
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        conflicts_with = "workers",
        requires = "token_file",
        value_parser = values::worker_address
    )]
    pub cluster: Vec<String>,
    /// File with the token of the cluster to join.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub token_file: Option<PathBuf>,
    /// How rows are exchanged.
    #[command(flatten)]
    pub exchange: ExchangeArgs,
    /// What every worker is started with.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Flags of the exchanges of a query. gRPC reads none of them.
#[derive(Debug, Args)]
pub struct ExchangeArgs {
    /// Which connections exchanges use: those of endpoints of every operator's own, the one that the
    /// multiplexer of a worker has to each other worker, or one for every operator from each thread to
    /// each thread of the other workers.
    #[arg(long, value_name = "endpoint|multiplexer|classic", default_value_t, hide = true, help_heading = help::RESEARCH)]
    pub exchange: Architecture,
    /// Shuffle design: endpoints per thread (ME) or per operator (SE), RC (MQ) or UD (SQ) queue
    /// pairs, and rows that are sent (SR), read (RD) or written (WR, with :cq, :mq, :buffers or
    /// :buffers-all).
    /// `auto` takes what suits each exchange; EXPLAIN says which and why. Multiplexers have SEMQ designs,
    /// SEMQ/SR by default.
    #[arg(long, value_name = "auto|DESIGN", default_value_t, hide = true, help_heading = help::RESEARCH)]
    pub design: DesignChoice,
    /// Endpoints of each side of an exchange in a worker, from 1 to --threads [default: those of the
    /// design].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=1024), hide = true, help_heading = help::RESEARCH)]
    pub endpoints: Option<u16>,
    /// Registered buffers at each end of a link: N of them, the bandwidth-delay product of the
    /// device, or as many as producer and consumer need at the time, by our rule or by the paper's.
    #[arg(long, value_name = "fixed:N|bdp|adaptive|adaptive:paper", default_value_t, hide = true, help_heading = help::RESEARCH)]
    pub buffers: BuffersChoice,
    /// Keys with far more rows than others, in joins that partition both sides by them: `auto` finds
    /// them while rows are shuffled, spreads their rows over all workers and sends those of the other
    /// side to all; `off` sends them where their hash says. EXPLAIN says in which joins it can be done.
    #[arg(long, value_name = "off|auto", default_value_t, hide = true, help_heading = help::RESEARCH)]
    pub skew: Skew,
}

/// Flags of one worker.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Runtime threads per worker; a task has max(2, threads) partitions.
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// What to do about lost datagrams, in the designs over UD: send them again, run the query
    /// again, or fail.
    #[arg(long, value_name = "repair|restart|fail", default_value_t, hide = true, help_heading = help::RESEARCH)]
    pub on_loss: OnLoss,
    /// Whether multiplexers send by a schedule, in which no two workers send to the same one at a time;
    /// `auto` tries it across a network, while long messages wait for several workers, and keeps it
    /// where rows leave faster so.
    #[arg(long, value_name = "off|on|auto", default_value_t, hide = true, help_heading = help::RESEARCH)]
    pub schedule: Scheduling,
    /// What carries the rows: Roundel's exchange over RDMA devices, shared memory or sockets, or
    /// datafusion-distributed's own transport. `auto` takes the first of rdma, shm, tcp and grpc
    /// that joins all workers; `rdma:DEVICE[/PORT[/GID]]` names a device, `tcp:ADDRESS` an address
    /// of this host.
    #[arg(
        long,
        value_name = "auto|rdma[:DEVICE]|shm|tcp[:ADDRESS]|grpc",
        default_value = "auto"
    )]
    pub fabric: FabricChoice,
    /// Registered memory that a worker may use for exchanges.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = flags::size)]
    pub registered_memory: u64,
    /// Memory that a worker's queries may use before they spill or fail [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = flags::size)]
    pub memory_limit: Option<u64>,
}

const SQL_EXAMPLES: &str = "\
Examples:
  roundel sql --table lineitem=tpch-sf1/lineitem
  roundel sql --table t=t.csv -c 'SELECT count(*) FROM t' --format json
  roundel sql --table t=t.parquet -f report.sql --format csv > report.csv
  roundel sql --cluster 10.0.0.1:7070,10.0.0.2:7070 --token-file token --table t=/shared/t.parquet
  roundel sql --workers 4 --memory-limit 4GiB --table t=t.parquet -f report.sql

In the shell, statements end with ';'. \\d lists the tables, \\d NAME describes one, \\q leaves.
Ctrl-C cancels the query that runs. The history is in $XDG_STATE_HOME/roundel.";

/// Flags of `roundel sql`.
#[derive(Debug, Args)]
#[command(after_help = SQL_EXAMPLES)]
pub struct SqlArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// A Parquet or CSV file, or a directory of them, as a table; may be repeated.
    #[arg(long = "table", value_name = "NAME=PATH")]
    pub tables: Vec<TableArg>,
    /// Run these statements and leave; may be repeated.
    #[arg(short, long, value_name = "SQL", value_parser = NonEmptyStringValueParser::new())]
    pub command: Vec<String>,
    /// Run the statements in a file, or in standard input for `-`, and leave.
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    pub file: Option<PathBuf>,
    /// Form of the results. `csv` and `json` stream.
    #[arg(long, default_value = "table")]
    pub format: Format,
    /// Rows that a table shows at most; the rest are counted. `all` keeps the whole result in
    /// memory to lay it out.
    #[arg(long, value_name = "N|all", default_value = "40", value_parser = values::row_limit)]
    pub max_rows: usize,
}

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// Comma-separated values with a header; an empty line between two results.
    Csv,
    /// One JSON array of objects for each result, in a line of its own.
    Json,
}

const WORKER_EXAMPLES: &str = "\
Examples:
  head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > token && chmod 600 token
  roundel worker --listen 127.0.0.1:7070 --token-file token
  roundel worker --listen 10.0.0.1:7070 --token-file token
  roundel worker --listen 10.0.0.1:7070 --token-file token --fabric rdma:mlx5_0/1

Rows travel over RDMA where every member has a device, else over shared memory within one host and
over TCP between hosts. --fabric insists on one of them.";

/// Flags of `roundel worker`.
#[derive(Debug, Args)]
#[command(after_help = WORKER_EXAMPLES)]
pub struct WorkerArgs {
    /// Address to listen on: `HOST:PORT`, or a port on loopback; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = flags::listen_address)]
    pub listen: SocketAddr,
    /// File with the cluster's token, 64 hexadecimal digits; only clients that bring it are served.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The worker itself.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Started by a coordinator: the token is the first line of standard input, and the worker ends
    /// when standard input does.
    #[arg(long, hide = true, conflicts_with = "token_file")]
    pub lifeline: bool,
}
