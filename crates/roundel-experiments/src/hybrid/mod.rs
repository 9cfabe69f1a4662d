//! Exchanges of whole operators, SHUFFLE and RECEIVE, by each architecture: over endpoints, through multiplexers, between
//! units. Nodes are simulated, or devices of this process. It knows nothing of what figures say.
//!
//! ```text
//!   threads of a node ─send messages to all other nodes─► SHUFFLE ══ architecture ══► RECEIVE ─► consumers, one for
//!                                                                                              each thread
//! ```

mod hosts;
mod mix;
mod nodes;
mod skew;
mod straggler;
mod traffic;

pub(crate) use mix::{Mix, QUERY_COUNT, SCALE, Way};
pub use skew::{SkewedJoin, SkewedMeasured, run as run_skewed};
pub(crate) use straggler::{CORES, ideal, straggler};

use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use roundel_exchange::{Architecture, Scheduling};
use roundel_simtest::as_text;
use roundel_verbs::{Context, Work};
use serde::{Deserialize, Serialize};

/// Most nodes, and threads of each.
const NODES_MAX: usize = 256;
const THREADS_MAX: usize = 64;
/// Fewest bytes of a simulated message, where longer ones stand for it.
const PAGE_BYTES: usize = 4 << 10;

/// Operators on every node that send to all other nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hybrid {
    /// What it runs over.
    pub fabric: FabricChoice,
    /// Which connections there are.
    #[serde(with = "as_text")]
    pub architecture: Architecture,
    /// Whether multiplexers send by a schedule.
    #[serde(with = "as_text")]
    pub scheduling: Scheduling,
    /// Nodes, at least 2.
    pub nodes: usize,
    /// Threads of each node, each of which sends and consumes.
    pub threads: usize,
    /// Exchanges at once.
    pub operators: usize,
    /// Bytes of a message, header included.
    pub message_bytes: usize,
    /// Messages of each thread of each operator to each other node.
    pub messages: usize,
    /// In which order.
    pub order: Order,
    /// What takes messages to the network, in simulation.
    pub carrier: Carrier,
    /// Cycles that a consumer works on each message, in simulation.
    pub work_cycles: u64,
    /// The last thread of the first node is so many times as slow as others, in simulation.
    pub slow: u32,
}

/// In which order a node sends to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Any, as messages fill up by themselves.
    Random,
    /// To all at once: what is for one node waits for nothing that is for another.
    Flows,
}

/// What takes messages to the network, and from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// The NIC, which reads and writes registered memory.
    Rdma,
    /// The kernel: it takes each byte in on the thread that sends, once for each node that it goes to, and hands it out on
    /// one thread of a node at a time. On each side a byte crosses the memory bus three times.
    Tcp,
    /// The same with data direct I/O, where it crosses it once (slides, figure 4).
    TunedTcp,
}

impl Carrier {
    /// How often a byte crosses the memory bus besides the once that is in the rate of TCP, which was measured on processors
    /// with data direct I/O.
    fn further_crossings(self) -> usize {
        match self {
            Self::Tcp => 2,
            Self::Rdma | Self::TunedTcp => 0,
        }
    }

