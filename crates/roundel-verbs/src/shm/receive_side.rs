//! The receive queue of a queue pair: what its owner posted, and what came.

use super::connected_ring::{self, Completed, Posted};
use super::datagram_ring::{self, Slot};
use super::device::DeviceState;
use super::layout::{HAS_IMMEDIATE, PairEntry, SlotEntry, TOO_LONG};
use super::sync::Ordering;
use crate::counters::{Counters, Opcode};
use crate::provider::RawCompletion;
use crate::queue_pair::Transport;
use crate::work::CompletionStatus;
use std::collections::VecDeque;

/// A receive as this process posted it: what the ring says is not believed.
#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    posted: Posted,
}

/// The owner's side of a receive ring.
pub(super) struct ReceiveSide {
    transport: Transport,
    number: u32,
    incarnation: u32,
    slots: usize,
    /// Sequence number of the first request of `window`.
    low: u64,
    /// Requests in posting order; `None` once completed (datagrams complete in any order).
    window: VecDeque<Option<Request>>,
}

/// A ring as it lies in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    pub pair: &'a PairEntry,
    pub slots: &'a [SlotEntry],
}

impl ReceiveSide {
    pub(super) fn new(transport: Transport, number: u32, incarnation: u32, slots: usize) -> Self {
        Self {
            transport,
            number,
            incarnation,
            slots,
            low: 0,
            window: VecDeque::new(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.window.len() >= self.slots
    }

    /// Posts a receive; the caller has checked that the queue is not full.
    pub(super) fn post(&mut self, ring: Ring<'_>, id: u64, posted: Posted) {
        let sequence = self.low + self.window.len() as u64;
        self.window.push_back(Some(Request { id, posted }));
        match self.transport {
            Transport::ReliableConnection => {
                connected_ring::post(ring.pair, ring.slots, sequence, posted);
            }
            Transport::UnreliableDatagram => {
                datagram_ring::post(ring.pair, ring.slots, self.incarnation, sequence, posted);
            }
        }
    }

    /// Appends at most `limit` completions. Returns true when one of them breaks the queue pair.
    pub(super) fn poll(
        &mut self,
        ring: Ring<'_>,
        device: &DeviceState,
        counters: &Counters,
        completions: &mut Vec<RawCompletion>,
        limit: usize,
    ) -> bool {
        match self.transport {
            Transport::ReliableConnection => {
                self.poll_connected(ring, device, counters, completions, limit)
            }
            Transport::UnreliableDatagram => {
                self.poll_datagrams(ring, device, counters, completions, limit);
                false
            }
        }
    }

    fn poll_connected(
        &mut self,
        ring: Ring<'_>,
        device: &DeviceState,
        counters: &Counters,
        completions: &mut Vec<RawCompletion>,
        limit: usize,
    ) -> bool {
        let mut broken = false;
        for _ in 0..limit {
            if self.window.is_empty() {
                break;
            }
            let Some(completed) = connected_ring::poll(ring.pair, ring.slots, self.low) else {
                break;
            };
            let Some(request) = self.window.pop_front().flatten() else {
                break;
            };
            self.low += 1;
            let completion = self.completion(request, completed);
            broken |= completion.status != CompletionStatus::Success;
            count(device, counters, &completion);
            completions.push(completion);
        }
        broken
    }

    fn poll_datagrams(
        &mut self,
        ring: Ring<'_>,
        device: &DeviceState,
        counters: &Counters,
        completions: &mut Vec<RawCompletion>,
        limit: usize,
    ) {
        let mut found = 0;
        let mut index = 0;
        let mut recovered = Vec::new();
        while found < limit && index < self.window.len() {
            let sequence = self.low + index as u64;
            let Some(request) = self.window[index] else {
                index += 1;
                continue;
            };
            let mut slot = datagram_ring::look(ring.slots, self.incarnation, sequence);
            if let Slot::Claimed(token) = slot
                && device.token_is_dead(token)
            {
                // It may have completed between the look and its death.
                slot = datagram_ring::look(ring.slots, self.incarnation, sequence);
                if matches!(slot, Slot::Claimed(_)) {
                    self.window[index] = None;
                    recovered.push(request);
                    index += 1;
                    continue;
                }
            }
            match slot {
                Slot::Done(completed) => {
                    self.window[index] = None;
                    let completion = self.completion(request, completed);
                    count(device, counters, &completion);
                    completions.push(completion);
                    found += 1;
                }
                Slot::Claimed(_) => {}
                // Claims go in order: nobody is behind an unclaimed slot.
                Slot::Posted => break,
            }
            index += 1;
        }
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.low += 1;
        }
        for request in recovered {
            self.post(ring, request.id, request.posted);
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
        let mut found = 0;
        for index in 0..self.window.len() {
            if found == limit {
                break;
            }
            let Some(request) = self.window[index] else {
                continue;
            };
            let sequence = self.low + index as u64;
            let ours = match self.transport {
                Transport::ReliableConnection => true,
                Transport::UnreliableDatagram => {
                    datagram_ring::revoke(ring.slots, self.incarnation, sequence)
                }
            };
            if ours {
                self.window[index] = None;
                completions.push(RawCompletion {
                    id: request.id,
                    queue_pair: self.number,
                    status: CompletionStatus::Flushed,
                    opcode: Opcode::Receive,
                    bytes: 0,
                    immediate: None,
                    source_queue_pair: 0,
                });
                found += 1;
            }
        }
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.low += 1;
        }
    }

    /// Datagrams, when the queue pair is destroyed: takes back what nobody has claimed, and says
    /// which peers are still inside a receive.
    pub(super) fn revoke_all(&mut self, ring: Ring<'_>) -> Vec<(u64, u32)> {
        if self.transport == Transport::ReliableConnection {
            return Vec::new();
        }
        let mut busy = Vec::new();
        for index in 0..self.window.len() {
            let sequence = self.low + index as u64;
            if self.window[index].is_none()
                || datagram_ring::revoke(ring.slots, self.incarnation, sequence)
            {
                continue;
            }
            if let Slot::Claimed(token) =
                datagram_ring::look(ring.slots, self.incarnation, sequence)
            {
                busy.push((sequence, token));
            }
        }
        busy
    }

    fn completion(&self, request: Request, completed: Completed) -> RawCompletion {
        let too_long = completed.flags & TOO_LONG != 0
            || (completed.flags & HAS_IMMEDIATE == 0 && completed.bytes > request.posted.length);
        RawCompletion {
            id: request.id,
            queue_pair: self.number,
            status: if too_long {
                CompletionStatus::LocalLength
            } else {
                CompletionStatus::Success
            },
            opcode: Opcode::Receive,
            bytes: if too_long { 0 } else { completed.bytes as usize },
            immediate: (completed.flags & HAS_IMMEDIATE != 0).then_some(completed.immediate),
            source_queue_pair: completed.source_pair,
        }
    }
}

fn count(device: &DeviceState, counters: &Counters, completion: &RawCompletion) {
    counters.add(Opcode::Receive, completion.bytes);
    device.counters.add(Opcode::Receive, completion.bytes);
}

/// Whether the state word of a queue pair says that the peer broke it off.
pub(super) fn peer_broke(pair: &PairEntry) -> bool {
    pair.state.load(Ordering::Acquire) == super::layout::PAIR_ERROR
}
