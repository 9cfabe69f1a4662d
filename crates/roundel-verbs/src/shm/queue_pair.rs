//! Queue pairs of the `shm` provider: the state machine around a send and a receive queue.
#![allow(unsafe_code)] // Implements the provider's unsafe post verbs.

use super::completion_queue::ShmCompletionQueue;
use super::connected_ring;
use super::datagram_ring::{self, Slot};
use super::device::DeviceState;
use super::layout::{
    PAIR_ERROR, PAIR_INIT, PAIR_READY, PAIR_RESET, PairEntry, QUEUE_PAIRS_MAX, SlotEntry,
};
use super::peer::Peer;
use super::receive_side::{ReceiveSide, Ring, peer_broke};
use super::send_side::{Outcome, Remote, Transfer, identity};
use super::sync::Ordering;
use crate::address::QueuePairAddress;
use crate::counters::Counters;
use crate::error::{Result, VerbsError};
use crate::memory::Buffer;
use crate::provider::{
    ProviderAddressHandle, ProviderCompletionQueue, ProviderQueuePair, RawCompletion,
    RawQueuePairOptions, RawReceiveRequest, RawSendRequest,
};
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::CompletionStatus;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// `rnr_retry` of a queue pair that waits for a receive without end, as on real devices.
const RETRY_WITHOUT_END: u8 = 7;
/// How long one retry lasts.
const RNR_TIMER: Duration = Duration::from_millis(10);
/// How long a destroyed queue pair waits for a peer to leave its memory before it leaves the
/// memory behind.
const QUIESCE_SPINS: usize = 10_000;

/// A UD destination.
pub(super) struct ShmAddressHandle {
    pub peer: Arc<Peer>,
    pub number: u32,
    pub incarnation: u32,
    pub queue_key: u32,
}

impl ProviderAddressHandle for ShmAddressHandle {}

pub(super) struct ShmQueuePair {
    device: Arc<DeviceState>,
    number: u32,
    incarnation: u32,
    transport: Transport,
    queue_key: u32,
    ring_at: u64,
    ring_slots: u32,
    send_depth: usize,
    rnr_retry: u8,
    send_queue: Arc<ShmCompletionQueue>,
    receive_queue: Arc<ShmCompletionQueue>,
    /// The truth; the word in shared memory is for peers, who may spoil it.
    state: AtomicU32,
    remote: OnceLock<Remote>,
    send: Mutex<SendSide>,
    has_pending: AtomicBool,
    /// Sends whose completion has not been polled.
    outstanding: AtomicUsize,
    receive: Mutex<ReceiveSide>,
    counters: Counters,
}

/// Sends that wait for a receiver, in order.
struct SendSide {
    pending: VecDeque<(Transfer, Instant)>,
    /// Receives of the peer used so far.
    taken: u64,
}

impl ShmQueuePair {
    pub(super) fn create(
        device: &Arc<DeviceState>,
        options: RawQueuePairOptions,
    ) -> Result<Arc<Self>> {
        let send_queue = queue_of_this_provider(options.send_queue)?;
        let receive_queue = queue_of_this_provider(options.receive_queue)?;
        let ring_slots = options.receive_depth.max(1) as u32;
        let ring_at = device.allocate_ring(ring_bytes(ring_slots))?;
        let Some(number) = device.free_pairs.lock().pop_front() else {
            device.free_ring(ring_at, ring_bytes(ring_slots));
            return Err(VerbsError::DeviceLimit {
                what: "queue pairs",
                requested: QUEUE_PAIRS_MAX,
                limit: QUEUE_PAIRS_MAX - 1,
            });
        };
        let incarnation = device.new_incarnation();
        let pair = Arc::new(Self {
            device: device.clone(),
            number,
            incarnation,
            transport: options.transport,
            queue_key: options.queue_key,
            ring_at,
            ring_slots,
            send_depth: options.send_depth.max(1),
            rnr_retry: options.rnr_retry,
            send_queue,
            receive_queue,
            state: AtomicU32::new(PAIR_INIT),
            remote: OnceLock::new(),
            send: Mutex::new(SendSide {
                pending: VecDeque::new(),
                taken: 0,
            }),
            has_pending: AtomicBool::new(false),
            outstanding: AtomicUsize::new(0),
            receive: Mutex::new(ReceiveSide::new(
                options.transport,
                number,
                incarnation,
                ring_slots as usize,
            )),
            counters: Counters::default(),
        });
        let entry = pair.entry();
        datagram_ring::reset(entry, incarnation);
        if options.transport == Transport::ReliableConnection {
            entry.taken.store(0, Ordering::Relaxed);
        }
        entry.queue_key.store(options.queue_key, Ordering::Relaxed);
        entry
            .receive_queue
            .store(pair.receive_queue.index, Ordering::Relaxed);
        entry
            .send_queue
            .store(pair.send_queue.index, Ordering::Relaxed);
        entry.ring_at.store(ring_at, Ordering::Relaxed);
        entry.ring_slots.store(ring_slots, Ordering::Relaxed);
        entry.peer_pair.store(0, Ordering::Relaxed);
        entry.peer_active.store(0, Ordering::Relaxed);
        entry.peer_waiting.store(0, Ordering::Relaxed);
        entry.incarnation.store(incarnation, Ordering::Release);
        entry.state.store(PAIR_INIT, Ordering::Release);
        pair.send_queue.attach(Some(&pair), None);
        pair.receive_queue.attach(None, Some(&pair));
        device
            .pairs
            .write()
            .insert(number, Arc::downgrade(&pair));
        Ok(pair)
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    fn entry(&self) -> &PairEntry {
        self.device
            .mapping
            .pair(self.number as usize)
            .expect("the number came from the free list")
    }

    fn slots(&self) -> &[SlotEntry] {
        self.device
            .mapping
            .slots(self.ring_at, self.ring_slots)
            .expect("the ring was allocated where rings lie")
    }

    fn ring(&self) -> Ring<'_> {
        Ring {
            pair: self.entry(),
            slots: self.slots(),
        }
    }

    fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    /// Notices when the peer broke the connection off.
    fn check_peer(&self) {
        if !self.is(PAIR_ERROR) && peer_broke(self.entry()) {
            self.break_off();
        }
    }

    /// Goes to the error state: pending sends are flushed, posted receives by the next polls.
    fn break_off(&self) {
        let mut send = self.send.lock();
        self.break_off_locked(&mut send);
    }

    fn break_off_locked(&self, send: &mut SendSide) {
        if self.state.swap(PAIR_ERROR, Ordering::AcqRel) == PAIR_ERROR {
            return;
        }
        self.entry().state.store(PAIR_ERROR, Ordering::SeqCst);
        for (transfer, _) in send.pending.drain(..) {
            self.complete(&transfer, CompletionStatus::Flushed);
        }
        self.has_pending.store(false, Ordering::Release);
        self.send_queue.kick();
        self.receive_queue.kick();
    }

    /// Breaks the queue pair if `peer` is at its other end; else wakes it to look after its
    /// receives, one of which the peer may have died in.
    pub(super) fn peer_died(&self, peer: &Arc<Peer>) {
        match self.transport {
            Transport::ReliableConnection => {
                if self
                    .remote
                    .get()
                    .is_some_and(|remote| Arc::ptr_eq(&remote.peer, peer))
                {
                    self.break_off();
                }
            }
            Transport::UnreliableDatagram => self.receive_queue.kick(),
        }
    }

    fn complete(&self, transfer: &Transfer, status: CompletionStatus) {
        let bytes = transfer.bytes();
        let opcode = transfer.operation.opcode();
        if status == CompletionStatus::Success {
            self.counters.add(opcode, bytes);
            self.device.counters.add(opcode, bytes);
        }
        self.send_queue.push(RawCompletion {
            id: transfer.id,
            queue_pair: self.number,
            status,
            opcode,
            bytes,
            immediate: None,
            source_queue_pair: 0,
        });
    }

    pub(super) fn send_polled(&self) {
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
    }

    /// Tries the sends again that waited for the receiver.
    pub(super) fn progress(&self) {
        if !self.has_pending.load(Ordering::Acquire) {
            return;
        }
        let mut send = self.send.lock();
        let Some(remote) = self.remote.get() else {
            return;
        };
        while let Some((transfer, since)) = send.pending.pop_front() {
            let mut taken = send.taken;
            let outcome = transfer.over_connection(&self.device, remote, &mut taken);
            send.taken = taken;
            match outcome {
                Outcome::Done(status) => {
                    self.complete(&transfer, status);
                    if status != CompletionStatus::Success {
                        self.break_off_locked(&mut send);
                        return;
                    }
                }
                Outcome::NotReady => {
                    let limit = RNR_TIMER * u32::from(self.rnr_retry);
                    if self.rnr_retry != RETRY_WITHOUT_END && since.elapsed() >= limit {
                        self.complete(&transfer, CompletionStatus::ReceiverNotReady);
                        self.break_off_locked(&mut send);
                    } else {
                        send.pending.push_front((transfer, since));
                    }
                    break;
                }
            }
        }
        self.has_pending
            .store(!send.pending.is_empty(), Ordering::Release);
    }

