//! The end that asks: calls to several peers, up to R of them pending on each connection, each of which ends once.
//!
//! A call takes the next slot of its connection, round and round, and has it until it is answered, also when its
//! caller has given up by then: the answer must not be taken for that of another. Where messages may be lost, a request
//! is sent again until it is answered.

mod calls;
mod patience;

use crate::end::{EndOptions, Fabric};
use crate::error::{CallError, Gone, ProtocolError, Result, one_line};
use crate::message::frame::{Kind, sequence_near};
use crate::message::{Arrival, Arrivals, Port, Sweeps};
use crate::protocol::Protocol;
use calls::{Calls, Slot, State};
use roundel_verbs::{Buffer, CompletionQueue, Work};
use std::time::Duration;

/// How often it is looked whether connections broke that have nothing to complete.
const STATE_INTERVAL: Duration = Duration::from_millis(50);
/// Of a peer on a reliable connection: when it has not answered for so long, it is looked whether it is there.
const SILENCE_MAX: Duration = Duration::from_millis(25);

/// A call that has ended.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The connection that it was made on.
    pub connection: usize,
    /// The caller's mark.
    pub token: u64,
    /// When it was begun.
    pub begun: Duration,
    /// The response, or why there is none.
    pub outcome: Result<&'a [u8], CallError>,
}

/// The end that asks.
pub struct Requester {
    port: Port,
    options: EndOptions,
    calls: Vec<Calls>,
    arrivals: Arrivals,
    /// Buffers for READs.
    buffers: Vec<Buffer>,
    /// When to look next for calls whose time is over.
    due: Duration,
    sweeps: Sweeps,
    resent: u64,
}

impl Requester {
    /// Makes it for so many connections.
    ///
    /// # Errors
    /// When the device cannot carry the protocol, or has no room.
    pub fn open(fabric: &Fabric, connections: usize, options: &EndOptions) -> Result<Self> {
        let port = Port::open(fabric, options, true, connections)?;
        let reads = match options.protocol {
            Protocol::Read => connections * options.pending,
            _ => 0,
        };
        let buffers = (0..reads).map(|_| fabric.arena.allocate(options.response_bytes.max(1)));
        let buffers = buffers.collect::<Result<_, _>>()?;
        Ok(Self {
            port,
            options: options.clone(),
            calls: (0..connections)
                .map(|_| Calls::new(options.pending, options.resend_after))
                .collect(),
            arrivals: Arrivals::default(),
            buffers,
            due: Duration::ZERO,
            sweeps: Sweeps::default(),
            resent: 0,
        })
    }

    /// What the responder of a connection needs to know.
    pub fn offer(&self, connection: usize) -> Vec<u8> {
        self.port.offer(connection).to_bytes()
    }

    /// Connects to the responder that offers this, which errors call `peer`.
    ///
    /// # Errors
    /// When the offer does not fit, or a verb fails.
    pub fn connect(&mut self, connection: usize, offer: &[u8], peer: &str) -> Result<()> {
        self.port.connect(connection, offer, peer)
    }

    /// Connections that it has.
    pub fn connections(&self) -> usize {
        self.calls.len()
    }

    /// Queue pairs that it has.
    pub fn queue_pairs(&self) -> usize {
        self.port.queue_pairs()
    }

    /// How often requests were sent again.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// The completion queue that tells of messages, for a task that waits for them.
    pub fn queue(&self) -> &CompletionQueue {
        self.port.queue()
    }

    /// Whether answers only show in memory, so that nobody can sleep until one comes.
    pub fn must_look(&self) -> bool {
        self.port.looks_at_slots()
    }

    /// How many calls can be begun on a connection now.
    pub fn room(&self, connection: usize) -> usize {
        self.calls[connection].room()
    }

    /// Whether no call is pending on any connection.
    pub fn is_idle(&self) -> bool {
        self.calls.iter().all(|calls| calls.oldest == calls.next)
    }

