//! Flags of `roundel-lab scorecard`.

use std::path::PathBuf;

use clap::Args;
use roundel_experiments::scorecard::{Judging, Paper, Share};
use roundel_verbs::sim::Mechanism;

/// Most seeds of a scorecard.
const SEEDS_MAX: u64 = 1000;

const EXAMPLES: &str = "\
Examples:
  roundel-lab scorecard --paper shuffle                 which claims of the paper hold in simulation
  roundel-lab scorecard --paper protocols --claims MP02,MP07
  roundel-lab scorecard --paper ring --seeds 5          with the deviations of what was measured
  roundel-lab scorecard --ablate                        what each mechanism of the hardware does to the verdicts
  roundel-lab scorecard --paper ring --json verdicts.json";

/// Flags of `roundel-lab scorecard`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ScorecardArgs {
    /// The paper.
    #[arg(long, value_enum, default_value_t = PaperChoice::Shuffle)]
    pub paper: PaperChoice,
    /// Only claims whose names begin so [default: all].
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    pub claims: Vec<String>,
    /// Only claims that were held out while the simulator gained its mechanisms, or only the others [default: all].
    #[arg(long, value_name = "open|held-out")]
    pub only: Option<Share>,
    /// Judge with so many seeds: a claim holds where it does with each of them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub seeds: u64,
    /// Leave out what holds simulated hardware up: contexts, translations, reads, split, looks, handover, switch.
    #[arg(long, value_name = "MECHANISM,…", value_delimiter = ',')]
    pub without: Vec<Mechanism>,
    /// Judge once with all mechanisms and once without each, and say what each decides.
    #[arg(long)]
    pub ablate: bool,
    /// Write the verdicts as JSON to FILE, or to standard output; the table for people then goes to standard
    /// error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

impl ScorecardArgs {
    /// Which claims are judged, and on which hardware.
    pub fn judging(&self) -> Judging {
        Judging {
            paper: self.paper.into(),
            rows: self.claims.clone(),
            only: self.only,
            seeds: self.seeds,
            without: self.without.clone(),
        }
    }
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
