//! The connection of a queue pair on iWARP, as its two ends see it.
//!
//! On iWARP a connection is made by its devices, which takes a while, and the end that was called must not send before
//! the other has sent: what came together with the answer to a call would break it. So each end has a *mailbox*, a word
//! in registered memory, and writes to the other's that it is connected: the caller as soon as the connection is made,
//! the other end when it has heard the caller, both not before their user has connected them. Sends are held until both
//! words are there.
//!
//! Soft-iWARP also loses requests: what is posted just as a connection breaks may never complete. And a SEND completes
//! before a READ that was posted before it. So what is posted is noted, completions are put in order again, and what the
//! device has not ended when the queue pair is broken is ended here.
#![allow(unsafe_code)] // Posts to the device, and reads a word that it writes.

use super::address::Party;
use super::bindings::{ibv_context, ibv_qp};
use super::doorbell::Doorbell;
use crate::counters::Opcode;
use crate::error::{Result, VerbsError};
use crate::memory::RemoteAddress;
use crate::provider::{RawCompletion, RawLocal, RawReceiveRequest, RawSendRequest};
use crate::work::{CompletionStatus, SendOperation};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The slot of requests of this provider's own, which nobody waits for: the last that there is.
pub(super) const CONTROL_SLOT: u64 = (1 << 24) - 1;

/// How long sends are held for a peer that does not connect: about as long as other devices try. The kernel takes up to
/// three seconds for a host's first connection.
const PATIENCE: Duration = Duration::from_secs(6);

/// How often an end writes the other's word at most, and when for the second time; later times are each four times as
/// late. Soft-iWARP may not look at what comes just as it has taken a call before more comes.
pub(super) const TELLINGS: u32 = 4;
const TELL_AGAIN: Duration = Duration::from_millis(20);

/// Where an end looks for the other's word, and which word that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mailbox {
    pub at: RemoteAddress,
    pub token: u64,
}

/// The memory of an end's mailbox, and of the word that it writes to the other's.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub heard: *const AtomicU64,
    pub told: *const AtomicU64,
    pub local_key: u32,
}

/// Posts sends to a queue pair that is not destroyed; returns how many fitted. Safe as
/// [`ProviderQueuePair::post_send`](crate::provider::ProviderQueuePair::post_send) is.
type Post = unsafe fn(*mut ibv_context, *mut ibv_qp, &[RawSendRequest]) -> Result<usize>;

/// A queue pair of the device, and how sends are posted to it.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    pub context: *mut ibv_context,
    pub pair: *mut ibv_qp,
    pub post: Post,
}

impl Queue {
    /// # Safety
    /// As [`Post`].
    unsafe fn post(&self, requests: &[RawSendRequest]) -> Result<usize> {
        // SAFETY: as the caller promises.
        unsafe { (self.post)(self.context, self.pair, requests) }
    }
}

pub(super) struct Link {
    own: Party,
    mailbox: Mailbox,
    send_bell: Arc<Doorbell>,
    receive_bell: Arc<Doorbell>,
    /// Whether receives are posted to the queue pair itself, not to a shared queue.
    own_receives: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    queue: Queue,
    words: Words,
    phase: Phase,
    /// Who asked for the connection, and was taken.
    caller: Option<Party>,
    /// The other end's mailbox, once the connection is made.
    other: Option<Mailbox>,
    /// Whether this end has called, and so sends first.
    calls: bool,
    /// How often the other end's mailbox has been written to, and when the last time.
    told: u32,
    told_at: Instant,
    /// Sends that wait, and since when the first does.
    held: Vec<RawSendRequest>,
    since: Option<Instant>,
    /// Requests whose completions nobody has, in the order of posting.
    sends: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    /// How the first send ends that the device does not end.
    failure: CompletionStatus,
    /// The device did not take what it has room for.
    failed: bool,
    /// The connection ended before this end's user connected it.
    dropped: bool,
}

struct Posted {
    id: u64,
    opcode: Opcode,
    /// Its completion, if one before it has none.
    ended: Option<RawCompletion>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its user has not connected it.
    Init,
    /// It has; the other end is not known to be.
    Waiting(Party),
    Open,
    /// Broken: the device ends nothing any more.
    Closed,
    /// Nothing may be posted, and no word be read.
    Gone,
}

// SAFETY: queue pair and words are used under the lock and in the phases before `Gone` only, which comes before they are
// freed; the library's calls are thread safe.
unsafe impl Send for Inner {}

/// What waits for what, for who looks after links.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is left to do.
    Done,
    /// The other end is to be heard; whether sends wait for it.
    Waiting { held: bool },
    /// Sends have waited in vain.
    Expired,
}

