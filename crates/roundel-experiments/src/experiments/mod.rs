//! The catalogue: which experiments there are, and how they are run.
//!
//! An experiment plans cases, each of which is run several times, all in turn; then it tells from what was
//! measured what the figures show. Nothing it says is known before.

mod buffers;
mod choose;
mod compute;
mod credit;
mod designs;
pub(crate) mod hybrid;
mod judgement;
mod message_size;
mod notification;
mod plan;
mod protocols;
mod queue_pairs;
pub(crate) mod ring;
mod scale_out;
mod setup;
mod tell;
mod tpch;
mod waiting;
mod zero_copy;

use crate::conversation::Conversation;
use crate::error::Error;
use crate::fabric::FabricChoice;
use crate::figure::{Figure, X};
use crate::hybrid::{Hybrid, HybridMeasured, Mix, SkewedJoin, SkewedMeasured};
use crate::kept::Kept;
use crate::measured::Measured;
use crate::outcome::Outcome;
use crate::paper::Paper;
use crate::ring::{RingJoin, RingMeasured};
use crate::run::NodeCommand;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use choose::{Chosen, Flag, choose, default_fabric};
use tpch::Replay;
pub use tpch::{TpchQuery, TpchRun};

/// An experiment of the papers.
pub struct Experiment {
    /// Its name on the command line: `designs`.
    pub name: &'static str,
    /// What it is about, in a line.
    pub title: &'static str,
    /// The figures of the paper that it makes again: `13`, `19a`.
    pub figures: &'static [&'static str],
    /// Whether it can be run on simulated hardware.
    pub simulated: bool,
    /// Whether it can be run on devices of this host.
    pub on_devices: bool,
    /// The paper.
    pub paper: Paper,
    plan: fn(&Options) -> Vec<Case>,
    tell: fn(&Results) -> Vec<Figure>,
}

/// All experiments, in the order of the papers.
pub fn catalogue() -> &'static [Experiment] {
    &[
        zero_copy::EXPERIMENT,
        credit::EXPERIMENT,
        notification::EXPERIMENT,
        message_size::EXPERIMENT,
        designs::EXPERIMENT,
        queue_pairs::EXPERIMENT,
        setup::EXPERIMENT,
        scale_out::EXPERIMENT,
        compute::EXPERIMENT,
        buffers::EXPERIMENT,
        tpch::EXPERIMENT,
        waiting::EXPERIMENT,
        ring::UNIT,
        ring::FIXED,
        ring::GROWING,
        ring::SKEW,
        ring::CARRIERS,
        ring::SCALE_OUT,
        ring::CHOICE,
        protocols::PENDING,
        protocols::THREADS,
        protocols::NODES,
        protocols::VALUES,
        protocols::SUMMARY,
        hybrid::ARCHITECTURES,
        hybrid::SCHEDULE,
        hybrid::SKEW,
        hybrid::STRAGGLER,
        hybrid::QUERIES,
        hybrid::BANDWIDTH,
    ]
}

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device of the designs.
    pub fabric: FabricChoice,
    /// Nodes of each run, or of one after the other where the experiment adds nodes; the experiment's own when there
    /// are none.
    pub nodes: Vec<usize>,
    /// Threads of a node, where the experiment does not say how many; its own when there are none.
    pub threads: Option<usize>,
    /// Little data and few points, so that all experiments end within 20 minutes on 2 cores.
    pub quick: bool,
    /// Runs of each case.
    pub runs: usize,
    /// Where what simulated hardware measured is kept, so that it need not be measured again.
    pub kept: Kept,
    /// Threads of this host that simulate conversations, and replay queries.
    pub jobs: usize,
    /// How a node is started.
    pub node: NodeCommand,
    /// The program `roundel`, which runs queries.
    pub roundel: PathBuf,
    /// Whether MPI is among what is compared: it needs to be built in, and `mpirun`.
    pub mpi: bool,
}

