//! What nodes measured, each by itself and all together.

use super::setting::{Paradigm, Setting};
use crate::perf::LatencyMicroseconds;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// What a node measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Calls that ended with their response while it counted.
    pub calls: u64,
    /// Calls that ended otherwise.
    pub errors: u64,
    /// Responses that were not what was asked for.
    pub wrong: u64,
    /// Requests that were sent again.
    pub resent: u64,
    /// Requests of other nodes that it answered.
    pub answered: u64,
    /// Seconds in which it counted.
    pub seconds: f64,
    /// CPU seconds of the node in that time.
    pub cpu_seconds: f64,
    /// Queue pairs that it created.
    pub queue_pairs: usize,
    /// Bytes of memory that it registered.
    pub registered_bytes: usize,
    /// Calls of an open loop that were still to be begun at the end.
    pub backlog: u64,
    /// How many calls took how long: nanoseconds and their count, of each bucket that is not empty.
    pub latencies: Vec<(u64, u64)>,
    /// The first call that failed, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A setting, and what all nodes measured together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was run.
    pub setting: Setting,
    /// Calls in a second, all nodes together.
    pub calls_per_second: f64,
    /// Bytes of responses in a second: all nodes together, but with M:M for each node, as the paper has it.
    pub bytes_per_second: f64,
    /// Latency of calls.
    pub latency: Option<LatencyMicroseconds>,
    /// CPU seconds of all nodes for a million calls.
    pub cpu_seconds_per_million: f64,
    /// CPU seconds of all nodes for a GiB of responses.
    pub cpu_seconds_per_gib: f64,
    /// Most queue pairs of a node.
    pub queue_pairs: usize,
    /// Most registered bytes of a node.
    pub registered_bytes: usize,
    /// Each node by itself, without its latencies.
    pub nodes: Vec<NodeReport>,
}

impl NodeReport {
    /// Adds what another thread of the node counted.
    pub(super) fn add(&mut self, thread: Self) {
        self.calls += thread.calls;
        self.errors += thread.errors;
        self.wrong += thread.wrong;
        self.resent += thread.resent;
        self.backlog += thread.backlog;
        self.seconds = self.seconds.max(thread.seconds);
        self.failure = self.failure.take().or(thread.failure);
    }

    /// Takes over what a histogram of nanoseconds holds.
    pub(super) fn set_latencies(&mut self, histogram: &Histogram<u64>) {
        let buckets = histogram.iter_recorded();
        self.latencies = buckets
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
            .collect();
    }

    pub(super) fn histogram() -> Histogram<u64> {
        // One day, which nothing takes, and from a nanosecond on.
        Histogram::new_with_max(86_400_000_000_000, DIGITS).expect("three digits are few")
    }
}

impl Measured {
    /// Puts together what nodes measured.
    pub fn new(setting: Setting, mut nodes: Vec<NodeReport>) -> Self {
        let mut all = NodeReport::histogram();
        for node in &mut nodes {
            for (nanoseconds, count) in std::mem::take(&mut node.latencies) {
                all.saturating_record_n(nanoseconds.max(1), count);
            }
        }
        let calls: u64 = nodes.iter().map(|node| node.calls).sum();
        let rates = nodes.iter().filter(|node| node.seconds > 0.0);
        let calls_per_second = rates
            .map(|node| node.calls as f64 / node.seconds)
            .sum::<f64>();
        let bytes = calls_per_second * setting.response_bytes as f64;
        let share = match setting.paradigm {
            Paradigm::ManyToMany => setting.nodes as f64,
            _ => 1.0,
        };
        let cpu: f64 = nodes.iter().map(|node| node.cpu_seconds).sum();
        let gib = calls as f64 * setting.response_bytes as f64 / f64::from(1 << 30);
        let each = |of: f64| if of > 0.0 { cpu / of } else { 0.0 };
        Self {
            calls_per_second,
            bytes_per_second: bytes / share,
            latency: LatencyMicroseconds::of(&all, 1.0),
            cpu_seconds_per_million: each(calls as f64 / 1e6),
            cpu_seconds_per_gib: each(gib),
            queue_pairs: nodes.iter().map(|node| node.queue_pairs).max().unwrap_or(0),
            registered_bytes: nodes
                .iter()
                .map(|node| node.registered_bytes)
                .max()
                .unwrap_or(0),
            setting,
            nodes,
        }
    }

    /// Gigabits in a second, as the paper reports bandwidth.
    pub fn gigabits(&self) -> f64 {
        self.bytes_per_second * 8.0 / 1e9
    }

    /// Why it does not count, if a call failed or came back wrong.
    pub fn failure(&self) -> Option<String> {
        let bad = self
            .nodes
            .iter()
            .position(|node| node.errors > 0 || node.wrong > 0)?;
        let node = &self.nodes[bad];
        let first = node.failure.as_deref().unwrap_or("a wrong response");
        Some(format!(
            "node {bad}: {} calls failed and {} responses were wrong; first: {first}",
            node.errors, node.wrong
        ))
    }
}
