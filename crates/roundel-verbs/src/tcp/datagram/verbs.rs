//! The verbs of a datagram queue pair, which the object model calls.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use super::{DatagramPair, ERROR, INIT, READY};
use crate::address::QueuePairAddress;
use crate::counters::Counters;
use crate::error::{Result, VerbsError};
use crate::memory::Buffer;
use crate::multicast::MulticastGroup;
use crate::provider::{ProviderQueuePair, RawReceiveRequest, RawSendRequest};
use crate::queue_pair::QueuePairState;
use crate::tcp::state::{longer_than, no_multicast};
use crate::work::CompletionStatus;
use std::sync::atomic::Ordering;

impl ProviderQueuePair for DatagramPair {
    fn address(&self) -> QueuePairAddress {
        QueuePairAddress {
            device: self.device.address.encode(),
            number: self.number,
            incarnation: self.incarnation,
            queue_key: self.queue_key,
        }
    }

    fn state(&self) -> QueuePairState {
        match self.state.load(Ordering::Acquire) {
            INIT => QueuePairState::Init,
            READY => QueuePairState::ReadyToSend,
            _ => QueuePairState::Error,
        }
    }

    fn connect(&self, _remote: Option<&QueuePairAddress>) -> Result<()> {
        let mut receives = self.receives.lock();
        if !self.is(INIT) {
            return Err(VerbsError::InvalidState {
                verb: "activating",
                state: self.state(),
            });
        }
        self.drop_early(&mut receives);
        self.state.store(READY, Ordering::Release);
        Ok(())
    }

    fn modify_to_error(&self) {
        let mut receives = self.receives.lock();
        // Datagrams that have arrived before are delivered, even if nobody has read them from the socket.
        while !receives.requests.is_empty() && self.read_one(&mut receives) {}
        self.break_with(&mut receives);
    }

    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize> {
        if self.is(INIT) {
            return Err(VerbsError::InvalidState {
                verb: "posting to the send queue",
                state: QueuePairState::Init,
            });
        }
        longer_than(self.device.capabilities.ud_message_bytes_max, requests)?;
        let mut sends = self.sends.lock();
        let mut broken = sends.broken;
        let mut breaks = false;
        for request in requests {
            if broken {
                let status = CompletionStatus::Flushed;
                let flushed = self.send_completion(request.id, status, 0);
                sends.completed.push(flushed);
                continue;
            }
            match self.waiting(request) {
                Some(one) => sends.waiting.push_back(one),
                None => {
                    // Datagrams in front of it go first.
                    self.send_waiting(&mut sends);
                    let status = CompletionStatus::LocalProtection;
                    let failed = self.send_completion(request.id, status, 0);
                    sends.completed.push(failed);
                    (broken, breaks) = (true, true);
                }
            }
        }
        if broken {
            self.send_queue.push(&mut sends.completed);
        } else {
            self.send_waiting(&mut sends);
        }
        drop(sends);
        if breaks {
            self.break_off();
        }
        Ok(requests.len())
    }

    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        let mut receives = self.receives.lock();
        if receives.broken {
            let flushed = CompletionStatus::Flushed;
            let mut flushed = requests
                .iter()
                .map(|request| self.failed_receive(request.id, flushed))
                .collect();
            self.receive_queue.push(&mut flushed);
            return Ok(requests.len());
        }
        if receives.requests.is_empty() {
            // Datagrams that came before found no receive.
            self.drop_early(&mut receives);
        }
        let room = self.receive_depth - receives.requests.len().min(self.receive_depth);
        let count = room.min(requests.len());
        let new = requests
            .iter()
            .take(count)
            .map(|request| RawReceiveRequest {
                id: request.id,
                local: request.local,
            });
        receives.requests.extend(new);
        Ok(count)
    }

    fn join_multicast(&self, _group: &MulticastGroup) -> Result<()> {
        Err(no_multicast(&self.device))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn destroy(&self, posted: Vec<Buffer>) {
        {
            let mut receives = self.receives.lock();
            self.state.store(ERROR, Ordering::Release);
            receives.broken = true;
            receives.requests.clear();
            let mut sends = self.sends.lock();
            sends.broken = true;
            sends.waiting.clear();
        }
        self.device.forget(self.token());
        self.send_queue.detach(self.number);
        self.receive_queue.detach(self.number);
        self.device.forget_datagrams(self.number, &self.counters);
        // Nobody is inside them: a thread that reads the socket holds the lock, and finds them gone.
        drop(posted);
    }
}
