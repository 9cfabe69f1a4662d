//! The send side of a connection: requests in order until they are done, what the peer is to be
//! told, and the order in which all that goes to the socket. Knows nothing of how bytes arrive.

use super::plan::{Partial, Piece, Plan, What};
use super::requests::{Credit, Request, Response};
use crate::tcp::events::now;
use crate::tcp::frame::Frame;
use crate::work::CompletionStatus;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// READs and atomics that may be under way in one direction of a connection.
pub(in crate::tcp) const RETURNING_MAX: usize = 128;

/// A peer said something that it cannot mean.
#[derive(Debug)]
pub(super) struct Garbage;

/// The send side.
pub(super) struct SendSide {
    /// Where to write, once there is a connection.
    pub socket: Option<Arc<OwnedFd>>,
    /// The socket takes no more; it tells when it does again.
    pub blocked: bool,
    pub responses: VecDeque<Response>,
    /// Requests that are not done, oldest first.
    pub requests: VecDeque<Request>,
    /// How many of them are sent.
    pub sent: usize,
    /// The sequence number of the oldest.
    first: u64,
    pub partial: Option<Partial>,
    /// Whether requests wait for receives and for acknowledgements (RC).
    reliable: bool,
    /// Receives the peer has posted so far, and those that requests have taken.
    granted: u64,
    taken: u64,
    /// READs and atomics that are sent and not done.
    returning: usize,
    /// Requests of the peer that it has been told are done.
    told: u64,
    pub credit: Arc<Credit>,
    /// How long a request waits for a receive, if not without end.
    patience: Option<Duration>,
    /// Until when the next request waits for a receive.
    pub waiting_until: Option<Instant>,
    /// The queue pair is broken: posted requests are flushed.
    pub broken: bool,
    /// The peer's queue pair is not ready any more.
    pub peer_gone: bool,
    /// The peer was told that there is nobody any more.
    pub told_gone: bool,
}

impl SendSide {
    pub(super) fn new(reliable: bool, patience: Option<Duration>) -> Self {
        Self {
            socket: None,
            blocked: false,
            responses: VecDeque::new(),
            requests: VecDeque::new(),
            sent: 0,
            first: 0,
            partial: None,
            reliable,
            granted: 0,
            taken: 0,
            returning: 0,
            told: 0,
            credit: Arc::default(),
            patience,
            waiting_until: None,
            broken: false,
            peer_gone: false,
            told_gone: false,
        }
    }

    /// The peer has posted so many receives in all.
    pub(super) fn grant(&mut self, posted: u64) {
        self.granted = self.granted.max(posted);
    }

    /// Tells the peer that so many of its requests are done, unless it knows.
    pub(super) fn acknowledge(&mut self, done: u64) {
        if done > self.told {
            self.tell(done);
        }
    }

    /// Tells the peer how many receives are posted.
    pub(super) fn advertise(&mut self) {
        self.tell(self.told);
    }

    fn tell(&mut self, done: u64) {
        self.told = done;
        let only_is_partial = self.responses.len() == 1
            && self
                .partial
                .as_ref()
                .is_some_and(|partial| partial.what == What::Response);
        match self.responses.back_mut() {
            Some(Response::Done(last)) if !only_is_partial => *last = done,
            _ => self.responses.push_back(Response::Done(done)),
        }
    }

    /// Queues an answer, which says by itself that so many requests are done.
    pub(super) fn answer(&mut self, response: Response, done: u64) {
        self.responses.push_back(response);
        self.told = done;
    }

    /// READs and atomics of the peer that are not answered.
    pub(super) fn answering(&self) -> usize {
        let answers = |response: &&Response| {
            matches!(response, Response::Read { .. } | Response::Atomic { .. })
        };
        self.responses.iter().filter(answers).count()
    }

    /// Drops the answers that are not begun, and what would come behind them.
    pub(super) fn drop_answers(&mut self) {
        let begun = self
            .partial
            .as_ref()
            .is_some_and(|partial| partial.what == What::Response);
        let keep = |response: &&Response| {
            !matches!(response, Response::Read { .. } | Response::Atomic { .. })
        };
        let begun = usize::from(begun);
        let kept = self.responses.iter().skip(begun).take_while(keep).count();
        self.responses.truncate(begun + kept);
    }

    /// Whether a request is in the middle of being written: the connection cannot be used for
    /// anything else before the rest of it was.
    pub(super) fn is_inside_request(&self) -> bool {
        self.partial
            .as_ref()
            .is_some_and(|partial| partial.what == What::Request)
    }

    /// Takes the requests out. In the middle of one the connection is of no use any more: nobody
    /// gives the rest of it, so its socket comes back to be shut.
    pub(super) fn take_requests(&mut self) -> (VecDeque<Request>, Option<Arc<OwnedFd>>) {
        let mut unusable = None;
        if self.is_inside_request() {
            unusable = self.socket.take();
            self.partial = None;
            self.responses.clear();
            self.peer_gone = true;
        }
        self.sent = 0;
        (std::mem::take(&mut self.requests), unusable)
    }