/// How far experiments have come.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// How long the others will take, by those that are done.
    pub estimate_left: Option<Duration>,
    /// The experiment.
    pub experiment: &'static str,
    /// What runs next.
    pub case: &'a str,
}

/// An experiment that could not be run to its end.
#[derive(Debug)]
pub struct Failed {
    /// Its name.
    pub experiment: &'static str,
    /// The error that ended it.
    pub error: Error,
}

/// A point of a figure: what is run for it.
pub(crate) struct Case {
    /// What it is a point of.
    pub(crate) series: String,
    /// The place of the point on the x axis.
    pub(crate) x: X,
    pub(crate) work: Work,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Work {
    Setting(Box<Setting>),
    Tpch(TpchRun),
    Replay(Box<Replay>),
    Ring(Box<RingJoin>),
    Conversation(Box<Conversation>),
    Hybrid(Box<Hybrid>),
    Skewed(Box<SkewedJoin>),
    Mix(Box<Mix>),
}

/// What a run gave.
#[derive(strum::EnumTryAs)]
pub(crate) enum Got {
    Measured(Measured),
    Queries(Vec<TpchQuery>),
    Ring(RingMeasured),
    Conversation(Box<roundel_protocols::paradigm::Measured>),
    Hybrid(HybridMeasured),
    Skewed(SkewedMeasured),
}

/// What was measured in an experiment.
pub(crate) struct Results<'a> {
    pub(crate) options: &'a Options,
    /// Cases with their runs, in the order they were planned.
    pub(crate) cases: Vec<(Case, Vec<Got>)>,
}

