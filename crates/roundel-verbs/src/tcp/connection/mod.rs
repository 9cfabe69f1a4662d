//! Connected queue pairs (RC, UC): the state machine around a send side, a receiving end and the
//! receives that are posted.
//!
//! Locks are taken in this order: the receiving end, the posted receives, the send side. Whoever
//! holds the first two decides what becomes of the queue pair.

mod breaking;
mod calling;
mod departed;
mod meeting;
mod plan;
mod reader;
mod requests;
mod responder;
mod send_side;
mod transmit;
mod verbs;

pub(super) use send_side::RETURNING_MAX;

use super::address::Identity;
use super::completion_queue::{TcpCompletionQueue, queue_of_this_provider};
use super::events::{News, Source, Timed};
use super::socket;
use super::state::DeviceState;
use crate::counters::{Counters, Opcode};
use crate::error::Result;
use crate::provider::{RawCompletion, RawQueuePairOptions, RawReceiveRequest};
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::CompletionStatus;
use breaking::Break;
use calling::Call;
use parking_lot::Mutex;
use reader::{Filled, Reader};
use requests::Request;
use responder::Then;
use send_side::SendSide;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// `rnr_retry` of a queue pair that waits for a receive without end, as on real devices.
const RETRY_WITHOUT_END: u8 = 7;
/// How long one retry lasts. There is one more than asked for: that a receive was posted takes a
/// moment to be known.
const RNR_TIMER: Duration = Duration::from_millis(10);
/// How often the socket is read before others have their turn.
const READS_AT_A_TIME: usize = 64;

const INIT: u8 = 0;
const READY: u8 = 1;
const ERROR: u8 = 2;

pub(super) struct StreamPair {
    me: Weak<Self>,
    device: Arc<DeviceState>,
    number: u32,
    incarnation: u32,
    reliable: bool,
    send_queue: Arc<TcpCompletionQueue>,
    receive_queue: Arc<TcpCompletionQueue>,
    receive_depth: usize,
    state: AtomicU8,
    remote: OnceLock<Remote>,
    receiving: Mutex<Receiving>,
    posted: Mutex<Posted>,
    send: Mutex<SendSide>,
    credit: Arc<requests::Credit>,
    counters: Counters,
}

/// The queue pair that this one is connected to.
struct Remote {
    identity: Identity,
    address: super::address::TcpAddress,
}

/// How far the connection has come.
enum Stage {
    /// Neither end has called.
    Apart,
    /// This end calls.
    Calling(Call),
    /// Both ends called, the peer's call is the one that counts, and is awaited.
    Crossed,
    /// The peer's device has no such queue pair; the connection stays, so that its end tells of the
    /// end of the device.
    Refused,
    /// Frames go back and forth.
    Open,
    /// It ended, or never came to be.
    Closed,
}

/// The receiving end.
struct Receiving {
    stage: Stage,
    /// How its socket is known to the thread that waits for sockets.
    token: u64,
    /// Until when the peer must answer.
    deadline: Option<Instant>,
    /// Calls that came before this end was told to connect.
    early: Vec<EarlyCall>,
    reader: Reader<Then>,
    /// Requests of the peer that are done.
    done: u64,
    /// Completions to be told, of receives and of sends.
    received: Vec<RawCompletion>,
    completed: Vec<RawCompletion>,
}

/// A peer that connected first.
struct EarlyCall {
    from: Identity,
    socket: Arc<OwnedFd>,
    token: u64,
    posted: u64,
}

/// The receives that are posted.
#[derive(Default)]
struct Posted {
    requests: VecDeque<RawReceiveRequest>,
    /// How many were taken so far.
    taken: u64,
    /// The queue pair is broken: posted requests are flushed.
    broken: bool,
}

