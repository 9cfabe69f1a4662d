//! Events that are going to happen, in the order of time. Those of the same moment are in the order in which
//! they were decided.

use super::faults::Trouble;
use super::packet::{Packet, PairId};
use super::time::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::task::Waker;

/// A thread of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cpu {
    pub node: usize,
    pub index: usize,
}

/// What happens at a moment of virtual time.
#[derive(Debug)]
pub(super) enum Event {
    /// A sleep is over.
    Wake(Waker),
    /// A thread takes its next task.
    Run(Cpu),
    /// A NIC learns of requests that were posted, up to this number.
    Doorbell(PairId, u64),
    /// A NIC sends its next packet.
    Emit(usize),
    /// The last packet of a message without acknowledgement has left.
    Left(PairId, u64),
    /// A packet reaches the switch, from a node.
    Arrive(usize, Box<Packet>),
    /// The switch has passed a packet on, which came from a node.
    Passed(usize, Box<Packet>),
    /// A NIC has looked at a packet.
    Received(Box<Packet>),
    /// A queue pair tries again after it was told to wait.
    Resume(PairId),
    /// Something happens to a node.
    Trouble(usize, Trouble),
    /// A queue pair looks whether its requests were acknowledged.
    Timeout(PairId),
}

/// What is going to happen.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Due>>,
    decided: u64,
}

#[derive(Debug)]
struct Due {
    at: Time,
    number: u64,
    event: Event,
}

impl Events {
    pub(super) fn add(&mut self, at: Time, event: Event) {
        let number = self.decided;
        self.decided += 1;
        self.heap.push(Reverse(Due { at, number, event }));
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(due)| due.at)
    }

    pub(super) fn next(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|Reverse(due)| (due.at, due.event))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}
