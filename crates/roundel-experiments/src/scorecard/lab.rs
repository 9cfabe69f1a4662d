//! Runs what claims ask for, each setting once.

use crate::error::Result;
use crate::fabric::FabricChoice;
use crate::measured::Measured;
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

type Run = Arc<OnceLock<Arc<Measured>>>;

/// What was run so far.
#[derive(Default)]
pub(super) struct Lab(Mutex<HashMap<String, Run>>);

impl Lab {
    /// What a setting measures.
    pub(super) fn run(&self, setting: &Setting) -> Result<Arc<Measured>> {
        let key = serde_json::to_string(setting).expect("plain data is JSON");
        let run = self.0.lock().entry(key).or_default().clone();
        if let Some(measured) = run.get() {
            return Ok(measured.clone());
        }
        // Two that ask at once both run it, and find the same.
        let measured = Arc::new(simulate(setting)?);
        Ok(run.get_or_init(|| measured).clone())
    }

    /// Bytes per second and node.
    pub(super) fn rate(&self, setting: &Setting) -> Result<f64> {
        Ok(self.run(setting)?.bytes_per_second)
    }
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