impl StreamPair {
    pub(super) fn create(
        device: &Arc<DeviceState>,
        options: RawQueuePairOptions,
    ) -> Result<Arc<Self>> {
        let send_queue = queue_of_this_provider(options.send_queue)?;
        let receive_queue = queue_of_this_provider(options.receive_queue)?;
        let reliable = options.transport == Transport::ReliableConnection;
        let patience = (options.rnr_retry < RETRY_WITHOUT_END)
            .then(|| RNR_TIMER * (u32::from(options.rnr_retry) + 1));
        let send = SendSide::new(reliable, patience);
        let (number, incarnation) = (device.new_number(), device.new_incarnation());
        let pair = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            device: device.clone(),
            number,
            incarnation,
            reliable,
            send_queue,
            receive_queue,
            receive_depth: options.receive_depth.max(1),
            state: AtomicU8::new(INIT),
            remote: OnceLock::new(),
            receiving: Mutex::new(Receiving {
                stage: Stage::Apart,
                token: 0,
                deadline: None,
                early: Vec::new(),
                reader: Reader::default(),
                done: 0,
                received: Vec::new(),
                completed: Vec::new(),
            }),
            posted: Mutex::default(),
            credit: send.credit.clone(),
            send: Mutex::new(send),
            counters: Counters::default(),
        });
        device.streams.write().insert(number, me(&pair));
        Ok(pair)
    }

    fn identity(&self) -> Identity {
        Identity {
            device: self.device.address.id,
            number: self.number,
            incarnation: self.incarnation,
        }
    }

    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    fn current_state(&self) -> QueuePairState {
        match self.state.load(Ordering::Acquire) {
            INIT => QueuePairState::Init,
            READY => QueuePairState::ReadyToSend,
            _ => QueuePairState::Error,
        }
    }

    /// The completion of a request.
    fn completion(&self, request: &Request, status: CompletionStatus) -> RawCompletion {
        let opcode = request.operation.opcode();
        if status == CompletionStatus::Success {
            self.counters.add(opcode, request.length);
        }
        RawCompletion {
            id: request.id,
            queue_pair: self.number,
            status,
            opcode,
            bytes: request.length,
            written: false,
            immediate: None,
            source_queue_pair: 0,
        }
    }

    /// The completion of a receive that brought nothing.
    fn failed_receive(&self, id: u64, status: CompletionStatus) -> RawCompletion {
        RawCompletion {
            id,
            queue_pair: self.number,
            status,
            opcode: Opcode::Receive,
            bytes: 0,
            written: false,
            immediate: None,
            source_queue_pair: 0,
        }
    }

    fn source(&self) -> Source {
        Source::of(self.me.clone(), |pair, _, news| pair.ready(news))
    }

    /// Something happened on the socket.
    fn ready(&self, news: News) {
        if news.writable {
            let mut send = self.send.lock();
            if std::mem::take(&mut send.blocked) && !self.push_on(send) {
                self.lost(&mut self.receiving.lock());
                return;
            }
        }
        let mut receiving = self.receiving.lock();
        match receiving.stage {
            Stage::Open => self.read(&mut receiving, news.ended),
            Stage::Calling(_) => self.go_on_calling(&mut receiving),
            Stage::Refused if news.ended => self.lost(&mut receiving),
            Stage::Apart | Stage::Crossed | Stage::Refused | Stage::Closed => {}
        }
        drop(receiving);
        self.check_next();
    }

    /// Writes what can be written; false when the connection is lost.
    #[must_use]
    fn push_on(&self, mut send: parking_lot::MutexGuard<'_, SendSide>) -> bool {
        let waited = send.waiting_until;
        let written = send.transmit();
        if !self.reliable {
            let mut done = Vec::new();
            send.finish_sent(|request| {
                done.push(self.completion(&request, CompletionStatus::Success));
            });
            self.send_queue.push(&mut done);
        }
        let waits = send.waiting_until;
        drop(send);
        if let Some(until) = waits
            && waited != waits
        {
            self.device.events.wake_at(until, self.me.clone());
        }
        written.is_ok()
    }

    /// Breaks when it is the turn of a request that cannot be carried out.
    fn check_next(&self) {
        if !self.is(READY) {
            return;
        }
        let failed = self.send.lock().next_failed();
        if let Some(status) = failed {
            self.break_off(Break::request(status));
        }
    }

    /// Reads what there is, and does what it says; up to the end, if that is known to come.
    fn read(&self, receiving: &mut Receiving, ended: bool) {
        for _ in 0..READS_AT_A_TIME {
            let filled = match receiving.reader.fill() {
                Ok(filled) => filled,
                Err(transmit::Lost) => {
                    self.lost(receiving);
                    return;
                }
            };
            if let Err(send_side::Garbage) = self.take_frames(receiving) {
                tracing::warn!(
                    queue_pair = self.number,
                    "a peer sent what is no frame, or none that fits: its connection is closed"
                );
                self.lost(receiving);
                return;
            }
            if filled == Filled::End {
                self.lost(receiving);
                return;
            }
            if !self.tell(receiving) {
                self.lost(receiving);
                return;
            }
            let read_all = match filled {
                Filled::More => false,
                Filled::All => !ended,
                Filled::None | Filled::End => true,
            };
            if read_all || !matches!(receiving.stage, Stage::Open) {
                return;
            }
        }
        self.device.events.again(receiving.token);
    }

    /// Tells of the completions that came, here and to the peer; false when the connection is lost.
    fn tell(&self, receiving: &mut Receiving) -> bool {
        self.receive_queue.push(&mut receiving.received);
        self.send_queue.push(&mut receiving.completed);
        let mut send = self.send.lock();
        if self.reliable {
            send.acknowledge(receiving.done);
        }
        self.push_on(send)
    }
}

impl Timed for StreamPair {
    fn time_passed(&self, now: Instant) {
        let mut receiving = self.receiving.lock();
        if receiving.deadline.is_some_and(|deadline| now >= deadline) {
            receiving.deadline = None;
            if self.reliable {
                self.break_with(&mut receiving, Break::LOST);
            } else {
                // It may still come to be, but nobody waits for it.
                self.send.lock().peer_gone = true;
                self.drop_requests();
            }
            return;
        }
        let mut send = self.send.lock();
        if send.waiting_until.is_some_and(|until| now >= until) {
            send.waiting_until = None;
            if send.sent == 0 && !send.is_inside_request() {
                drop(send);
                let cause = Break::request(CompletionStatus::ReceiverNotReady);
                self.break_with(&mut receiving, cause);
            } else if !self.push_on(send) {
                self.lost(&mut receiving);
            }
            return;
        }
        let silent = send.is_busy() && send.socket.as_deref().is_some_and(socket::is_silent);
        drop(send);
        if silent {
            tracing::debug!(queue_pair = self.number, "a peer does not answer any more");
            self.lost(&mut receiving);
        }
    }
}

fn me(pair: &Arc<StreamPair>) -> Weak<StreamPair> {
    Arc::downgrade(pair)
}
