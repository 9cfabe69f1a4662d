//! Queue pairs of the `shm` provider: the state machine around a send and a receive queue.

mod verbs;

use super::completion_queue::ShmCompletionQueue;
use super::connected_ring;
use super::datagram_ring;
use super::device::{DeviceState, Pair};
use super::layout::{PAGE, PAIR_ERROR, PAIR_INIT, PairEntry, QUEUE_PAIRS_MAX, SlotEntry, life};
use super::monitor::now;
use super::peer::Peer;
use super::receive::Ring;
use super::receive_side::ReceiveSide;
use super::send_side::{self, Outcome, Progress, Remote, ShmAddressHandle, Transfer};
use super::sync::Ordering;
use super::visitor::Visitor;
use crate::counters::{Counters, Opcode};
use crate::error::{Result, VerbsError};
use crate::memory::RemoteAddress;
use crate::provider::{
    ProviderCompletionQueue, RawCompletion, RawQueuePairOptions, RawSendRequest,
};
use crate::queue_pair::Transport;
use crate::work::{CompletionStatus, SendOperation};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// `rnr_retry` of a queue pair that waits for a receive without end, as on real devices.
const RETRY_WITHOUT_END: u8 = 7;
/// How long one retry lasts.
const RNR_TIMER: Duration = Duration::from_millis(10);

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

