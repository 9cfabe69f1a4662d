//! What an endpoint did, for `EXPLAIN ANALYZE` and reports: the waits it counts itself, messages
//! and bytes come from its queue pairs.

use roundel_verbs::CounterSnapshot;
use std::time::Duration;

/// One credit in so many is timed.
pub const CREDITS_PER_SAMPLE: u32 = 16;

/// What the endpoints of one side of an exchange did.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointReport {
    /// Queue pairs used.
    pub queue_pairs: usize,
    /// Messages and bytes of their work requests.
    pub counters: CounterSnapshot,
    /// Time that senders waited for credit, added up over tasks.
    pub blocked_for_credit: Duration,
    /// Time in which receivers wrote credit back, added up over tasks. The time of one credit in [`CREDITS_PER_SAMPLE`]
    /// is measured, and counts that many times.
    pub crediting: Duration,
    /// Credits that receivers have written back.
    pub credit_messages: u64,
    /// Registered buffers of messages held.
    pub buffers: usize,
    /// Bytes of all registered memory held: of these buffers, of queues, and of receives for control messages. Seals are not
    /// counted.
    pub registered_bytes: usize,
    /// Most bytes of rows that waited for their consumer.
    pub buffered_bytes_max: usize,
    /// Bytes of rows that went to disk.
    pub spilled_bytes: u64,
    /// Messages through a multiplexer that the reader of another partition has taken in.
    pub steals: u64,
    /// Messages through a multiplexer that a reader has taken in from the queue of another NUMA region than its own.
    pub region_steals: u64,
    /// Messages that arrived more than once and were dropped.
    pub duplicates: u64,
    /// Messages that a source has sent again because their receiver missed them.
    pub repaired_messages: u64,
    /// Bytes of rows that a source has filled messages with: each message once, however many destinations get it.
    pub filled_bytes: u64,
    /// Messages that a source has sent once, by multicast, to all members of a group.
    pub multicast_messages: u64,
    /// Times that a receiver has asked for messages it missed, of which one names up to 64.
    pub repair_asks: u64,
}

/// What went to one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestinationReport {
    /// Data messages.
    pub messages: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Time that senders waited for its credit, added up over tasks.
    pub blocked_for_credit: Duration,
    /// Time that they waited for its credit, or for buffers on their way to it.
    pub delivering: Duration,
    /// Data messages that were sent again because it missed them, which the others do not count.
    pub repaired_messages: u64,
}

impl EndpointReport {
    /// So many buffers of so many bytes more are held.
    pub(crate) fn hold(&mut self, buffers: usize, bytes: usize) {
        self.buffers += buffers;
        self.registered_bytes += buffers * bytes;
    }

    /// So many are held no more.
    pub(crate) fn give_back(&mut self, buffers: usize, bytes: usize) {
        self.buffers -= buffers;
        self.registered_bytes -= buffers * bytes;
    }

    /// Adds another endpoint's report.
    pub fn merge(&mut self, other: &Self) {
        self.queue_pairs += other.queue_pairs;
        self.counters.merge(&other.counters);
        self.blocked_for_credit += other.blocked_for_credit;
        self.crediting += other.crediting;
        self.credit_messages += other.credit_messages;
        self.buffers += other.buffers;
        self.registered_bytes += other.registered_bytes;
        self.buffered_bytes_max += other.buffered_bytes_max;
        self.spilled_bytes += other.spilled_bytes;
        self.steals += other.steals;
        self.region_steals += other.region_steals;
        self.duplicates += other.duplicates;
        self.repaired_messages += other.repaired_messages;
        self.filled_bytes += other.filled_bytes;
        self.multicast_messages += other.multicast_messages;
        self.repair_asks += other.repair_asks;
    }
}