impl Link {
    pub(super) fn new(
        own: Party,
        mailbox: Mailbox,
        words: Words,
        queue: Queue,
        bells: [&Arc<Doorbell>; 2],
        own_receives: bool,
    ) -> Self {
        Self {
            own,
            mailbox,
            send_bell: bells[0].clone(),
            receive_bell: bells[1].clone(),
            own_receives,
            inner: Mutex::new(Inner {
                queue,
                words,
                phase: Phase::Init,
                caller: None,
                other: None,
                calls: false,
                told: 0,
                told_at: Instant::now(),
                held: Vec::new(),
                since: None,
                sends: VecDeque::new(),
                receives: VecDeque::new(),
                failure: CompletionStatus::Flushed,
                failed: false,
                dropped: false,
            }),
        }
    }

    pub(super) fn own(&self) -> &Party {
        &self.own
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Its user connects it to this peer. Returns whether the connection has not ended already.
    pub(super) fn connect(&self, peer: Party) -> Result<bool> {
        let mut inner = self.inner.lock();
        if let Some(caller) = inner.caller.filter(|caller| *caller != peer) {
            return Err(VerbsError::PeerUnreachable {
                peer: peer.device.name(),
                reason: format!(
                    "queue pair {} of {} has connected to queue pair {} instead",
                    caller.number,
                    caller.device.name(),
                    self.own.number
                ),
            });
        }
        if inner.phase == Phase::Init {
            inner.phase = Phase::Waiting(peer);
            inner.calls = self.own.calls(&peer);
        }
        Ok(!inner.dropped)
    }

    /// Whether a connection that this peer asks for is taken; then nobody else's is.
    pub(super) fn takes(&self, caller: Party) -> bool {
        let mut inner = self.inner.lock();
        let wanted = match inner.phase {
            Phase::Init => true,
            Phase::Waiting(peer) => peer == caller,
            Phase::Open | Phase::Closed | Phase::Gone => false,
        };
        let taken = wanted && inner.caller.is_none() && caller.calls(&self.own);
        if taken {
            inner.caller = Some(caller);
        }
        taken
    }

    /// The connection is made, and the other end's mailbox known.
    pub(super) fn made(&self, other: Mailbox) -> Progress {
        let mut inner = self.inner.lock();
        inner.other = Some(other);
        inner.advance(self.mailbox.token)
    }

    /// Goes on as far as possible.
    pub(super) fn advance(&self) -> Progress {
        self.inner.lock().advance(self.mailbox.token)
    }

    /// Posts sends, or holds them; returns how many were taken.
    ///
    /// # Safety
    /// As for [`ProviderQueuePair::post_send`](crate::provider::ProviderQueuePair::post_send).
    pub(super) unsafe fn post_sends(&self, requests: &[RawSendRequest]) -> Result<usize> {
        let mut inner = self.inner.lock();
        inner.advance(self.mailbox.token);
        let marks = requests.iter().map(|one| Posted {
            id: one.id,
            opcode: one.operation.opcode(),
            ended: None,
        });
        match inner.phase {
            Phase::Open => {
                // SAFETY: the queue pair is not destroyed in this phase; the memory is kept as the caller promises.
                let posted = unsafe { inner.queue.post(requests) }?;
                inner.sends.extend(marks.take(posted));
                Ok(posted)
            }
            Phase::Init | Phase::Waiting(_) => {
                inner.since.get_or_insert_with(Instant::now);
                inner.held.extend(requests.iter().map(copy));
                inner.sends.extend(marks);
                Ok(requests.len())
            }
            Phase::Closed | Phase::Gone => {
                inner.sends.extend(marks);
                drop(inner);
                self.send_bell.ring();
                Ok(requests.len())
            }
        }
    }

    /// Posts receives with `post`, which returns how many fitted; returns how many were taken.
    pub(super) fn post_receives(
        &self,
        requests: &[RawReceiveRequest],
        post: impl FnOnce() -> Result<usize>,
    ) -> Result<usize> {
        let mut inner = self.inner.lock();
        let closed = matches!(inner.phase, Phase::Closed | Phase::Gone);
        let posted = if closed { requests.len() } else { post()? };
        inner
            .receives
            .extend(requests[..posted].iter().map(|one| Posted {
                id: one.id,
                opcode: Opcode::Receive,
                ended: None,
            }));
        drop(inner);
        if closed {
            self.receive_bell.ring();
        }
        Ok(posted)
    }

    /// Takes note of a completion of the device, and hands on what is complete now. Returns whether somebody waits for
    /// the request.
    pub(super) fn settle(
        &self,
        completion: &RawCompletion,
        complete: &mut Vec<RawCompletion>,
    ) -> bool {
        if completion.id == CONTROL_SLOT {
            return false;
        }
        let receive = completion.opcode == Opcode::Receive;
        if receive && !self.own_receives {
            complete.push(*completion);
            return true;
        }
        let mut inner = self.inner.lock();
        // The other end is gone before this one was connected: its user hears of that when it is.
        if inner.phase == Phase::Init && completion.status == CompletionStatus::Flushed {
            return false;
        }
        let queue = if receive {
            &mut inner.receives
        } else {
            &mut inner.sends
        };
        // Mostly the first of all.
        let waits = |one: &&mut Posted| one.id == completion.id && one.ended.is_none();
        let Some(posted) = queue.iter_mut().find(waits) else {
            return false;
        };
        posted.ended = Some(*completion);
        while let Some(ended) = queue.front().and_then(|first| first.ended) {
            complete.push(ended);
            queue.pop_front();
        }
        true
    }

    /// How the first send that the device does not end is to end.
    pub(super) fn fails_with(&self, status: CompletionStatus) {
        let mut inner = self.inner.lock();
        // A send that was posted is the device's to fail.
        if !matches!(inner.phase, Phase::Open | Phase::Closed | Phase::Gone) {
            inner.failure = status;
        }
    }

    /// The queue pair is in the error state: what the device has not ended ends here. Before its user has connected
    /// it, only if its user broke it.
    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Gone {
            inner.phase = Phase::Closed;
            inner.held.clear();
        }
        drop(inner);
        self.send_bell.ring();
        self.receive_bell.ring();
    }