    /// Whether the connection has anything under way, so that a silent peer would be noticed.
    pub(super) fn is_busy(&self) -> bool {
        self.sent > 0 || self.partial.is_some() || self.blocked
    }

    /// How the next request ends without being sent, when its turn has come.
    pub(super) fn next_failed(&self) -> Option<CompletionStatus> {
        if self.sent > 0 {
            return None;
        }
        self.requests.front()?.failed
    }

    /// Takes the oldest request out, which is sent.
    fn finish(&mut self) -> Option<Request> {
        if self.sent == 0 {
            return None;
        }
        let request = self.requests.pop_front()?;
        self.sent -= 1;
        self.first += 1;
        Some(request)
    }

    /// Takes the requests before `sequence` out: the peer says that they are done.
    pub(super) fn finish_before(
        &mut self,
        sequence: u64,
        mut done: impl FnMut(Request),
    ) -> Result<(), Garbage> {
        while self.first < sequence {
            let front = self.requests.front().ok_or(Garbage)?;
            if front.operation.returns_bytes() {
                return Err(Garbage);
            }
            done(self.finish().ok_or(Garbage)?);
        }
        Ok(())
    }

    /// Takes all out that are sent: nobody will say that they are done.
    pub(super) fn finish_sent(&mut self, mut done: impl FnMut(Request)) {
        while let Some(request) = self.finish() {
            done(request);
        }
    }

    /// The request that waits for what the peer now sends: the oldest one.
    pub(super) fn returning(&self, sequence: u64) -> Result<&Request, Garbage> {
        let request = self.requests.front().ok_or(Garbage)?;
        if self.sent == 0 || self.first != sequence || !request.operation.returns_bytes() {
            return Err(Garbage);
        }
        Ok(request)
    }

    /// Takes it out.
    pub(super) fn finish_returning(&mut self) -> Option<Request> {
        self.returning = self.returning.saturating_sub(1);
        self.finish()
    }

    /// Whether the peer can have seen anything of a request.
    pub(super) fn is_begun(&self, sequence: u64) -> bool {
        let begun = self.sent + usize::from(self.is_inside_request());
        sequence >= self.first && sequence - self.first < begun as u64
    }

    /// Adds to a plan what can be written now, in order.
    pub(super) fn plan(&mut self, plan: &mut Plan) {
        let (mut responses, mut requests) = (0, self.sent);
        if let Some(partial) = &self.partial {
            let (address, length) = match partial.what {
                What::Response => {
                    responses += 1;
                    self.responses.front().map(Response::payload)
                }
                What::Request => {
                    requests += 1;
                    self.requests.get(self.sent).map(Request::payload)
                }
            }
            .expect("a partial frame stays the first of its queue");
            plan.resume(partial, address, length);
        }
        for response in self.responses.iter().skip(responses) {
            if plan.is_full() {
                return;
            }
            let frame = response.frame(&self.credit);
            let (address, length) = response.payload();
            plan.add(What::Response, frame, address, length);
        }
        let (mut taken, mut returning) = (self.taken, self.returning);
        for request in self.requests.iter().skip(requests) {
            if plan.is_full() || request.failed.is_some() {
                return;
            }
            if self.reliable {
                if request.takes_receive() {
                    if taken == self.granted {
                        self.wait_for_receive();
                        return;
                    }
                    taken += 1;
                }
                if request.operation.returns_bytes() {
                    if returning == RETURNING_MAX {
                        return;
                    }
                    returning += 1;
                }
            }
            let (address, length) = request.payload();
            plan.add(What::Request, request.frame(), address, length);
        }
    }

    fn wait_for_receive(&mut self) {
        if let Some(patience) = self.patience
            && self.waiting_until.is_none()
        {
            self.waiting_until = Some(now() + patience);
        }
    }

    /// Takes note that the socket took `count` bytes of what was planned.
    pub(super) fn advance(&mut self, plan: &Plan, mut count: usize) {
        for piece in plan.pieces() {
            if count == 0 {
                return;
            }
            if !piece.resumed {
                self.begin(piece);
            }
            if count < piece.bytes {
                self.partial = Some(Partial {
                    what: piece.what,
                    header: piece.header,
                    done: piece.skipped + count,
                });
                return;
            }
            count -= piece.bytes;
            self.partial = None;
            match piece.what {
                What::Response => drop(self.responses.pop_front()),
                What::Request => self.sent += 1,
            }
        }
    }

    /// The first byte of a frame has gone.
    fn begin(&mut self, piece: &Piece) {
        match piece.frame {
            Some(Frame::Acknowledge { posted, .. }) => {
                self.credit.advertised.fetch_max(posted, Ordering::AcqRel);
            }
            Some(Frame::Gone) => self.told_gone = true,
            Some(
                Frame::Send { .. }
                | Frame::Write {
                    immediate: Some(_), ..
                },
            ) => {
                self.taken += 1;
                self.waiting_until = None;
            }
            Some(Frame::Read { .. } | Frame::CompareAndSwap { .. } | Frame::FetchAndAdd { .. }) => {
                self.returning += 1
            }
            _ => {}
        }
    }
}
