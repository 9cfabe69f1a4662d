//! Flags of `roundel experiment`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use roundel_experiments::FabricChoice;
use roundel_experiments::scorecard::Paper;

const EXAMPLES: &str = "\
Examples:
  roundel experiment list
  roundel experiment run designs --quick
  roundel experiment run all --quick --plot results       results/report.html has every figure
  roundel experiment run buffers setup --fabric tcp --json buffers.json
  roundel experiment run designs --fabric sim:edr --nodes 2,4,8,16 --threads 14
  roundel experiment run scale-out --fabric sim:edr
  roundel experiment scorecard --paper shuffle            which claims of the paper hold in simulation
  roundel experiment report buffers.json results/report.json --out all";

/// Flags of `roundel experiment`.
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
    /// Run experiments: nodes are processes of this host, threads are threads.
    Run(RunArgs),
    /// Judge the claims of a paper by runs on simulated hardware.
    Scorecard(ScorecardArgs),
    /// Make one HTML page, and a drawing for each figure, of the results of earlier runs.
    Report {
        /// What --json or --plot wrote; of an experiment that is in several, the last counts.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Directory to write to.
        #[arg(long, value_name = "DIR", default_value = "roundel-report")]
        out: PathBuf,
    },
    /// Be a node of a run.
    #[command(hide = true)]
    Node,
}

/// Flags of `roundel experiment run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Names as `list` has them, or `all`.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The device of the designs, or simulated hardware: sim:NAME, where messages have lengths only, or
    /// sim:NAME:bytes, with NAME one of fdr, edr, qdr, ddr, sdr, roce100, iwarp10, 10gbe-tcp, 1gbe-tcp [default: shm; the
    /// paper's, simulated, for experiments that need simulated hardware].
    #[arg(long, value_name = "shm|tcp[:ADDRESS]|rdma[:DEVICE]|sim:NAME")]
    pub fabric: Option<FabricChoice>,
    /// Nodes of each run, or of one run after the other where nodes are added [default: the experiment's own].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub nodes: Vec<u16>,
    /// Threads of a node, where the experiment does not say how many [default: the experiment's own].
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

/// Flags of `roundel experiment scorecard`.
#[derive(Debug, Args)]
pub struct ScorecardArgs {
    /// The paper.
    #[arg(long, value_enum, default_value_t = PaperChoice::Shuffle)]
    pub paper: PaperChoice,
    /// Only claims whose names begin so [default: all].
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    pub claims: Vec<String>,
    /// Write the verdicts as JSON to FILE, or to standard output; the table for people then goes to standard
    /// error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// Papers by the names that the command line has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PaperChoice {
    /// Liu, Yin, Blanas: an RDMA-aware data shuffling operator, 2019.
    Shuffle,
    /// Frey, Goncalves, Kersten, Teubner: a join on a ring, 2010.
    Ring,
    /// Huang, Ghandeharizadeh: message passing protocols, 2019.
    Protocols,
    /// Rödiger, Mühlbauer, Kemper, Neumann: hybrid parallelism, with multiplexers, 2015.
    Hybrid,
}

impl From<PaperChoice> for Paper {
    fn from(choice: PaperChoice) -> Self {
        match choice {
            PaperChoice::Shuffle => Self::Shuffle,
            PaperChoice::Ring => Self::Ring,
            PaperChoice::Protocols => Self::Protocols,
            PaperChoice::Hybrid => Self::Hybrid,
        }
    }
}
