//! Counts of messages and payload bytes, per queue pair and opcode: the one source of every
//! report above.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use strum::{IntoStaticStr, VariantArray};

/// What is counted: the operation as its initiator posted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Opcode {
    /// SEND, with or without immediate data.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data.
    WriteWithImmediate,
    /// RDMA READ.
    Read,
    /// Atomic compare-and-swap of a remote word.
    CompareAndSwap,
    /// Atomic addition to a remote word.
    FetchAndAdd,
    /// A receive that a SEND or a WRITE with immediate data consumed.
    Receive,
}

impl Opcode {
    /// Every opcode, in the order of the counters.
    pub const ALL: [Self; 7] = *Self::VARIANTS.as_array().unwrap();

    /// The name reports use.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// Live counters of a queue pair or of a device.
#[derive(Debug, Default)]
pub struct Counters([Counter; Opcode::ALL.len()]);

impl Counters {
    /// Counts one message of `bytes` payload bytes.
    pub fn add(&self, opcode: Opcode, bytes: usize) {
        self.add_many(opcode, 1, bytes);
    }

    /// Counts several messages, of `bytes` payload bytes together.
    pub fn add_many(&self, opcode: Opcode, messages: usize, bytes: usize) {
        let counter = &self.0[opcode as usize];
        counter.messages.fetch_add(messages as u64, Relaxed);
        counter.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// The counts up to now.
    pub fn snapshot(&self) -> CounterSnapshot {
        let mut snapshot = CounterSnapshot::default();
        for (counts, counter) in snapshot.0.iter_mut().zip(&self.0) {
            *counts = (counter.messages.load(Relaxed), counter.bytes.load(Relaxed));
        }
        snapshot
    }
}

/// Counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot([(u64, u64); Opcode::ALL.len()]);

impl CounterSnapshot {
    /// Messages of an opcode.
    pub fn messages(&self, opcode: Opcode) -> u64 {
        self.0[opcode as usize].0
    }

    /// Payload bytes of an opcode.
    pub fn bytes(&self, opcode: Opcode) -> u64 {
        self.0[opcode as usize].1
    }

    /// Adds the counts of another snapshot.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
    }

    /// The counts since an earlier snapshot of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (mine, theirs) in difference.0.iter_mut().zip(&earlier.0) {
            mine.0 = mine.0.saturating_sub(theirs.0);
            mine.1 = mine.1.saturating_sub(theirs.1);
        }
        difference
    }
}

/// How many queue pairs of a device there are.
#[derive(Debug, Default)]
pub struct QueuePairCount {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl QueuePairCount {
    /// Those that have been created and not destroyed.
    pub fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    /// Most of them that there were at a time.
    pub fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// One more, until what this returns is dropped.
    pub(crate) fn one_more(self: &Arc<Self>) -> CountedQueuePair {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(now, Relaxed);
        CountedQueuePair(self.clone())
    }
}

/// A queue pair that counts as long as it lives.
#[derive(Debug)]
pub(crate) struct CountedQueuePair(Arc<QueuePairCount>);

impl Drop for CountedQueuePair {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Relaxed);
    }
}
