//! The receives of a datagram queue pair, which complete in any order.
//!
//! Peers claim receives in order but finish when they like, or never when they die or are
//! stopped. A receive that stays claimed keeps its slot; posting passes that slot by, so that a
//! stopped peer costs the others one receive and not the queue.

use super::datagram_ring::{self, Slot};
use super::device::DeviceState;
use super::receive::{Request, Ring, completion, flushed};
use super::visitor::Claim;
use crate::provider::RawCompletion;

pub(super) struct DatagramReceives {
    number: u32,
    incarnation: u32,
    /// By slot: what is posted there, under which sequence number.
    requests: Box<[Option<(u64, Request)>]>,
    /// How many of `requests` there are.
    posted: usize,
    /// The sequence number to post next.
    next: u64,
    /// The first sequence number that was not claimed when it was last looked at.
    front: u64,
    /// Below `front`: those that were claimed and not done then, in order.
    claimed: Vec<u64>,
}

/// What a look at a receive finds.
enum Found {
    Message(RawCompletion),
    /// A peer died in it: the receive is as if never claimed.
    Abandoned(Request),
    Busy,
    Unclaimed,
    /// The sequence number was passed by, or is over.
    Nothing,
}

impl DatagramReceives {
    pub(super) fn new(number: u32, incarnation: u32, slots: usize) -> Self {
        Self {
            number,
            incarnation,
            requests: vec![None; slots].into(),
            posted: 0,
            next: 0,
            front: 0,
            claimed: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.posted
    }

    fn slot(&self, sequence: u64) -> usize {
        sequence as usize % self.requests.len()
    }

    fn request(&self, sequence: u64) -> Option<Request> {
        match self.requests[self.slot(sequence)] {
            Some((at, request)) if at == sequence => Some(request),
            // Passed by, or completed.
            _ => None,
        }
    }

    fn take(&mut self, sequence: u64) {
        let slot = self.slot(sequence);
        self.requests[slot] = None;
        self.posted -= 1;
    }

    pub(super) fn post(&mut self, ring: Ring<'_>, request: Request) {
        assert!(
            self.posted < self.requests.len(),
            "the caller has checked that there is room"
        );
        while self.requests[self.slot(self.next)].is_some() {
            self.next += 1;
        }
        let sequence = self.next;
        let slot = self.slot(sequence);
        self.requests[slot] = Some((sequence, request));
        self.posted += 1;
        self.next += 1;
        datagram_ring::post(
            ring.pair,
            ring.slots,
            self.incarnation,
            sequence,
            request.posted,
        );
    }

    pub(super) fn poll(
        &mut self,
        ring: Ring<'_>,
        device: &DeviceState,
        completions: &mut Vec<RawCompletion>,
        limit: usize,
    ) {
        let mut found = 0;
        let mut recovered = Vec::new();
        let mut claimed = std::mem::take(&mut self.claimed);
        claimed.retain(|&sequence| {
            if found == limit {
                return true;
            }
            match self.look(ring, device, sequence) {
                Found::Message(message) => {
                    completions.push(message);
                    found += 1;
                    false
                }
                Found::Abandoned(request) => {
                    recovered.push(request);
                    false
                }
                Found::Busy => true,
                Found::Unclaimed | Found::Nothing => false,
            }
        });
        self.claimed = claimed;
        while found < limit && self.front < self.next {
            match self.look(ring, device, self.front) {
                Found::Message(message) => {
                    completions.push(message);
                    found += 1;
                }
                Found::Abandoned(request) => recovered.push(request),
                Found::Busy => self.claimed.push(self.front),
                // Claims go in order: nobody is behind an unclaimed slot.
                Found::Unclaimed => break,
                Found::Nothing => {}
            }
            self.front += 1;
        }
        for request in recovered {
            self.post(ring, request);
        }
    }

    /// Looks at a receive, and takes it out if it is over.
    fn look(&mut self, ring: Ring<'_>, device: &DeviceState, sequence: u64) -> Found {
        let Some(request) = self.request(sequence) else {
            return Found::Nothing;
        };
        let mut slot = datagram_ring::look(ring.slots, self.incarnation, sequence);
        if let Slot::Claimed(token) = slot
            && device.peers.token_is_dead(token)
        {
            // It may have completed between the look and its death.
            slot = datagram_ring::look(ring.slots, self.incarnation, sequence);
            if let Slot::Claimed(_) = slot {
                self.take(sequence);
                return Found::Abandoned(request);
            }
        }
        match slot {
            Slot::Done(completed) => {
                self.take(sequence);
                Found::Message(completion(self.number, &request, completed))
            }
            Slot::Claimed(_) => Found::Busy,
            Slot::Posted => Found::Unclaimed,
        }
    }

    /// Flushes what nobody has claimed.
    pub(super) fn flush(
        &mut self,
        ring: Ring<'_>,
        completions: &mut Vec<RawCompletion>,
        limit: usize,
    ) {
        let mut found = 0;
        while found < limit && self.front < self.next {
            let sequence = self.front;
            if let Some(request) = self.request(sequence) {
                if datagram_ring::revoke(ring.slots, self.incarnation, sequence) {
                    self.take(sequence);
                    completions.push(flushed(self.number, request));
                    found += 1;
                } else {
                    self.claimed.push(sequence);
                }
            }
            self.front += 1;
        }
    }

    pub(super) fn revoke_all(&mut self, ring: Ring<'_>, ring_at: u64) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (sequence, _) in self.requests.iter().flatten() {
            if datagram_ring::revoke(ring.slots, self.incarnation, *sequence) {
                continue;
            }
            if let Slot::Claimed(token) =
                datagram_ring::look(ring.slots, self.incarnation, *sequence)
            {
                claims.push(Claim {
                    ring_at,
                    ring_slots: ring.slots.len() as u32,
                    incarnation: self.incarnation,
                    sequence: *sequence,
                    token,
                });
            }
        }
        claims
    }
}
