//! What a run measured.

use roundel_exchange::{Account, Spending, Spent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one node measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeMeasured {
    /// When its threads began, in seconds since all nodes were ready.
    pub started: f64,
    /// When the last of them ended.
    pub ended: f64,
    /// CPU seconds of the process meanwhile, of user and system.
    pub cpu_seconds: f64,
    /// Seconds to open the device, register memory and connect.
    pub setup_seconds: f64,
    /// Seconds to disconnect and give memory back.
    pub teardown_seconds: f64,
    /// What arrived.
    pub received: Rows,
    /// What was sent to each node.
    pub sent: Vec<Rows>,
    /// Bytes that arrived: of tuples, or of messages where there are no tuples.
    pub received_bytes: u64,
    /// What its endpoints did.
    pub endpoints: Endpoints,
    /// Where it was watched: registered bytes, of both sides, by seconds since its threads began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<(f64, u64)>,
    /// What its threads spent their time on; nothing where a transport does not tell.
    #[serde(default)]
    pub spent: Sides,
}

/// Seconds by the names of [`Spending`], over all threads of a node, from their begin to their end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// Of those that send.
    pub sending: BTreeMap<String, f64>,
    /// Of those that receive.
    pub receiving: BTreeMap<String, f64>,
}

impl Sides {
    /// Adds what tasks spent whose time is accounted for.
    pub(crate) fn add(&mut self, sending: &Account, receiving: &Account) {
        for (sum, account) in [
            (&mut self.sending, sending),
            (&mut self.receiving, receiving),
        ] {
            let spent: Spent = account.spent();
            for on in Spending::ALL.iter().filter(|on| !spent[**on].is_zero()) {
                *sum.entry(on.name().to_owned()).or_default() += spent[*on].as_secs_f64();
            }
        }
    }
}

/// How many rows, and the sum of their keys, which wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// Number of rows.
    pub count: u64,
    /// The sum of their keys.
    pub keys: u64,
}

impl Rows {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.keys = self.keys.wrapping_add(other.keys);
    }
}

/// What the endpoints of a node did; what a transport does not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Endpoints {
    /// Queue pairs that send rows.
    pub queue_pairs: u64,
    /// Registered buffers of messages, of both sides.
    #[serde(default)]
    pub buffers: u64,
    /// Registered bytes, of both sides.
    pub registered_bytes: u64,
    /// Messages with rows that were sent, once for each node.
    pub messages: u64,
    /// Seconds that senders waited for credit, over all threads.
    pub blocked_for_credit: f64,
    /// Seconds that senders waited for a buffer to fill, over all threads, where they are simulated.
    #[serde(default)]
    pub blocked_for_buffers: f64,
    /// Seconds that threads spent in the kernel's part of a socket, over all threads, where they are simulated.
    #[serde(default)]
    pub in_kernel: f64,
    /// Buffers that were filled again, where they are watched.
    #[serde(default)]
    pub returned: u64,
    /// Seconds from when they were sent until then, over all of them.
    #[serde(default)]
    pub away: f64,
    /// Messages with which receivers wrote credit back.
    pub credit_messages: u64,
    /// WRITEs that were posted, of both sides.
    pub writes: u64,
    /// Messages that a link may have had in flight at the end: the mean of a node's links, of the node
    /// with most.
    pub window: f64,
    /// Seconds in which receivers wrote credit back, over all threads.
    pub crediting: f64,
    /// Median seconds of a round trip, of the slowest thread.
    pub round_trip: f64,
}

impl Endpoints {
    /// Adds another side, or another node.
    pub fn add(&mut self, other: &Self) {
        self.queue_pairs += other.queue_pairs;
        self.buffers += other.buffers;
        self.registered_bytes += other.registered_bytes;
        self.messages += other.messages;
        self.blocked_for_credit += other.blocked_for_credit;
        self.blocked_for_buffers += other.blocked_for_buffers;
        self.in_kernel += other.in_kernel;
        self.returned += other.returned;
        self.away += other.away;
        self.credit_messages += other.credit_messages;
        self.writes += other.writes;
        self.window = self.window.max(other.window);
        self.crediting += other.crediting;
        self.round_trip = self.round_trip.max(other.round_trip);
    }
}

/// What a run measured, over all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// From the first start to the last end.
    pub seconds: f64,
    /// Bytes that arrived at a node in a second, its own share included.
    pub bytes_per_second: f64,
    /// CPU seconds of all nodes, of user and system.
    pub cpu_seconds: f64,
    /// The node that took longest.
    pub setup_seconds: f64,
    /// The node that took longest.
    pub teardown_seconds: f64,
    /// By node.
    pub nodes: Vec<NodeMeasured>,
}

impl Measured {
    /// The sum of nodes, of which there is at least one.
    pub fn of(nodes: Vec<NodeMeasured>) -> Self {
        let most = |of: fn(&NodeMeasured) -> f64| nodes.iter().map(of).fold(0.0, f64::max);
        let first = nodes
            .iter()
            .map(|node| node.started)
            .fold(f64::MAX, f64::min);
        let seconds = (most(|node| node.ended) - first).max(1e-9);
        let bytes: u64 = nodes.iter().map(|node| node.received_bytes).sum();
        Self {
            seconds,
            bytes_per_second: bytes as f64 / seconds / nodes.len() as f64,
            cpu_seconds: nodes.iter().map(|node| node.cpu_seconds).sum(),
            setup_seconds: most(|node| node.setup_seconds),
            teardown_seconds: most(|node| node.teardown_seconds),
            nodes,
        }
    }

    /// What the endpoints of all nodes did.
    pub fn endpoints(&self) -> Endpoints {
        let mut sum = Endpoints::default();
        self.nodes.iter().for_each(|node| sum.add(&node.endpoints));
        sum
    }

    /// Rows that all nodes have sent.
    pub fn sent_rows(&self) -> u64 {
        let sent = self.nodes.iter().flat_map(|node| &node.sent);
        sent.map(|rows| rows.count).sum()
    }

    /// Bytes that arrived at all nodes.
    pub fn received_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.received_bytes).sum()
    }
}