    /// Bytes of a responder's memory that [`read`](Self::read) reaches; 0 where the protocol does not read.
    pub fn readable(&self, connection: usize) -> u64 {
        self.port.readable(connection)
    }

    /// Begins a call, which is posted with the next [`flush`](Self::flush), unless there is no room: then the answer is
    /// false, and it can be tried again when another call has ended. It ends in [`poll`](Self::poll).
    ///
    /// # Errors
    /// When it cannot be begun, now or ever.
    pub fn call(
        &mut self,
        connection: usize,
        token: u64,
        request: &[u8],
        deadline: Option<Duration>,
        now: Duration,
    ) -> Result<bool, CallError> {
        if self.options.protocol == Protocol::Read {
            let told = "READ asks nothing of the responder: use `read`, or another protocol";
            return Err(CallError::Unsupported(told.into()));
        }
        if request.len() > self.options.request_bytes {
            return Err(self.too_long(connection, request.len(), self.options.request_bytes));
        }
        let Some(sequence) = self.begin(connection, token, deadline, now)? else {
            return Ok(false);
        };
        if self.options.protocol.is_lossy() {
            let kept = &mut self.calls[connection].at(sequence).request;
            kept.clear();
            kept.extend_from_slice(request);
        }
        self.send(connection, sequence, request);
        Ok(true)
    }

