//! What all experiments of one call told, and on which machine: the model of `report.json`. Knows
//! nothing of how it is shown.

use serde::{Deserialize, Serialize};

use crate::figure::Figure;

/// What was run, where, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// The commands that ran it.
    #[serde(default)]
    pub runs: Vec<Run>,
    /// The experiments, in the order in which they ran.
    pub outcomes: Vec<Outcome>,
}

/// The machine of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the network.
    pub host: String,
    /// The processor's model: `AMD EPYC 7763 64-Core Processor`.
    pub cpu: String,
    /// Cores that the process may use.
    pub cores: u32,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// The kernel and its release: `Linux 6.8.0`.
    pub kernel: String,
    /// What carried the messages: `shm`, or `rdma mlx5_0`.
    pub fabric: String,
    /// The version of Roundel.
    pub roundel: String,
    /// When the run began, as people read it: `2026-11-22 08:59 UTC`.
    pub date: String,
}

/// A command that ran experiments, so that it can be run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its command line.
    pub command: String,
    /// The commit of which the program is, with `-dirty` where files differ from it.
    pub commit: String,
    /// The compiler of the program: `rustc 1.94.0`.
    pub compiler: String,
}

/// What one experiment told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The experiment's name on the command line: `designs`.
    pub experiment: String,
    /// What it is about.
    pub title: String,
    /// How long it took.
    pub seconds: f64,
    /// Of how many nodes its clusters were, each number once.
    #[serde(default)]
    pub nodes: Vec<usize>,
    /// How many threads their nodes had.
    #[serde(default)]
    pub threads: Vec<usize>,
    /// Its figures.
    pub figures: Vec<Figure>,
}

impl Report {
    /// The figures of all experiments.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.outcomes.iter().flat_map(|outcome| &outcome.figures)
    }
}
