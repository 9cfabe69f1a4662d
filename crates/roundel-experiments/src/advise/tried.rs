//! What was measured of a candidate, and what held it up.

use super::candidate::Candidate;
use super::is_datagrams;
use super::limit::{Hardware, Limit};
use crate::measured::Measured;
use crate::setting::Setting;
use serde::Serialize;

/// Of what the link carries, so much is all of it: headers of messages and credit take the rest.
const FULL: f64 = 0.96;
/// The same of what threads can do.
const BUSY: f64 = 0.9;
/// Fetching contexts counts when it takes such a share of what it is fetched for.
const FETCHING: f64 = 0.05;
/// Senders are held up when they wait for such a share of the time.
const WAITING: f64 = 0.3;

/// What was measured of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// What it is.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Bytes that arrive at a node in a second, its own share included.
    pub bytes_per_second: f64,
    /// Registered bytes of the node that has most.
    pub registered_bytes: u64,
    /// Queue pairs of a node that send rows.
    pub queue_pairs: u64,
    /// Share of the time that senders waited for credit.
    pub blocked_for_credit: f64,
    /// Share of the time that senders waited for a buffer, where they are simulated.
    pub blocked_for_buffers: f64,
    /// What holds it up.
    pub limit: Limit,
}

impl Tried {
    /// What a run of a setting says of a candidate.
    pub(super) fn new(
        candidate: Candidate,
        setting: &Setting,
        measured: &Measured,
        hardware: Option<&Hardware>,
    ) -> Self {
        let all = measured.endpoints();
        let most = |of: fn(&crate::measured::Endpoints) -> u64| {
            let nodes = measured.nodes.iter();
            nodes.map(|node| of(&node.endpoints)).max().unwrap_or(0)
        };
        let seconds = setting.seconds.max(measured.seconds);
        let threads = (setting.nodes * setting.threads) as f64 * seconds;
        let mut tried = Self {
            candidate,
            bytes_per_second: measured.bytes_per_second,
            registered_bytes: most(|one| one.registered_bytes),
            queue_pairs: most(|one| one.queue_pairs),
            blocked_for_credit: all.blocked_for_credit / threads,
            blocked_for_buffers: all.blocked_for_buffers / threads,
            limit: Limit::Unknown,
        };
        tried.limit = tried.held_up_by(setting.threads, hardware);
        tried
    }

    /// What holds it up in nodes of so many threads.
    fn held_up_by(&self, threads: usize, hardware: Option<&Hardware>) -> Limit {
        let design = self.candidate.design;
        let waits = [self.blocked_for_credit, self.blocked_for_buffers];
        if let Some(hardware) = hardware {
            let rate = self.bytes_per_second;
            if rate >= FULL * hardware.link {
                return Limit::Link;
            }
            if rate >= BUSY * threads as f64 * hardware.thread {
                return Limit::Threads;
            }
            let fetches = self.queue_pairs > hardware.contexts && hardware.fetching >= FETCHING;
            if fetches && !is_datagrams(design) {
                return Limit::Contexts;
            }
            let shared = design.endpoints(threads) < threads;
            if shared && waits.iter().all(|wait| *wait < WAITING) {
                return Limit::Lock;
            }
        }
        match waits {
            [credit, buffers] if credit >= WAITING && credit >= buffers => Limit::Credit,
            [_, buffers] if buffers >= WAITING => Limit::Buffers,
            _ => Limit::Unknown,
        }
    }
}