    pub(super) fn poll_receives(&self, completions: &mut Vec<RawCompletion>, limit: usize) {
        self.check_peer();
        let ring = self.ring();
        let broken_off = self.is(PAIR_ERROR);
        // Whether a peer is inside must be known before the ring is read for the last time.
        let quiescent = broken_off && self.peer_is_outside();
        let before = completions.len();
        let mut receive = self.receive.lock();
        let broken = receive.poll(ring, &self.device, &self.counters, completions, limit);
        let room = limit - (completions.len() - before);
        if quiescent && room > 0 {
            receive.flush(ring, completions, room);
        }
        drop(receive);
        if broken {
            self.break_off();
        }
    }

    fn peer_is_outside(&self) -> bool {
        connected_ring::quiescent(self.entry())
            || self
                .remote
                .get()
                .is_none_or(|remote| remote.peer.is_dead())
    }
}

fn queue_of_this_provider(
    queue: Arc<dyn ProviderCompletionQueue>,
) -> Result<Arc<ShmCompletionQueue>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = queue;
    any.downcast().map_err(|_| {
        VerbsError::InvalidRequest("a completion queue of another provider".into())
    })
}

fn ring_bytes(slots: u32) -> usize {
    (slots as usize * size_of::<SlotEntry>()).next_multiple_of(super::layout::PAGE)
}

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
        if !self.is(PAIR_INIT) {
            return Err(VerbsError::InvalidState {
                verb: "connecting",
                state: self.state(),
            });
        }
        if let Some(address) = remote {
            let peer = self.device.peer(&address.device)?;
            self.entry().peer_pair.store(
                identity(address.number, address.incarnation),
                Ordering::Relaxed,
            );
            let remote = Remote {
                peer,
                number: address.number,
                incarnation: address.incarnation,
                identity: identity(self.number, self.incarnation),
            };
            if self.remote.set(remote).is_err() {
                return Err(VerbsError::InvalidState {
                    verb: "connecting",
                    state: self.state(),
                });
            }
        }
        self.state.store(PAIR_READY, Ordering::Release);
        self.entry().state.store(PAIR_READY, Ordering::SeqCst);
        if let Some(remote) = self.remote.get() {
            if remote.peer.is_dead() {
                self.break_off();
            }
            // The peer may have sent before this side was ready.
            self.wake_waiting_peer(remote);
        }
        Ok(())
    }

    fn modify_to_error(&self) {
        self.break_off();
    }

    unsafe fn post_send(&self, requests: &[RawSendRequest]) -> Result<usize> {
        if self.is(PAIR_INIT) {
            return Err(VerbsError::InvalidState {
                verb: "posting to the send queue",
                state: QueuePairState::Init,
            });
        }
        let limit = match self.transport {
            Transport::ReliableConnection => self.device.capabilities.rc_message_bytes_max,
            Transport::UnreliableDatagram => self.device.capabilities.ud_message_bytes_max,
        };
        for request in requests {
            if request.local.length > limit {
                return Err(VerbsError::InvalidRequest(format!(
                    "a message of {} bytes, at most {limit} fit",
                    request.local.length
                )));
            }
        }
        self.check_peer();
        let mut posted = 0;
        let mut send = self.send.lock();
        for request in requests {
            if self.outstanding.load(Ordering::Acquire) >= self.send_depth {
                break;
            }
            self.outstanding.fetch_add(1, Ordering::AcqRel);
            posted += 1;
            let transfer = Transfer {
                id: request.id,
                operation: request.operation,
                inline: request.inline,
                local: request.local,
                destination: request.destination.clone(),
            };
            self.carry_out(&mut send, transfer);
        }
        drop(send);
        if posted > 0 {
            self.send_queue.kick();
        }
        Ok(posted)
    }

    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        let mut posted = 0;
        {
            let ring = self.ring();
            let mut receive = self.receive.lock();
            for request in requests {
                if receive.is_full() {
                    break;
                }
                let at = if request.local.length == 0 {
                    0
                } else {
                    self.device
                        .local_offset(
                            request.local.address,
                            request.local.length,
                            request.local.local_key,
                        )
                        .ok_or_else(|| {
                            VerbsError::InvalidRequest(
                                "a receive into memory that its local key does not cover".into(),
                            )
                        })?
                };
                let where_to = connected_ring::Posted {
                    at,
                    length: u32::try_from(request.local.length).map_err(|_| {
                        VerbsError::InvalidRequest("a receive of 4 GiB or more".into())
                    })?,
                };
                receive.post(ring, request.id, where_to);
                posted += 1;
            }
        }
        if self.is(PAIR_ERROR) {
            self.receive_queue.kick();
        } else if let Some(remote) = self.remote.get() {
            self.wake_waiting_peer(remote);
        }
        Ok(posted)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn destroy(&self, posted: Vec<Buffer>) {
        {
            let mut send = self.send.lock();
            self.state.store(PAIR_ERROR, Ordering::Release);
            send.pending.clear();
            self.has_pending.store(false, Ordering::Release);
        }
        self.send_queue.detach(self.number);
        self.receive_queue.detach(self.number);
        self.device.pairs.write().remove(&self.number);
        self.entry().state.store(PAIR_RESET, Ordering::SeqCst);
        // A peer that waits for a receive here learns that there will be none.
        if let Some(remote) = self.remote.get()
            && let Some(pair) = remote.pair()
        {
            remote.peer.kick(pair.send_queue.load(Ordering::Relaxed));
            remote.peer.kick(pair.receive_queue.load(Ordering::Relaxed));
        }
        let busy = self.receive.lock().revoke_all(self.ring());
        let retired = Retired {
            device: self.device.clone(),
            number: self.number,
            incarnation: self.incarnation,
            ring_at: self.ring_at,
            ring_slots: self.ring_slots,
            peer: self.remote.get().map(|remote| remote.peer.clone()),
            busy,
            _buffers: posted,
        };
        for _ in 0..QUIESCE_SPINS {
            if retired.quiescent(&self.device) {
                return;
            }
            std::hint::spin_loop();
        }
        self.device.retired.lock().push(retired);
    }
}