    /// Begins a READ of so many bytes from an offset of the responder's memory; everything else is as with
    /// [`call`](Self::call).
    ///
    /// # Errors
    /// When it cannot be begun, now or ever.
    pub fn read(
        &mut self,
        connection: usize,
        token: u64,
        range: (u64, usize),
        deadline: Option<Duration>,
        now: Duration,
    ) -> Result<bool, CallError> {
        let (offset, length) = range;
        let readable = self.port.readable(connection);
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > readable) || length == 0 {
            return Err(CallError::Unsupported(format!(
                "a READ of {length} bytes at {offset} of the {readable} that peer {} lets be read",
                self.port.name(connection)
            )));
        }
        if length > self.options.response_bytes {
            return Err(self.too_long(connection, length, self.options.response_bytes));
        }
        let Some(sequence) = self.begin(connection, token, deadline, now)? else {
            return Ok(false);
        };
        let id = (connection as u64) << 32 | sequence & u64::from(u32::MAX);
        // There is one for each call that can be pending.
        if let Some(buffer) = self.buffers.pop() {
            self.port.read(connection, offset, (buffer, length), id);
        }
        Ok(true)
    }

    fn too_long(&self, connection: usize, bytes: usize, most: usize) -> CallError {
        CallError::TooLong {
            peer: self.port.name(connection).to_owned(),
            what: "a call",
            bytes,
            most,
        }
    }

    /// Takes the next slot.
    fn begin(
        &mut self,
        connection: usize,
        token: u64,
        deadline: Option<Duration>,
        now: Duration,
    ) -> Result<Option<u64>, CallError> {
        if let Some(gone) = self.port.gone(connection) {
            return Err(self.peer_gone(connection, gone));
        }
        if !self.port.is_connected(connection) {
            let told = format!("a call on connection {connection}, which is not connected");
            return Err(CallError::Unsupported(told));
        }
        let calls = &mut self.calls[connection];
        if calls.room() == 0 {
            return Ok(None);
        }
        let sequence = calls.next;
        calls.next += 1;
        let slot = calls.at(sequence);
        *slot = Slot {
            state: State::Pending,
            sequence,
            token,
            begun: now,
            deadline,
            sent: now,
            again: 0,
            request: std::mem::take(&mut slot.request),
        };
        if let Some(deadline) = deadline {
            self.due = self.due.min(deadline);
        }
        if self.options.protocol.is_lossy() {
            let wait = self.calls[connection].patience.wait(0);
            self.due = self.due.min(now + wait);
        }
        Ok(Some(sequence))
    }

    fn send(&mut self, connection: usize, sequence: u64, request: &[u8]) {
        if let Err(error) = self.port.send(connection, sequence, Kind::Plain, request) {
            self.port.give_up(connection, Gone(error.to_string()));
        }
    }

    fn peer_gone(&self, connection: usize, gone: &Gone) -> CallError {
        CallError::PeerGone {
            peer: self.port.name(connection).to_owned(),
            reason: gone.0.clone(),
        }
    }

    /// Posts what has been begun, with one call for each queue pair.
    ///
    /// # Errors
    /// When a verb fails.
    pub fn flush(&mut self) -> Result<()> {
        self.port.flush()
    }

    /// When [`poll`](Self::poll) has something to do although nothing comes: calls whose time is over, requests to be sent
    /// again, answers behind one that was lost.
    pub fn due(&self) -> Duration {
        self.sweeps.due().map_or(self.due, |due| due.min(self.due))
    }

    /// Takes what has come, tells of each call that ended, and sends again what has to be. Returns how much
    /// happened.
    ///
    /// # Errors
    /// When a verb fails in a way that is not a peer's.
    pub fn poll(&mut self, now: Duration, mut ended: impl FnMut(Ended<'_>)) -> Result<usize> {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let mut happened = self.port.poll(&mut arrivals)?;
        if self.port.looks_at_slots() {
            happened += self.look(now, &mut arrivals);
        }
        for (arrival, response) in arrivals.iter() {
            self.answered(now, arrival, response, &mut ended);
        }
        arrivals.clear();
        self.arrivals = arrivals;
        happened += self.take_reads(&mut ended);
        if now >= self.due {
            happened += self.look_at_time(now, &mut ended);
        }
        while let Some(connection) = self.port.next_gone() {
            happened += 1;
            self.fail_all(connection, &mut ended);
        }
        self.port.flush()?;
        Ok(happened)
    }

    /// Looks for answers in memory.
    fn look(&mut self, now: Duration, arrivals: &mut Arrivals) -> usize {
        let mut found = 0;
        for connection in 0..self.calls.len() {
            let (oldest, next) = (self.calls[connection].oldest, self.calls[connection].next);
            let mut sequence = oldest;
            while sequence < next && self.port.look(connection, sequence, arrivals) {
                sequence += 1;
                found += 1;
            }
        }
        // Answers can overtake one that was lost.
        if self.options.protocol.is_lossy() && self.sweeps.is_time(now, found) {
            for connection in 0..self.calls.len() {
                let (oldest, next) = (self.calls[connection].oldest, self.calls[connection].next);
                for sequence in oldest..next {
                    let pending = self.calls[connection].unanswered(sequence).is_some();
                    found += usize::from(pending && self.port.look(connection, sequence, arrivals));
                }
            }
        }
        found
    }

    fn answered(
        &mut self,
        now: Duration,
        arrival: &Arrival,
        response: &[u8],
        ended: &mut impl FnMut(Ended<'_>),
    ) {
        let connection = arrival.connection;
        let calls = &mut self.calls[connection];
        let sequence = sequence_near(calls.oldest, arrival.sequence);
        // An answer that comes twice, or to no call, is ignored. So is one to a call that was given up.
        let Some(sequence) = sequence else { return };
        if let Some(slot) = calls.unanswered(sequence)
            && slot.again == 0
        {
            let after = now.saturating_sub(slot.sent);
            calls.patience.answered(after);
        }
        let Some((token, begun)) = calls.end(sequence) else {
            return;
        };
        let outcome = match arrival.kind {
            Kind::Plain => Ok(response),
            Kind::Refusal => Err(CallError::Refused {
                peer: self.port.name(connection).to_owned(),
                reason: one_line(&String::from_utf8_lossy(response)),
            }),
        };
        ended(Ended {
            connection,
            token,
            begun,
            outcome,
        });
    }

    fn take_reads(&mut self, ended: &mut impl FnMut(Ended<'_>)) -> usize {
        if self.port.read.is_empty() {
            return 0;
        }
        let reads = std::mem::take(&mut self.port.read);
        let count = reads.len();
        let mut bytes = Vec::new();
        for (id, buffer, length) in reads {
            let connection = (id >> 32) as usize;
            let calls = &mut self.calls[connection];
            let Some(buffer) = buffer else { continue };
            // READs of a connection end in order.
            if let Some((token, begun)) = calls.end(calls.oldest) {
                bytes.clear();
                buffer.read_append(0, length, &mut bytes);
                self.port.context().charge(Work::Copy(length));
                ended(Ended {
                    connection,
                    token,
                    begun,
                    outcome: Ok(&bytes),
                });
            }
            self.buffers.push(buffer);
        }
        count
    }

    /// Ends calls whose deadline has passed, sends again what was not answered, and looks whether silent peers are there.
    fn look_at_time(&mut self, now: Duration, ended: &mut impl FnMut(Ended<'_>)) -> usize {
        let lossy = self.options.protocol.is_lossy();
        let mut due = now + STATE_INTERVAL;
        let mut happened = 0;
        self.port.look_at_states();
        for connection in 0..self.calls.len() {
            if self.port.gone(connection).is_some() {
                continue;
            }
            // When all requests have been taken, nothing else tells that it has died since.
            if !lossy && self.calls[connection].are_silent(now, SILENCE_MAX) {
                self.port.probe(connection);
            }
            let (oldest, next) = (self.calls[connection].oldest, self.calls[connection].next);
            for sequence in oldest..next {
                let Some(slot) = self.calls[connection].unanswered(sequence) else {
                    continue;
                };
                let (token, begun) = (slot.token, slot.begun);
                let over = slot.deadline.is_some_and(|deadline| deadline <= now);
                if slot.state == State::Pending && over {
                    slot.state = State::Abandoned;
                    happened += 1;
                    ended(Ended {
                        connection,
                        token,
                        begun,
                        outcome: Err(CallError::Deadline {
                            peer: self.port.name(connection).to_owned(),
                            after: now.saturating_sub(begun),
                        }),
                    });
                } else if let (State::Pending, Some(deadline)) = (slot.state, slot.deadline) {
                    due = due.min(deadline);
                }
                if !lossy {
                    continue;
                }
                if now >= begun + self.options.give_up_after {
                    let after = self.options.give_up_after;
                    let told = format!("it did not answer for {after:?}");
                    self.port.give_up(connection, Gone(told));
                    break;
                }
                let calls = &mut self.calls[connection];
                if now >= calls.sent_again_at(sequence) {
                    let slot = calls.at(sequence);
                    slot.sent = now;
                    slot.again += 1;
                    let again = slot.again;
                    calls.patience.sent_again(again);
                    self.resent += 1;
                    happened += 1;
                    let request = std::mem::take(&mut calls.at(sequence).request);
                    self.send(connection, sequence, &request);
                    self.calls[connection].at(sequence).request = request;
                }
                due = due.min(self.calls[connection].sent_again_at(sequence));
            }
        }
        self.due = due;
        happened
    }

    /// Ends all calls of a connection that is gone.
    fn fail_all(&mut self, connection: usize, ended: &mut impl FnMut(Ended<'_>)) {
        let Some(gone) = self.port.gone(connection).cloned() else {
            return;
        };
        let error = self.peer_gone(connection, &gone);
        let calls = &mut self.calls[connection];
        for sequence in calls.oldest..calls.next {
            if let Some((token, begun)) = calls.end(sequence) {
                ended(Ended {
                    connection,
                    token,
                    begun,
                    outcome: Err(error.clone()),
                });
            }
        }
    }

    /// Gives a connection up: its calls end with this reason.
    pub fn give_up(&mut self, connection: usize, reason: &str) {
        self.port.give_up(connection, Gone(reason.to_owned()));
    }
}

impl From<ProtocolError> for CallError {
    fn from(error: ProtocolError) -> Self {
        Self::Unsupported(error.to_string())
    }
}