    /// Charges a thread for a message with so many bytes, on one side.
    fn charge(self, context: &dyn Context, length: usize) {
        if self == Self::Rdma {
            return;
        }
        context.charge(Work::Tcp(length));
        // A crossing takes a core as long as a copy.
        context.charge(Work::Copy(length * self.further_crossings()));
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HybridMeasured {
    /// From the first message until all have been consumed.
    pub seconds: f64,
    /// Bytes of messages that a node got from others in a second.
    pub bytes_per_second: f64,
    /// Queue pairs of a node.
    pub queue_pairs: usize,
    /// Most bytes that a node had registered at a time.
    pub registered_bytes: usize,
    /// Phases of the first node's schedule.
    pub phases: u64,
    /// How long it waited in them for a neighbour.
    pub stalled_seconds: f64,
}

impl Hybrid {
    /// One operator on nodes of one thread, with messages of 64 KiB.
    pub fn new(fabric: FabricChoice, architecture: Architecture, nodes: usize) -> Self {
        Self {
            fabric,
            architecture,
            scheduling: Scheduling::Auto,
            nodes,
            threads: 1,
            operators: 1,
            message_bytes: 64 << 10,
            messages: 64,
            order: Order::Random,
            carrier: Carrier::Rdma,
            work_cycles: 0,
            slow: 1,
        }
    }

    /// For how many bytes on the link each byte of a simulated message stands: of short ones, not so many that a message
    /// has no room for a frame.
    fn payload_times(&self) -> usize {
        let most = self.fabric.parameters().map_or(1, |one| one.payload_times);
        (self.message_bytes / PAGE_BYTES).clamp(1, most)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<()> {
        let within = |what: &str, value: usize, least: usize, most: usize| match value {
            _ if (least..=most).contains(&value) => Ok(()),
            _ => Err(Error::Setting(format!(
                "{value} {what}; there can be {least} to {most}"
            ))),
        };
        within("nodes", self.nodes, 2, NODES_MAX)?;
        within("threads", self.threads, 1, THREADS_MAX)?;
        within("operators", self.operators, 1, 64)?;
        within(
            "bytes of a message",
            self.message_bytes,
            PAGE_BYTES,
            1 << 20,
        )?;
        within("messages", self.messages, 1, 1 << 20)?;
        let costs = self.slow > 1 || self.work_cycles > 0 || self.carrier != Carrier::Rdma;
        match costs {
            true if !self.fabric.is_simulated() => Err(Error::Setting(
                "consumers that work, or are slow, and what the kernel costs are simulated only"
                    .into(),
            )),
            _ => Ok(()),
        }
    }
}

/// Runs it once.
///
/// # Errors
/// When it makes no sense, or a node fails.
pub fn run(hybrid: &Hybrid) -> Result<HybridMeasured> {
    hybrid.check()?;
    match hybrid.fabric.hardware() {
        Some(hardware) => {
            let times = hybrid.payload_times();
            let hosts = hosts::Simulated::new(hybrid, hardware.with_payload_times(times));
            traffic::run(hybrid, &hosts)
        }
        None => traffic::run(hybrid, &hosts::OfThisProcess::new(hybrid)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(architecture: Architecture) -> Hybrid {
        Hybrid {
            threads: 2,
            messages: 16,
            ..Hybrid::new("sim:qdr".parse().unwrap(), architecture, 4)
        }
    }

    #[test]
    fn every_architecture_has_its_queue_pairs() {
        for (architecture, queue_pairs) in [
            // Of both sides of the operator.
            (Architecture::Endpoint, 2 * 3 * 2),
            (Architecture::Classic, 2 * 3 * 2 * 2),
            (Architecture::Multiplexer, 3),
        ] {
            let hybrid = simulated(architecture);
            let measured = run(&hybrid).unwrap();
            assert_eq!(measured.queue_pairs, queue_pairs, "{architecture}");
            assert!(measured.bytes_per_second > 1e8, "{measured:?}");
            assert_eq!(run(&hybrid).unwrap(), measured, "the same once more");
            let more = Hybrid {
                operators: 2,
                ..hybrid
            };
            let times = run(&more).unwrap().queue_pairs / queue_pairs;
            let own = if architecture == Architecture::Multiplexer {
                1
            } else {
                2
            };
            assert_eq!(times, own, "{architecture}");
        }
    }

    #[test]
    fn a_slow_consumer_holds_up_its_unit_but_no_multiplexer() {
        let seconds = |architecture, slow| {
            let hybrid = Hybrid {
                slow,
                work_cycles: 400_000,
                threads: 4,
                messages: 40,
                ..simulated(architecture)
            };
            run(&hybrid).unwrap().seconds
        };
        let times = |architecture| seconds(architecture, 10) / seconds(architecture, 1);
        assert!(times(Architecture::Multiplexer) < 1.5);
        assert!(times(Architecture::Classic) > 5.0);
    }

    #[test]
    fn the_kernel_costs_what_a_faster_link_cannot_give_back() {
        let rate = |name: &str, carrier| {
            let hybrid = Hybrid {
                fabric: format!("sim:{name}").parse().unwrap(),
                carrier,
                threads: 4,
                messages: 20,
                ..simulated(Architecture::Multiplexer)
            };
            run(&hybrid).unwrap().bytes_per_second
        };
        let of = |name| [Carrier::Tcp, Carrier::TunedTcp, Carrier::Rdma].map(|by| rate(name, by));
        let [tcp, tuned, rdma] = of("qdr");
        assert!(
            tcp < 0.9 * tuned && tuned < 0.9 * rdma,
            "{tcp} {tuned} {rdma}"
        );
        // Links of SDR have a quarter of the rate.
        let [slow_tcp, _, slow_rdma] = of("sdr");
        assert!(
            tcp / slow_tcp < 0.8 * rdma / slow_rdma,
            "{slow_tcp} {slow_rdma}"
        );
        // Also where there is no RDMA.
        let ethernet = rate("1gbe-tcp", Carrier::TunedTcp);
        assert!((0.08e9..0.125e9).contains(&ethernet), "{ethernet}");
    }

    #[test]
    fn devices_of_this_host_carry_all_of_it() {
        for architecture in Architecture::ALL {
            let hybrid = Hybrid {
                threads: 2,
                operators: 2,
                messages: 8,
                ..Hybrid::new(FabricChoice::default(), architecture, 3)
            };
            let measured = run(&hybrid).unwrap();
            assert!(measured.bytes_per_second > 0.0 && measured.registered_bytes > 0);
        }
        let idle = Hybrid::new(FabricChoice::default(), Architecture::Classic, 2);
        let working = Hybrid {
            work_cycles: 1,
            ..idle.clone()
        };
        let by_the_kernel = Hybrid {
            carrier: Carrier::Tcp,
            ..idle
        };
        assert!(run(&working).is_err() && run(&by_the_kernel).is_err());
    }
}