#[derive(Default)]
struct SendSide {
    /// Sends that wait for the receiver, in order.
    pending: VecDeque<Transfer>,
    /// Since when the first of them waits.
    waiting_since: Option<Instant>,
    progress: Progress,
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
            send: Mutex::default(),
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
        pair.publish();
        pair.send_queue.attach_sender(pair.clone());
        pair.receive_queue.attach_receiver(pair.clone());
        let living = Arc::downgrade(&pair);
        device.pairs.write().insert(number, living);
        Ok(pair)
    }

    /// Fills the entry that peers see.
    fn publish(&self) {
        let entry = self.entry();
        match self.transport {
            Transport::UnreliableDatagram => datagram_ring::reset(entry, self.incarnation),
            Transport::ReliableConnection | Transport::UnreliableConnection => {
                connected_ring::reset(entry);
            }
        }
        entry.queue_key.store(self.queue_key, Ordering::Relaxed);
        entry
            .receive_queue
            .store(self.receive_queue.index, Ordering::Relaxed);
        entry
            .send_queue
            .store(self.send_queue.index, Ordering::Relaxed);
        entry.ring_at.store(self.ring_at, Ordering::Relaxed);
        entry.ring_slots.store(self.ring_slots, Ordering::Relaxed);
        entry.peer_pair.store(0, Ordering::Relaxed);
        entry
            .life
            .store(life(self.incarnation, PAIR_INIT), Ordering::Release);
    }

    fn entry(&self) -> &PairEntry {
        self.device
            .mapping
            .pair(self.number as usize)
            .expect("the number came from the free list")
    }

    fn ring(&self) -> Ring<'_> {
        Ring {
            pair: self.entry(),
            slots: self
                .device
                .mapping
                .slots(self.ring_at, self.ring_slots)
                .expect("the ring was allocated where rings lie"),
        }
    }

    fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    /// Notices when the peer broke the connection off.
    fn check_peer(&self) {
        let broken = life(self.incarnation, PAIR_ERROR);
        if !self.is(PAIR_ERROR) && self.entry().life.load(Ordering::Acquire) == broken {
            self.break_off(&mut self.send.lock());
        }
    }

    /// Goes to the error state: pending sends are flushed here, posted receives by the next polls.
    fn break_off(&self, send: &mut SendSide) {
        if self.is(PAIR_ERROR) {
            return;
        }
        // Peers first: whoever sees the error state here may rely on their being shut out.
        connected_ring::close(self.entry(), self.incarnation, PAIR_ERROR);
        self.state.store(PAIR_ERROR, Ordering::Release);
        for transfer in send.pending.drain(..) {
            self.complete(&transfer, CompletionStatus::Flushed);
        }
        self.has_pending.store(false, Ordering::Release);
        self.send_queue.kick();
        self.receive_queue.kick();
        if let Some(remote) = self.remote.get() {
            remote.kick_sends();
        }
    }

    fn complete(&self, transfer: &Transfer, status: CompletionStatus) {
        let bytes = transfer.bytes();
        let opcode = transfer.operation.opcode();
        if status == CompletionStatus::Success {
            self.counters.add(opcode, bytes);
        }
        self.send_queue.push(RawCompletion {
            id: transfer.id,
            queue_pair: self.number,
            status,
            opcode,
            bytes,
            written: false,
            immediate: None,
            source_queue_pair: 0,
        });
    }

    /// Carries the WRITEs out that requests begin with, in one visit to the peer, and returns how many: all that there is
    /// room for, up to the first that fails, which is for [`carry_out`](Self::carry_out). A fence or a lock between two of
    /// them only waits until the first has reached the peer.
    fn write_together(&self, send: &mut SendSide, requests: &[RawSendRequest]) -> usize {
        let is_write =
            |request: &&RawSendRequest| matches!(request.operation, SendOperation::Write(_));
        let together = requests.iter().take_while(is_write).count();
        let Some(remote) = self.remote.get().filter(|_| together > 1) else {
            return 0;
        };
        if !send.pending.is_empty() || self.is(PAIR_ERROR) {
            return 0;
        }
        let room = self
            .send_depth
            .saturating_sub(self.outstanding.load(Ordering::Acquire));
        let writes = &requests[..together.min(room)];
        let written = send_side::write_all(
            &self.device,
            self.entry(),
            remote,
            &mut send.progress,
            writes,
        );
        if written == 0 {
            return 0;
        }
        self.outstanding.fetch_add(written, Ordering::AcqRel);
        let writes = &writes[..written];
        let bytes = writes.iter().map(send_side::bytes_of).sum();
        self.counters.add_many(Opcode::Write, written, bytes);
        self.send_queue
            .push_all(writes.iter().map(|request| RawCompletion {
                id: request.id,
                queue_pair: self.number,
                status: CompletionStatus::Success,
                opcode: Opcode::Write,
                bytes: send_side::bytes_of(request),
                written: false,
                immediate: None,
                source_queue_pair: 0,
            }));
        written
    }

    /// Tries a request on a reliable connection; false when the receiver is not ready.
    fn try_connected(&self, send: &mut SendSide, transfer: &Transfer) -> bool {
        let outcome = match self.remote.get() {
            Some(remote) => {
                transfer.over_connection(&self.device, self.entry(), remote, &mut send.progress)
            }
            None => Outcome::Done(CompletionStatus::RetryExceeded),
        };
        match outcome {
            Outcome::NotReady => false,
            Outcome::Done(status) => {
                self.complete(transfer, status);
                if status != CompletionStatus::Success {
                    self.break_off(send);
                }
                true
            }
        }
    }

    /// Copies from the peer's exposed memory, ahead of everything posted.
    fn copy_from_peer(
        &self,
        from: RemoteAddress,
        target: &mut [MaybeUninit<u8>],
    ) -> CompletionStatus {
        self.check_peer();
        let mut send = self.send.lock();
        let Some(remote) = self.remote.get().filter(|_| !self.is(PAIR_ERROR)) else {
            return CompletionStatus::Flushed;
        };
        let progress = &mut send.progress;
        match send_side::read_at_once(self.entry(), remote, progress, from, target) {
            Outcome::NotReady => CompletionStatus::ReceiverNotReady,
            Outcome::Done(CompletionStatus::Success) => {
                self.counters.add(Opcode::Read, target.len());
                CompletionStatus::Success
            }
            Outcome::Done(status) => {
                self.break_off(&mut send);
                status
            }
        }
    }

    /// Carries a request out on an unreliable connection. This end never learns what goes wrong at
    /// the other end.
    fn try_unreliable(&self, send: &mut SendSide, transfer: &Transfer) {
        let outcome = self.remote.get().map(|remote| {
            transfer.over_connection(&self.device, self.entry(), remote, &mut send.progress)
        });
        let status = match outcome {
            Some(Outcome::Done(CompletionStatus::LocalProtection)) => {
                CompletionStatus::LocalProtection
            }
            _ => CompletionStatus::Success,
        };
        self.complete(transfer, status);
        if status != CompletionStatus::Success {
            self.break_off(send);
        }
    }

    /// Whether the first pending send has waited as long as it may; begins to count when it is
    /// asked for the first time.
    fn patience_ended(&self, send: &mut SendSide) -> bool {
        let since = match send.waiting_since {
            Some(since) => since,
            None => {
                let since = now();
                send.waiting_since = Some(since);
                if self.rnr_retry != RETRY_WITHOUT_END {
                    self.send_queue.kick_at(since + self.patience());
                }
                since
            }
        };
        self.rnr_retry != RETRY_WITHOUT_END && since.elapsed() >= self.patience()
    }

    fn patience(&self) -> Duration {
        RNR_TIMER * u32::from(self.rnr_retry)
    }

    /// Carries a request out, or keeps it until the receiver is ready.
    fn carry_out(&self, send: &mut SendSide, request: &RawSendRequest) {
        let transfer = Transfer::from(request);
        if self.is(PAIR_ERROR) {
            self.complete(&transfer, CompletionStatus::Flushed);
            return;
        }
        match self.transport {
            Transport::UnreliableDatagram => {
                let handle = request.destination.as_ref().and_then(|handle| {
                    let any: &dyn std::any::Any = &**handle;
                    any.downcast_ref::<ShmAddressHandle>()
                });
                let status = match handle {
                    Some(handle) => transfer.as_datagram(&self.device, handle, self.number),
                    None => CompletionStatus::LocalProtection,
                };
                self.complete(&transfer, status);
                if status != CompletionStatus::Success {
                    self.break_off(send);
                }
            }
            Transport::UnreliableConnection => self.try_unreliable(send, &transfer),
            // In order: nothing overtakes a send that waits.
            Transport::ReliableConnection if !send.pending.is_empty() => {
                send.pending.push_back(transfer);
            }
            Transport::ReliableConnection => {
                if self.try_connected(send, &transfer) {
                    return;
                }
                send.waiting_since = None;
                if self.patience_ended(send) {
                    self.complete(&transfer, CompletionStatus::ReceiverNotReady);
                    self.break_off(send);
                } else {
                    send.pending.push_back(transfer);
                    self.has_pending.store(true, Ordering::Release);
                }
            }
        }
    }

    fn wake_waiting_peer(&self) {
        if let Some(remote) = self.remote.get()
            && connected_ring::take_waiting(self.entry())
        {
            remote.kick_sends();
        }
    }
}