/// Runs experiments, and says before each run how far it is. When one of them fails the others go on.
pub fn run(
    chosen: Vec<Chosen>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Vec<Result<Outcome, Failed>> {
    let total = chosen.iter().map(Chosen::runs).sum();
    let (mut done, began) = (0, Instant::now());
    let mut outcomes = Vec::new();
    for one in chosen {
        let (after, beginning) = (done + one.runs(), Instant::now());
        let (nodes, threads) = one.clusters();
        let Chosen {
            experiment,
            options,
            plan,
            ..
        } = one;
        let told = plan::run(plan, &options, &mut |case| {
            let left = (total - done) as u32;
            progress(Progress {
                done,
                total,
                estimate_left: (done > 0).then(|| began.elapsed() / done as u32 * left),
                experiment: experiment.name,
                case,
            });
            done += 1;
        });
        done = after;
        outcomes.push(match told {
            Ok(results) => Ok(Outcome {
                experiment: experiment.name.to_owned(),
                title: experiment.title.to_owned(),
                seconds: beginning.elapsed().as_secs_f64(),
                nodes: nodes.into_iter().collect(),
                threads: threads.into_iter().collect(),
                figures: (experiment.tell)(&results),
            }),
            Err(error) => Err(Failed {
                experiment: experiment.name,
                error,
            }),
        });
    }
    outcomes
}

impl Case {
    fn new(series: impl Into<String>, x: X, setting: Setting) -> Self {
        Self {
            series: series.into(),
            x,
            work: Work::Setting(Box::new(setting)),
        }
    }

    fn name(&self) -> String {
        match &self.x {
            X::Number(x) => format!("{} at {x}", self.series),
            X::Name(x) => format!("{}, {x}", self.series),
        }
    }
}

impl Options {
    /// A setting that experiments begin with.
    fn base(&self, transport: Transport) -> Setting {
        let base = Setting::new(transport, self.fabric.clone());
        let (rows, seconds) = match (self.fabric.is_simulated(), self.quick) {
            (false, true) => (1 << 18, 0.4),
            (false, false) => (1 << 20, 2.0),
            // Of virtual time, and rows of a scan.
            (true, true) => (1 << 14, 0.002),
            (true, false) => (1 << 14, 0.006),
        };
        Setting {
            rows,
            seconds,
            nodes: self.fixed_nodes_or(base.nodes),
            threads: self.threads_or(base.threads),
            ..base
        }
    }

    /// How many nodes there are, where nodes are added.
    fn nodes_or(&self, own: &[usize]) -> Vec<usize> {
        match &self.nodes[..] {
            [] => own.to_vec(),
            asked => asked.to_vec(),
        }
    }

    /// Threads of a node, unless it is said how many.
    fn threads_or(&self, own: usize) -> usize {
        self.threads.unwrap_or(own)
    }

    /// How many nodes there are, where none are added.
    fn fixed_nodes_or(&self, own: usize) -> usize {
        self.nodes.last().copied().unwrap_or(own)
    }

    /// Runs of each case: in simulation all are the same.
    fn runs(&self) -> usize {
        match self.fabric.is_simulated() {
            true => 1,
            false => self.runs.max(1),
        }
    }

    /// Of a list, what the quick or the full form of an experiment takes: all, or every second from the
    /// first.
    fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        let step = if self.quick { 2 } else { 1 };
        all.iter().copied().step_by(step).collect()
    }

    /// What the designs are compared with.
    fn baselines(&self) -> Vec<Transport> {
        if self.fabric.is_simulated() {
            return vec![Transport::Sockets, Transport::Mpi];
        }
        let mut baselines = vec![Transport::Sockets, Transport::Grpc];
        if self.mpi {
            baselines.push(Transport::Mpi);
        }
        baselines
    }

    /// The designs of the paper that the device has what is needed for, by what they are called.
    fn designs(&self) -> Vec<Transport> {
        Design::ALL.into_iter().map(Transport::Design).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Verdict;
    use std::collections::HashSet;

    pub(super) fn options(quick: bool) -> Options {
        Options {
            fabric: FabricChoice::default(),
            nodes: Vec::new(),
            threads: None,
            quick,
            runs: 3,
            node: NodeCommand {
                program: "false".into(),
                arguments: Vec::new(),
                hosts: None,
            },
            roundel: "false".into(),
            mpi: false,
            kept: Kept::default(),
            jobs: 1,
        }
    }

    #[test]
    fn names_are_unique_and_every_experiment_has_cases() {
        let names: HashSet<_> = catalogue().iter().map(|one| one.name).collect();
        assert_eq!(names.len(), catalogue().len());
        for experiment in catalogue() {
            assert!(
                !(experiment.plan)(&options(true)).is_empty(),
                "{}",
                experiment.name
            );
        }
    }

    #[test]
    fn what_was_not_run_tells_nothing_of_claims() {
        let options = Options {
            mpi: true,
            ..options(true)
        };
        let results = Results {
            options: &options,
            cases: Vec::new(),
        };
        let findings = catalogue()
            .iter()
            .flat_map(|experiment| (experiment.tell)(&results))
            .flat_map(|figure| figure.findings);
        let told: Vec<_> = findings
            .filter(|finding| finding.verdict != Verdict::CannotTell)
            .map(|finding| finding.claim)
            .collect();
        assert_eq!(told, [""; 0]);
    }

    #[test]
    fn every_setting_can_be_run() {
        for quick in [true, false] {
            for experiment in catalogue() {
                let fabric = match experiment.on_devices {
                    true => FabricChoice::default(),
                    false => "sim:iwarp10".parse().unwrap(),
                };
                let options = Options {
                    fabric,
                    ..options(quick)
                };
                for case in (experiment.plan)(&options) {
                    let checked = case.work.check();
                    checked.unwrap_or_else(|error| panic!("{}: {error}", experiment.name));
                }
            }
        }
    }

    #[test]
    fn quick_experiments_end_within_20_minutes() {
        // Start and end of the processes of a run, and what the relation takes.
        let overhead = |nodes: usize| 0.15 + 0.1 * nodes as f64;
        let mut seconds = 0.0;
        for experiment in catalogue() {
            for case in (experiment.plan)(&options(true)) {
                if let Work::Setting(setting) = case.work {
                    seconds += 3.0 * (setting.seconds + overhead(setting.nodes));
                }
            }
        }
        assert!(seconds < 17.0 * 60.0, "{seconds} s, without queries");
    }
}
