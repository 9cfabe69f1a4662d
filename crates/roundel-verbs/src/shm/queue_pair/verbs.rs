//! The verbs of a queue pair, which the object model calls.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use super::{ShmQueuePair, ring_bytes};
use crate::address::QueuePairAddress;
use crate::counters::Counters;
use crate::error::{Result, VerbsError};
use crate::memory::{Buffer, RemoteAddress};
use crate::multicast::MulticastGroup;
use crate::provider::{ProviderQueuePair, RawReceiveRequest, RawSendRequest};
use crate::queue_pair::{QueuePairState, Transport};
use crate::shm::connected_ring;
use crate::shm::device::{DeviceState, Pair};
use crate::shm::layout::{PAIR_ERROR, PAIR_INIT, PAIR_READY, PAIR_RESET, life};
use crate::shm::receive::Request;
use crate::shm::send_side::{Remote, identity};
use crate::shm::sync::Ordering;
use crate::work::CompletionStatus;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::fence;

impl ProviderQueuePair for ShmQueuePair {
    fn address(&self) -> QueuePairAddress {
        QueuePairAddress {
            device: self.device.address.encode(),
            number: self.number,
            incarnation: self.incarnation,
            queue_key: self.queue_key,
        }
    }

    fn state(&self) -> QueuePairState {
        self.check_peer();
        match self.state.load(Ordering::Acquire) {
            PAIR_INIT => QueuePairState::Init,
            PAIR_READY => QueuePairState::ReadyToSend,
            _ => QueuePairState::Error,
        }
    }

    fn connect(&self, remote: Option<&QueuePairAddress>) -> Result<()> {
        let refused = || VerbsError::InvalidState {
            verb: "connecting",
            state: self.state(),
        };
        if !self.is(PAIR_INIT) {
            return Err(refused());
        }
        if let Some(address) = remote {
            let remote = Remote {
                reliable: self.transport == Transport::ReliableConnection,
                peer: self.device.peer(&address.device)?,
                number: address.number,
                incarnation: address.incarnation,
                identity: identity(self.number, self.incarnation),
            };
            self.remote.set(remote).map_err(|_| refused())?;
            self.entry().peer_pair.store(
                identity(address.number, address.incarnation),
                Ordering::Relaxed,
            );
        }
        {
            let _send = self.send.lock();
            if !self.is(PAIR_INIT) {
                return Err(refused());
            }
            self.state.store(PAIR_READY, Ordering::Release);
            self.entry()
                .life
                .store(life(self.incarnation, PAIR_READY), Ordering::Release);
        }
        // Pairs with the fence in `DeviceState::peer_died`: either it finds our remote or we see
        // that it is dead.
        fence(Ordering::SeqCst);
        if let Some(remote) = self.remote.get()
            && remote.reliable
            && remote.peer.is_dead()
        {
            self.break_off(&mut self.send.lock());
        }
        // The peer may have sent before this side was ready.
        self.wake_waiting_peer();
        Ok(())
    }

    fn modify_to_error(&self) {
        self.break_off(&mut self.send.lock());
    }

    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize> {
        if self.is(PAIR_INIT) {
            return Err(VerbsError::InvalidState {
                verb: "posting to the send queue",
                state: QueuePairState::Init,
            });
        }
        let limit = match self.transport {
            Transport::UnreliableDatagram => self.device.capabilities.ud_message_bytes_max,
            _ => self.device.capabilities.rc_message_bytes_max,
        };
        if let Some(request) = requests.iter().find(|request| request.local.length > limit) {
            return Err(VerbsError::InvalidRequest(format!(
                "a message of {} bytes, at most {limit} fit",
                request.local.length
            )));
        }
        self.check_peer();
        let mut send = self.send.lock();
        let mut posted = self.write_together(&mut send, requests);
        for request in &requests[posted..] {
            if self.outstanding.load(Ordering::Acquire) >= self.send_depth {
                break;
            }
            self.outstanding.fetch_add(1, Ordering::AcqRel);
            posted += 1;
            self.carry_out(&mut send, request);
        }
        drop(send);
        if posted > 0 {
            self.send_queue.kick();
        }
        Ok(posted)
    }

    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        let mut receive = self.receive.lock();
        let room = self.ring_slots as usize - receive.len();
        let mut checked = Vec::with_capacity(room.min(requests.len()));
        for request in requests.iter().take(room) {
            checked.push(Request {
                id: request.id,
                posted: self.device.receive_memory(&request.local)?,
            });
        }
        // Nothing fails from here on, because an error refuses the whole request.
        let posted = checked.len();
        let ring = self.ring();
        for request in checked {
            receive.post(ring, request);
        }
        drop(receive);
        if self.is(PAIR_ERROR) {
            self.receive_queue.kick();
        } else {
            self.wake_waiting_peer();
        }
        Ok(posted)
    }

    fn read_at_once(
        &self,
        from: RemoteAddress,
        target: &mut [MaybeUninit<u8>],
    ) -> Option<CompletionStatus> {
        Some(self.copy_from_peer(from, target))
    }

    fn join_multicast(&self, _group: &MulticastGroup) -> Result<()> {
        Err(VerbsError::Unsupported {
            provider: self.device.capabilities.provider,
            what: "multicast",
        })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn destroy(&self, posted: Vec<Buffer>) {
        {
            let mut send = self.send.lock();
            connected_ring::close(self.entry(), self.incarnation, PAIR_RESET);
            self.state.store(PAIR_ERROR, Ordering::Release);
            send.pending.clear();
            self.has_pending.store(false, Ordering::Release);
        }
        self.send_queue.detach(self.number);
        self.receive_queue.detach(self.number);
        self.device.forget_pair(self.number, &self.counters);
        // A peer that waits for a receive here learns that there will be none.
        if let Some(remote) = self.remote.get() {
            remote.kick_sends();
        }
        let claims = self.receive.lock().revoke_all(self.ring(), self.ring_at);
        let memory = PairMemory {
            device: self.device.clone(),
            number: self.number,
            ring_at: self.ring_at,
            ring_slots: self.ring_slots,
            _buffers: posted,
        };
        self.device
            .retire(self.visitor().into_iter().collect(), claims, memory);
    }
}

/// What a queue pair leaves behind.
struct PairMemory {
    device: Arc<DeviceState>,
    number: u32,
    ring_at: u64,
    ring_slots: u32,
    _buffers: Vec<Buffer>,
}

impl Drop for PairMemory {
    fn drop(&mut self) {
        self.device
            .free_ring(self.ring_at, ring_bytes(self.ring_slots));
        self.device.free_pairs.lock().push_back(self.number);
    }
}
