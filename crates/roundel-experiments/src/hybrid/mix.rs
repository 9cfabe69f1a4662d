//! The queries of TPC-H as they were recorded, on a simulated cluster.
//!
//! A query is what it exchanges and what it computes, dealt to all nodes alike: each thread sends to all other nodes in any
//! order, and for each message that comes a thread computes for as long as the query has to. A part of the query is
//! simulated, which is as long for each node and thread; the whole takes as many times as long as it is larger.

use super::{Carrier, Hybrid};
use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use crate::recorded::Recording;
use roundel_exchange::{Architecture, Scheduling};
use roundel_verbs::sim::Parameters;

/// Queries of TPC-H.
pub(crate) const QUERY_COUNT: u32 = 22;
/// Of the tables, as in the paper.
pub(crate) const SCALE: f64 = 100.0;
/// Threads of a node: its processors have 10 cores each.
const THREADS: usize = 20;
/// Bytes of a message, as multiplexers have them; a query with fewer for a node and thread has shorter ones.
const MESSAGE_BYTES: f64 = 65536.0;
const MESSAGE_BYTES_MIN: f64 = 4096.0;
/// Messages of a thread that are simulated.
const MESSAGES: usize = 12;

/// How rows are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    TunedTcp,
    Rdma,
    RdmaWithSchedule,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [
        Self::Tcp,
        Self::TunedTcp,
        Self::Rdma,
        Self::RdmaWithSchedule,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::TunedTcp => "tuned TCP",
            Self::Rdma => "RDMA",
            Self::RdmaWithSchedule => "RDMA with schedule",
        }
    }

    pub(crate) fn carrier(self) -> Carrier {
        match self {
            Self::Tcp => Carrier::Tcp,
            Self::TunedTcp => Carrier::TunedTcp,
            Self::Rdma | Self::RdmaWithSchedule => Carrier::Rdma,
        }
    }

    fn scheduling(self) -> Scheduling {
        match self {
            Self::RdmaWithSchedule => Scheduling::On,
            Self::Tcp | Self::TunedTcp | Self::Rdma => Scheduling::Off,
        }
    }
}

/// Queries on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mix {
    pub(crate) fabric: FabricChoice,
    pub(crate) way: Way,
    pub(crate) nodes: usize,
    pub(crate) threads: usize,
    pub(crate) queries: Vec<u32>,
}

impl Mix {
    /// All queries on nodes of this hardware.
    pub(crate) fn new(hardware: &str, way: Way, nodes: usize) -> Self {
        let fabric = format!("sim:{hardware}");
        Self {
            fabric: fabric.parse().expect("a generation"),
            way,
            nodes,
            threads: THREADS,
            queries: (1..=QUERY_COUNT).collect(),
        }
    }

    /// Whether it makes sense.
    pub(crate) fn check(&self) -> Result<()> {
        let exchange = Hybrid {
            threads: self.threads,
            ..Hybrid::new(self.fabric.clone(), Architecture::Multiplexer, self.nodes)
        };
        exchange.check()
    }

    /// How many queries it has.
    pub(crate) fn count(&self) -> usize {
        self.queries.len()
    }

    /// Seconds of all queries, one after the other, of which `rate` says the bytes per second that a node gets.
    pub(crate) fn total_seconds(&self, rate: impl Fn(&Hybrid) -> Result<f64>) -> Result<f64> {
        let queries = self.queries.iter();
        queries.map(|query| self.seconds(*query, &rate)).sum()
    }

    /// Seconds of all queries on one node.
    pub(crate) fn alone_seconds(&self) -> Result<f64> {
        let alone = Self {
            nodes: 1,
            ..self.clone()
        };
        let queries = self.queries.iter();
        queries
            .map(|query| alone.computing_seconds(&Recording::of(*query)?))
            .sum()
    }

    /// Seconds that each node computes.
    fn computing_seconds(&self, recording: &Recording) -> Result<f64> {
        let cycles = self.cycles(recording);
        let cycle = self.parameters()?.cpu.cycle.as_picos() as f64 * 1e-12;
        Ok(cycles * cycle / self.threads as f64)
    }

    /// Cycles that each node computes: a second of the host that recorded is one of the base case.
    fn cycles(&self, recording: &Recording) -> f64 {
        let (_, seconds) = recording.of_node(SCALE, self.nodes);
        seconds * 1e12 / Parameters::edr().cpu.cycle.as_picos() as f64
    }

    fn parameters(&self) -> Result<Parameters> {
        let hardware = self.fabric.hardware();
        hardware.ok_or_else(|| Error::Setting(format!("{} is not simulated", self.fabric)))
    }

    /// Seconds of a query, of which `rate` says the bytes per second that a node gets.
    pub(crate) fn seconds(&self, query: u32, rate: impl Fn(&Hybrid) -> Result<f64>) -> Result<f64> {
        let recording = Recording::of(query)?;
        let computing = self.computing_seconds(&recording)?;
        let (bytes, _) = recording.of_node(SCALE, self.nodes);
        match self.part(bytes, self.cycles(&recording)) {
            Some(part) => Ok((bytes / rate(&part)?).max(computing)),
            None => Ok(computing),
        }
    }

    /// The part of a query that is simulated; none where a node exchanges less than a short message for each of its threads
    /// and each other node, which takes no time beside what it computes.
    fn part(&self, bytes: f64, cycles: f64) -> Option<Hybrid> {
        let others = self.nodes - 1;
        let of_thread = bytes / (self.threads * others) as f64;
        if of_thread < MESSAGE_BYTES_MIN {
            return None;
        }
        let message_bytes = of_thread.min(MESSAGE_BYTES).floor();
        let most = (of_thread / message_bytes) as usize;
        Some(Hybrid {
            threads: self.threads,
            message_bytes: message_bytes as usize,
            messages: MESSAGES.div_ceil(others).clamp(1, most.max(1)),
            carrier: self.way.carrier(),
            scheduling: self.way.scheduling(),
            work_cycles: (cycles * message_bytes / bytes) as u64,
            ..Hybrid::new(self.fabric.clone(), Architecture::Multiplexer, self.nodes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_simulated_is_a_part_of_the_query() {
        let mix = Mix::new("qdr", Way::Rdma, 6);
        let (bytes, cycles) = (1e9, 1e11);
        let part = mix.part(bytes, cycles).unwrap();
        assert_eq!(part.message_bytes, 65536);
        assert_eq!(part.messages, MESSAGES.div_ceil(5));
        let work = part.work_cycles as f64 / part.message_bytes as f64;
        assert!((work / (cycles / bytes) - 1.0).abs() < 1e-3);
        // Of little, all; of next to nothing, none.
        let little = mix.part(20.0 * 5.0 * 10_000.0, cycles).unwrap();
        assert_eq!((little.message_bytes, little.messages), (10_000, 1));
        assert_eq!(mix.part(1000.0, cycles), None);
    }

    #[test]
    fn queries_take_as_long_as_they_compute_or_exchange() {
        let mix = Mix::new("edr", Way::Rdma, 4);
        let fast = mix.total_seconds(|_| Ok(1e15)).unwrap();
        assert!((fast / (mix.alone_seconds().unwrap() / 4.0) - 1.0).abs() < 1e-9);
        let slow = |rate: f64| mix.total_seconds(|_| Ok(rate)).unwrap();
        assert!(slow(1e6) > 100.0 * fast);
        assert!((slow(1e5) / slow(1e6) - 10.0).abs() < 0.1);
    }
}
