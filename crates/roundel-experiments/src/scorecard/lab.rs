//! Runs what claims ask for, each setting once.

use crate::conversation::{self, Conversation};
use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use crate::hybrid::{self, Hybrid, HybridMeasured};
use crate::measured::Measured;
use crate::parallel;
use crate::ring::{self, RingJoin, RingMeasured};
use crate::run::simulate;
use crate::setting::{Pattern, Setting, Transport};
use parking_lot::Mutex;
use roundel_exchange::{Buffers, Design, Notification};
use roundel_verbs::sim::Mechanism;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Threads of a node of the paper's clusters.
const EDR_THREADS: usize = 14;
const FDR_THREADS: usize = 10;
/// Seconds of virtual time, many times those in which buffers are first filled. Messages of datagrams are many, and soon
/// tell.
const SECONDS: f64 = 0.02;
const SECONDS_OF_DATAGRAMS: f64 = 0.002;

/// The designs that write, with the notification that the paper chose.
pub(super) const MEMQ_WR: Design = Design::MemqWr(Notification::CompletionQueue);
pub(super) const SEMQ_WR: Design = Design::SemqWr(Notification::CompletionQueue);

/// Runs by what was run.
struct Runs<T>(Mutex<HashMap<String, Run<T>>>);
type Run<T> = Arc<OnceLock<Arc<T>>>;

/// Between the draws of a seed and of the next, of those who draw several times.
const DRAWS_APART: u64 = 1 << 20;

/// What was run so far.
#[derive(Default)]
struct Known {
    settings: Runs<Measured>,
    rings: Runs<RingMeasured>,
    hybrids: Runs<HybridMeasured>,
    /// Gigabits per second.
    conversations: Runs<f64>,
}

/// Runs what a claim asks for: as it is asked for, or with another seed, or on hardware that something does not hold up.
#[derive(Default)]
pub(super) struct Lab {
    known: Arc<Known>,
    /// Of this host, for conversations; none where only those count that are known.
    threads: usize,
    varied: Option<Varied>,
    /// What was asked for, before it was varied, and the number that was measured.
    asked: Mutex<BTreeMap<String, f64>>,
}

