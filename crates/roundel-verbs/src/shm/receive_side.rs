//! The receive queue of a queue pair: what its owner posted, and what came.
//!
//! What the shared ring says of a receive is not believed: the owner keeps its own copy.

use super::connected_ring;
use super::datagram_receives::DatagramReceives;
use super::device::DeviceState;
use super::receive::{Request, Ring, completion, flushed};
use super::visitor::Claim;
use crate::provider::RawCompletion;
use crate::queue_pair::Transport;
use crate::work::CompletionStatus;
use std::collections::VecDeque;

/// The owner's side of a receive ring.
pub(super) enum ReceiveSide {
    Connected(ConnectedReceives),
    Datagram(DatagramReceives),
}

impl ReceiveSide {
    pub(super) fn new(transport: Transport, number: u32, incarnation: u32, slots: usize) -> Self {
        match transport {
            Transport::UnreliableDatagram => {
                Self::Datagram(DatagramReceives::new(number, incarnation, slots))
            }
            Transport::ReliableConnection | Transport::UnreliableConnection => {
                Self::Connected(ConnectedReceives {
                    number,
                    low: 0,
                    window: VecDeque::new(),
                })
            }
        }
    }

    /// Receives posted and not completed.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Connected(receives) => receives.window.len(),
            Self::Datagram(receives) => receives.len(),
        }
    }

    /// Posts a receive; the caller has checked that the queue is not full.
    pub(super) fn post(&mut self, ring: Ring<'_>, request: Request) {
        match self {
            Self::Connected(receives) => receives.post(ring, request),
            Self::Datagram(receives) => receives.post(ring, request),
        }
    }

    /// Appends at most `limit` completions. Returns true when one of them breaks the queue pair.
    pub(super) fn poll(
        &mut self,
        ring: Ring<'_>,
        device: &DeviceState,
        completions: &mut Vec<RawCompletion>,
        limit: usize,
    ) -> bool {
        match self {
            Self::Connected(receives) => receives.poll(ring, completions, limit),
            Self::Datagram(receives) => {
                let before = completions.len();
                receives.poll(ring, device, completions, limit);
                completions[before..]
                    .iter()
                    .any(|completion| completion.status != CompletionStatus::Success)
            }
        }
    }

    /// After the queue pair broke and no peer is inside any more: flushes what is still posted.
    /// Datagram receives that a living peer is filling stay until it has left them.
    pub(super) fn flush(
        &mut self,
        ring: Ring<'_>,
        completions: &mut Vec<RawCompletion>,
        limit: usize,
    ) {
        match self {
            Self::Connected(receives) => receives.flush(completions, limit),
            Self::Datagram(receives) => receives.flush(ring, completions, limit),
        }
    }

    /// When the queue pair is destroyed: takes back what no peer has claimed, and says which
    /// receives peers are still inside of.
    pub(super) fn revoke_all(&mut self, ring: Ring<'_>, ring_at: u64) -> Vec<Claim> {
        match self {
            Self::Connected(_) => Vec::new(),
            Self::Datagram(receives) => receives.revoke_all(ring, ring_at),
        }
    }
}

/// The receives of a reliable connection, which complete in order.
pub(super) struct ConnectedReceives {
    number: u32,
    /// Sequence number of the first request of `window`.
    low: u64,
    window: VecDeque<Request>,
}

impl ConnectedReceives {
    fn post(&mut self, ring: Ring<'_>, request: Request) {
        let sequence = self.low + self.window.len() as u64;
        self.window.push_back(request);
        connected_ring::post(ring.pair, ring.slots, sequence, request.posted);
    }

    fn poll(&mut self, ring: Ring<'_>, completions: &mut Vec<RawCompletion>, limit: usize) -> bool {
        let mut broken = false;
        for _ in 0..limit {
            let Some(request) = self.window.front() else {
                break;
            };
            let Some(completed) = connected_ring::poll(ring.pair, ring.slots, self.low) else {
                break;
            };
            let completion = completion(self.number, request, completed);
            broken |= completion.status != CompletionStatus::Success;
            completions.push(completion);
            self.window.pop_front();
            self.low += 1;
        }
        broken
    }

    fn flush(&mut self, completions: &mut Vec<RawCompletion>, limit: usize) {
        let count = self.window.len().min(limit);
        self.low += count as u64;
        for request in self.window.drain(..count) {
            completions.push(flushed(self.number, request));
        }
    }
}
