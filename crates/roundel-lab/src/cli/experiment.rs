//! Flags of `roundel-lab experiment`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use roundel_experiments::setting::Transport;
use roundel_experiments::{FabricChoice, Setting};
use roundel_verbs::DeviceChoice;

const EXAMPLES: &str = "\
Examples:
  roundel-lab experiment list
  roundel-lab experiment run designs --quick
  roundel-lab experiment run all --quick --plot results       results/report.html has every figure
  roundel-lab experiment run buffers setup --fabric tcp --json buffers.json
  roundel-lab experiment run designs --fabric sim:edr --nodes 2,4,8,16 --threads 14
  roundel-lab experiment run scale-out --fabric sim:edr
  roundel-lab experiment run designs --fabric rdma --hosts ib1,ib2,ib3,ib4 --meet 10.0.0.1 --nodes 2,4 --plot results
  roundel-lab experiment report buffers.json results/report.json --out all";

/// Flags of `roundel-lab experiment`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExperimentArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ExperimentAction,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ExperimentAction {
    /// List the experiments, with the figures of the paper that they make again.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run experiments: nodes are processes of this host, or of others; threads are threads.
    Run(RunArgs),
    /// Run one setting, and print what each run measured as a line of JSON.
    Setting {
        /// The setting as JSON, such as '{"transport": "MESQ/SR"}'; what it does not say is as in the base case.
        #[arg(value_name = "JSON", value_parser = setting)]
        setting: Box<Setting>,
        /// Runs of it.
        #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1000))]
        runs: u16,
        /// Where nodes run.
        #[command(flatten)]
        hosts: HostsArgs,
    },
    /// Make one HTML page, and a drawing for each figure, of the results of earlier runs.
    Report {
        /// What --json or --plot wrote; of an experiment that is in several, the last counts.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Directory to write to.
        #[arg(long, value_name = "DIR", default_value = "roundel-report")]
        out: PathBuf,
    },
}

/// Where nodes run.
#[derive(Debug, Args)]
pub struct HostsArgs {
    /// Hosts on which nodes run, in turn, each with this program at the same path [default: this host alone]. Needs --meet, and
    /// --fabric rdma or tcp.
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', requires = "meet")]
    pub hosts: Vec<String>,
    /// What starts a program on one of them: its name follows, and then the program with its arguments.
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o BatchMode=yes",
        requires = "hosts"
    )]
    pub shell: String,
    /// An address of this host at which all of them reach it.
    #[arg(long, value_name = "ADDRESS", requires = "hosts")]
    pub meet: Option<IpAddr>,
}

/// Flags of `roundel-lab experiment run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Names as `list` has them, or `all`.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The device of the designs, or simulated hardware: sim:NAME, with NAME one of fdr, edr, qdr, ddr, sdr, roce100,
    /// iwarp10, 10gbe-tcp, 1gbe-tcp. Behind it there can be :bytes, for messages that have not only lengths, :seed=N, and
    /// :without=MECHANISM+…, with MECHANISM one of contexts, translations, reads, split, looks, handover, switch [default: shm;
    /// the paper's, simulated, for experiments that need simulated hardware].
    #[arg(long, value_name = "shm|tcp[:ADDRESS]|rdma[:DEVICE]|sim:NAME")]
    pub fabric: Option<FabricChoice>,
    /// Where nodes run.
    #[command(flatten)]
    pub hosts: HostsArgs,
    /// Nodes of each run, or of one run after the other where nodes are added [default: the experiment's own]. An experiment
    /// that cannot obey is refused; of all, it runs without.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub nodes: Vec<u16>,
    /// Threads of a node, where the experiment does not say how many [default: the experiment's own]. An experiment that
    /// cannot obey is refused; of all, it runs without.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Little data and few points: all experiments end within 20 minutes on 2 cores.
    #[arg(long)]
    pub quick: bool,
    /// Runs of each case, of which figures show the median [default: 5, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: Option<u16>,
    /// Write the results as JSON to FILE, or to standard output; the tables for people then go to
    /// standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Write an HTML page, a drawing for each figure and the results as JSON to DIR.
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        default_missing_value = "roundel-report"
    )]
    pub plot: Option<PathBuf>,
    /// Threads that simulate protocols, each a point [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Measure all points again. Without it, those that simulated hardware measured for this program are taken from DIR/points,
    /// where --plot DIR keeps them, so that what was stopped goes on.
    #[arg(long)]
    pub fresh: bool,
}

/// A setting of which only what differs from the base case is given.
fn setting(text: &str) -> Result<Box<Setting>, String> {
    type Fields = serde_json::Map<String, serde_json::Value>;
    let given: Fields = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let base = Setting::new(Transport::Sockets, DeviceChoice::default());
    let mut whole = serde_json::to_value(base).map_err(|error| error.to_string())?;
    for (name, value) in given {
        whole[name] = value;
    }
    serde_json::from_value(whole).map_err(|error| error.to_string())
}