/// How what is run differs from what is asked for.
struct Varied {
    seed: u64,
    without: Vec<Mechanism>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Runs<T> {
    fn get(&self, key: String, run: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let known = self.0.lock().entry(key).or_default().clone();
        if let Some(measured) = known.get() {
            return Ok(measured.clone());
        }
        // Two that ask at once both run it, and find the same.
        let measured = Arc::new(run()?);
        Ok(known.get_or_init(|| measured).clone())
    }
}

impl Lab {
    /// One that runs conversations on so many threads of this host.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            ..Self::default()
        }
    }

    /// One that knows conversations by their gigabits per second, and runs none.
    pub(super) fn knowing(all: &[(Conversation, f64)]) -> Self {
        let lab = Self::default();
        for (one, gigabits) in all {
            let known = Arc::new(OnceLock::from(Arc::new(*gigabits)));
            lab.known.conversations.0.lock().insert(key(one), known);
        }
        lab
    }

    /// One that shares what is known, for a claim, a seed from 1 on, and hardware that all of this does not hold up.
    pub(super) fn varied(&self, seed: u64, without: &[Mechanism]) -> Self {
        Self {
            known: self.known.clone(),
            threads: self.threads,
            varied: Some(Varied {
                seed,
                without: without.to_vec(),
            }),
            asked: Mutex::default(),
        }
    }

    /// What was asked for, and the number that was measured of it: of bytes or bits in a second, or of seconds.
    pub(super) fn asked(&self) -> BTreeMap<String, f64> {
        self.asked.lock().clone()
    }

    /// What a thing that runs on hardware measures, and the number that tells of it.
    fn ask<R: Clone + Serialize, T>(
        &self,
        one: &R,
        runs: &Runs<T>,
        fabric: impl Fn(&mut R) -> &mut FabricChoice,
        run: impl FnOnce(&R) -> Result<T>,
        number: impl FnOnce(&T) -> f64,
    ) -> Result<Arc<T>> {
        let mut varied = one.clone();
        if let (Some(by), FabricChoice::Simulated(simulated)) = (&self.varied, fabric(&mut varied))
        {
            simulated.seed = by.seed;
            simulated.without.extend(&by.without);
        }
        let measured = runs.get(key(&varied), || run(&varied))?;
        self.asked.lock().insert(key(one), number(&measured));
        Ok(measured)
    }

    /// Gigabits per second of each of these conversations.
    pub(super) fn conversations(&self, all: &[Conversation]) -> Result<Vec<f64>> {
        parallel::try_each(self.threads, all, |_, one| self.conversation(one))
    }

    fn conversation(&self, one: &Conversation) -> Result<f64> {
        let run = |one: &_| match self.threads {
            0 => Err(Error::Setting(
                "not all of it was among what was run".into(),
            )),
            _ => Ok(conversation::simulate(one)?.gigabits()),
        };
        let runs = &self.known.conversations;
        Ok(*self.ask(one, runs, |one| &mut one.fabric, run, |gigabits| *gigabits)?)
    }

    /// What a setting measures.
    pub(super) fn run(&self, setting: &Setting) -> Result<Arc<Measured>> {
        let (runs, rate) = (&self.known.settings, |run: &Measured| run.bytes_per_second);
        self.ask(setting, runs, |one| &mut one.fabric, simulate, rate)
    }

    /// What exchanges of whole operators measure.
    pub(super) fn hybrid(&self, one: &Hybrid) -> Result<Arc<HybridMeasured>> {
        let (runs, seconds) = (&self.known.hybrids, |run: &HybridMeasured| run.seconds);
        self.ask(one, runs, |one| &mut one.fabric, hybrid::run, seconds)
    }

    /// What a join on a ring measures.
    pub(super) fn ring(&self, join: &RingJoin) -> Result<Arc<RingMeasured>> {
        let draw = self.varied.as_ref().map_or(0, |by| by.seed - 1) * DRAWS_APART;
        let run = |join: &RingJoin| {
            ring::simulate(&RingJoin {
                seed: join.seed + draw,
                ..join.clone()
            })
        };
        let runs = &self.known.rings;
        self.ask(join, runs, |one| &mut one.fabric, run, RingMeasured::total)
    }

    /// Bytes per second and node.
    pub(super) fn rate(&self, setting: &Setting) -> Result<f64> {
        Ok(self.run(setting)?.bytes_per_second)
    }
}

fn key(one: &impl Serialize) -> String {
    serde_json::to_string(one).expect("plain data is JSON")
}

/// A setting of the paper: threads of its cluster, two buffers of each thread for each destination.
pub(super) fn on(generation: &str, transport: Transport, nodes: usize) -> Setting {
    let fabric: FabricChoice = format!("sim:{generation}").parse().expect("a generation");
    let datagrams = matches!(
        transport,
        Transport::Design(Design::MesqSr | Design::SesqSr)
    );
    Setting {
        nodes,
        threads: match (transport, generation) {
            (Transport::Qperf, _) => 1,
            (_, "fdr") => FDR_THREADS,
            _ => EDR_THREADS,
        },
        buffers: Buffers::Fixed(2),
        seconds: if datagrams {
            SECONDS_OF_DATAGRAMS
        } else {
            SECONDS
        },
        ..Setting::new(transport, fabric)
    }
}

/// The same, of a design on EDR.
pub(super) fn edr(design: Design, nodes: usize) -> Setting {
    on("edr", Transport::Design(design), nodes)
}

/// The same, of a design on FDR.
pub(super) fn fdr(design: Design, nodes: usize) -> Setting {
    on("fdr", Transport::Design(design), nodes)
}

pub(super) fn broadcast(setting: Setting) -> Setting {
    Setting {
        pattern: Pattern::Broadcast,
        ..setting
    }
}

/// Gigabytes per second.
pub(super) fn giga(rate: f64) -> String {
    format!("{:.2} GB/s", rate / 1e9)
}

/// Whether a ratio is as claimed, within a quarter.
pub(super) fn is_near(ratio: f64, claimed: f64) -> bool {
    (ratio / claimed - 1.0).abs() <= 0.25
}

/// The least and the most of values.
pub(super) fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values
        .into_iter()
        .fold((f64::INFINITY, 0.0), |(least, most), value| {
            (least.min(value), most.max(value))
        })
}