impl Pair for ShmQueuePair {
    fn number(&self) -> u32 {
        self.number
    }

    fn peer_died(&self, peer: &Arc<Peer>) {
        match self.transport {
            Transport::ReliableConnection => {
                if self
                    .remote
                    .get()
                    .is_some_and(|remote| Arc::ptr_eq(&remote.peer, peer))
                {
                    self.break_off(&mut self.send.lock());
                }
            }
            // It never hears of its peer, and the receive that the peer died in stays posted.
            Transport::UnreliableConnection => {}
            Transport::UnreliableDatagram => self.receive_queue.kick(),
        }
    }

    fn visitor(&self) -> Option<Visitor> {
        let remote = self.remote.get()?;
        Visitor::find(&remote.peer, remote.number, remote.incarnation)
    }

    fn progress(&self) {
        if !self.has_pending.load(Ordering::Acquire) {
            return;
        }
        let mut send = self.send.lock();
        while let Some(transfer) = send.pending.pop_front() {
            if self.try_connected(&mut send, &transfer) {
                send.waiting_since = None;
            } else if self.patience_ended(&mut send) {
                self.complete(&transfer, CompletionStatus::ReceiverNotReady);
                self.break_off(&mut send);
            } else {
                send.pending.push_front(transfer);
                break;
            }
        }
        self.has_pending
            .store(!send.pending.is_empty(), Ordering::Release);
    }

    fn send_polled(&self) {
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
    }

    fn poll_receives(&self, completions: &mut Vec<RawCompletion>, limit: usize) {
        self.check_peer();
        let ring = self.ring();
        // Whether a peer is inside must be known before the ring is read for the last time.
        let quiescent = self.is(PAIR_ERROR) && self.visitor().is_none();
        let before = completions.len();
        let mut receive = self.receive.lock();
        let broken = receive.poll(ring, &self.device, completions, limit);
        for completion in &completions[before..] {
            self.counters.add(Opcode::Receive, completion.bytes);
        }
        let room = limit - (completions.len() - before);
        if quiescent && room > 0 {
            receive.flush(ring, completions, room);
        }
        drop(receive);
        if broken {
            self.break_off(&mut self.send.lock());
        }
    }
}

fn queue_of_this_provider(
    queue: Arc<dyn ProviderCompletionQueue>,
) -> Result<Arc<ShmCompletionQueue>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = queue;
    any.downcast()
        .map_err(|_| VerbsError::InvalidRequest("a completion queue of another provider".into()))
}

fn ring_bytes(slots: u32) -> usize {
    (slots as usize * size_of::<SlotEntry>()).next_multiple_of(PAGE)
}