impl ShmQueuePair {
    fn carry_out(&self, send: &mut SendSide, transfer: Transfer) {
        if self.is(PAIR_ERROR) {
            self.complete(&transfer, CompletionStatus::Flushed);
            return;
        }
        match (self.transport, self.remote.get()) {
            (Transport::UnreliableDatagram, _) | (_, None) => {
                let status = transfer.as_datagram(&self.device, self.number);
                self.complete(&transfer, status);
                if status != CompletionStatus::Success {
                    self.break_off_locked(send);
                }
            }
            (Transport::ReliableConnection, Some(remote)) => {
                // In order: nothing overtakes what waits, but for READs and WRITEs there is
                // nothing to wait for once the queue before them is empty.
                if !send.pending.is_empty() {
                    send.pending.push_back((transfer, now()));
                    return;
                }
                let mut taken = send.taken;
                let outcome = transfer.over_connection(&self.device, remote, &mut taken);
                send.taken = taken;
                match outcome {
                    Outcome::Done(status) => {
                        self.complete(&transfer, status);
                        if status != CompletionStatus::Success {
                            self.break_off_locked(send);
                        }
                    }
                    Outcome::NotReady => {
                        send.pending.push_back((transfer, now()));
                        self.has_pending.store(true, Ordering::Release);
                    }
                }
            }
        }
    }

    fn wake_waiting_peer(&self, remote: &Remote) {
        if connected_ring::take_waiting(self.entry())
            && let Some(pair) = remote.pair()
        {
            remote.peer.kick(pair.send_queue.load(Ordering::Relaxed));
        }
    }
}

/// The provider's own clock, for retry timers: a NIC has one too.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

/// What is left of a destroyed queue pair until no peer writes into its memory any more.
pub(super) struct Retired {
    device: Arc<DeviceState>,
    number: u32,
    incarnation: u32,
    ring_at: u64,
    ring_slots: u32,
    peer: Option<Arc<Peer>>,
    /// Datagram receives that were claimed at the end: sequence and token.
    busy: Vec<(u64, u32)>,
    _buffers: Vec<Buffer>,
}

impl Retired {
    pub(super) fn quiescent(&self, device: &DeviceState) -> bool {
        let Some(entry) = device.mapping.pair(self.number as usize) else {
            return true;
        };
        let Some(slots) = device.mapping.slots(self.ring_at, self.ring_slots) else {
            return true;
        };
        let peer_left = connected_ring::quiescent(entry)
            || self.peer.as_ref().is_none_or(|peer| peer.is_dead());
        peer_left
            && self.busy.iter().all(|(sequence, token)| {
                !matches!(
                    datagram_ring::look(slots, self.incarnation, *sequence),
                    Slot::Claimed(now) if now == *token
                ) || device.token_is_dead(*token)
            })
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        self.device
            .free_ring(self.ring_at, ring_bytes(self.ring_slots));
        self.device.free_pairs.lock().push_back(self.number);
    }
}