    /// The connection has ended. Returns whether that concerns its user, who else hears of it when connecting.
    pub(super) fn drops(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.dropped = true;
        inner.phase != Phase::Init
    }

    /// Before queue pair and mailbox are freed.
    pub(super) fn retire(&self) {
        let mut inner = self.inner.lock();
        inner.phase = Phase::Gone;
        inner.held.clear();
    }

    /// What a completion queue has to end in place of the device, once it has taken what the device has ended.
    pub(super) fn take_lost(&self, bell: &Arc<Doorbell>, lost: &mut VecDeque<RawCompletion>) {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Closed {
            return;
        }
        let inner = &mut *inner;
        let mut end = |posted: Posted| {
            posted.ended.unwrap_or_else(|| RawCompletion {
                id: posted.id,
                queue_pair: self.own.number,
                status: match posted.opcode {
                    Opcode::Receive => CompletionStatus::Flushed,
                    _ => std::mem::replace(&mut inner.failure, CompletionStatus::Flushed),
                },
                opcode: posted.opcode,
                bytes: 0,
                written: false,
                immediate: None,
                source_queue_pair: 0,
            })
        };
        if Arc::ptr_eq(bell, &self.send_bell) {
            lost.extend(inner.sends.drain(..).map(&mut end));
        }
        if Arc::ptr_eq(bell, &self.receive_bell) {
            lost.extend(inner.receives.drain(..).map(end));
        }
    }
}

impl Inner {
    fn advance(&mut self, token: u64) -> Progress {
        if self.failed {
            return Progress::Expired;
        }
        let Phase::Waiting(_) = self.phase else {
            return Progress::Done;
        };
        // SAFETY: the word is there until the phase is `Gone`. The device writes it; whatever it writes is a number.
        let heard = unsafe { (*self.words.heard).load(Ordering::Acquire) } == token;
        if let Some(other) = self.other.filter(|_| self.is_to_tell(heard)) {
            self.told += 1;
            self.told_at = Instant::now();
            if let Err(error) = self.tell(other) {
                tracing::warn!(%error, "a queue pair could not tell its peer that it is connected");
                self.failed = true;
                return Progress::Expired;
            }
        }
        if self.told > 0 && heard {
            self.phase = Phase::Open;
            self.since = None;
            let held = std::mem::take(&mut self.held);
            // SAFETY: the queue pair is alive; the memory is kept until the completions, which are yet to come.
            let posted = unsafe { self.queue.post(&held) };
            // The device has room for as many as were held.
            if !matches!(posted, Ok(count) if count == held.len()) {
                tracing::warn!(
                    ?posted,
                    held = held.len(),
                    "sends that were held could not be posted"
                );
                self.failed = true;
                return Progress::Expired;
            }
            return Progress::Done;
        }
        match self.since {
            Some(since) if since.elapsed() > PATIENCE => Progress::Expired,
            since => Progress::Waiting {
                held: since.is_some(),
            },
        }
    }

    /// Whether the other end's word is to be written now.
    fn is_to_tell(&self, heard: bool) -> bool {
        match self.told {
            0 => self.calls || heard,
            TELLINGS.. => false,
            times => !heard && self.told_at.elapsed() > TELL_AGAIN * 4_u32.pow(times - 1),
        }
    }

    /// Writes the word that the other end waits for.
    fn tell(&self, other: Mailbox) -> Result<()> {
        // SAFETY: the word is there until the phase is `Gone`.
        unsafe { (*self.words.told).store(other.token, Ordering::Release) };
        let request = RawSendRequest {
            id: CONTROL_SLOT,
            operation: SendOperation::Write(other.at),
            inline: None,
            local: RawLocal {
                address: self.words.told.addr() as u64,
                length: size_of::<u64>(),
                local_key: self.words.local_key,
            },
            destination: None,
        };
        // SAFETY: the queue pair is alive, and so is the word, which stays as it is.
        match unsafe { self.queue.post(&[request]) }? {
            0 => Err(VerbsError::InvalidRequest(
                "the send queue is full".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

/// A request on a connection.
fn copy(request: &RawSendRequest) -> RawSendRequest {
    RawSendRequest {
        id: request.id,
        operation: request.operation,
        inline: request.inline,
        local: request.local,
        destination: None,
    }
}
