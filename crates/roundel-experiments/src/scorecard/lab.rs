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
use std::collections::HashMap;
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

/// What was run so far.
#[derive(Default)]
pub(super) struct Lab {
    settings: Runs<Measured>,
    rings: Runs<RingMeasured>,
    hybrids: Runs<HybridMeasured>,
    /// Gigabits per second.
    conversations: Runs<f64>,
    /// Of this host, for conversations; none where only those count that are known.
    threads: usize,
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
            lab.conversations.0.lock().insert(key(one), known);
        }
        lab
    }

    /// Gigabits per second of each of these conversations.
    pub(super) fn conversations(&self, all: &[Conversation]) -> Result<Vec<f64>> {
        parallel::try_each(self.threads, all, |_, one| self.conversation(one))
    }

    fn conversation(&self, one: &Conversation) -> Result<f64> {
        let run = || match self.threads {
            0 => Err(Error::Setting(
                "not all of it was among what was run".into(),
            )),
            _ => Ok(conversation::simulate(one)?.gigabits()),
        };
        Ok(*self.conversations.get(key(one), run)?)
    }

    /// What a setting measures.
    pub(super) fn run(&self, setting: &Setting) -> Result<Arc<Measured>> {
        let key = serde_json::to_string(setting).expect("plain data is JSON");
        self.settings.get(key, || simulate(setting))
    }

    /// What exchanges of whole operators measure.
    pub(super) fn hybrid(&self, one: &Hybrid) -> Result<Arc<HybridMeasured>> {
        self.hybrids.get(format!("{one:?}"), || hybrid::run(one))
    }

    /// What a join on a ring measures.
    pub(super) fn ring(&self, join: &RingJoin) -> Result<Arc<RingMeasured>> {
        self.rings.get(format!("{join:?}"), || ring::simulate(join))
    }

    /// Bytes per second and node.
    pub(super) fn rate(&self, setting: &Setting) -> Result<f64> {
        Ok(self.run(setting)?.bytes_per_second)
    }
}

fn key(one: &Conversation) -> String {
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
