//! The end that answers: it takes requests of several peers and has a handler answer each, once. Where messages may
//! be lost, it keeps its answers: a request that comes again gets the one that it got.

use crate::end::{EndOptions, Fabric};
use crate::error::{Gone, Result};
use crate::message::frame::{Kind, sequence_near};
use crate::message::{Arrival, Arrivals, Port, Sweeps};
use crate::protocol::Protocol;
use roundel_verbs::{CompletionQueue, ExposedBuffer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const WORD_BYTES: usize = 8;

/// What answers requests: of a connection, a request; it appends the response, or refuses and says why.
pub trait Handler {
    /// Answers a request.
    ///
    /// # Errors
    /// The reason why it refuses.
    fn handle(
        &mut self,
        connection: usize,
        request: &[u8],
        response: &mut Vec<u8>,
    ) -> Result<(), String>;
}

impl<F: FnMut(usize, &[u8], &mut Vec<u8>) -> Result<(), String>> Handler for F {
    fn handle(
        &mut self,
        connection: usize,
        request: &[u8],
        response: &mut Vec<u8>,
    ) -> Result<(), String> {
        self(connection, request, response)
    }
}

/// Memory that requesters READ. Clones share it, also with a responder that answers meanwhile.
#[derive(Clone)]
pub struct Values(Arc<ExposedBuffer>);

impl Values {
    /// Puts bytes where they can be read. A READ that comes meanwhile sees each aligned word of 8 bytes as it was or as
    /// it is.
    ///
    /// # Panics
    /// When the range is not inside that memory, or not of whole words.
    pub fn publish(&self, offset: usize, bytes: &[u8]) {
        assert!(
            bytes.len().is_multiple_of(WORD_BYTES),
            "{} bytes are not whole words",
            bytes.len()
        );
        for (index, word) in bytes.chunks_exact(WORD_BYTES).enumerate() {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            let at = self.0.word(offset + WORD_BYTES * index);
            at.store(word, Ordering::Release);
        }
    }
}

/// The end that answers.
pub struct Responder {
    port: Port,
    options: EndOptions,
    served: Vec<Served>,
    /// What can be read, where the protocol reads.
    values: Option<Values>,
    arrivals: Arrivals,
    response: Vec<u8>,
    sweeps: Sweeps,
    answered: u64,
    repeated: u64,
}

/// What a connection was answered.
struct Served {
    /// Number of the next request.
    next: u64,
    /// Of each slot the last answer, where messages may be lost.
    answers: Vec<Option<Answer>>,
}

struct Answer {
    sequence: u64,
    kind: Kind,
    response: Vec<u8>,
}

impl Responder {
    /// Makes it for so many connections; where the protocol reads, with `readable` bytes of memory for that.
    ///
    /// # Errors
    /// When the device cannot carry the protocol, or has no room.
    pub fn open(
        fabric: &Fabric,
        connections: usize,
        readable: usize,
        options: &EndOptions,
    ) -> Result<Self> {
        let port = Port::open(fabric, options, false, connections)?;
        let values = match options.protocol == Protocol::Read && readable > 0 {
            true => Some(Values(Arc::new(fabric.arena.allocate_exposed(readable)?))),
            false => None,
        };
        let slots = if options.protocol.is_lossy() {
            options.pending
        } else {
            0
        };
        let served = || Served {
            next: 0,
            answers: (0..slots).map(|_| None).collect(),
        };
        Ok(Self {
            port,
            options: options.clone(),
            served: (0..connections).map(|_| served()).collect(),
            values,
            arrivals: Arrivals::default(),
            response: Vec::with_capacity(options.response_bytes),
            sweeps: Sweeps::default(),
            answered: 0,
            repeated: 0,
        })
    }

    /// What the requester of a connection needs to know.
    pub fn offer(&self, connection: usize) -> Vec<u8> {
        let mut offer = self.port.offer(connection);
        if let Some(Values(values)) = &self.values {
            offer.memory = Some(values.remote_address());
            offer.readable = values.len() as u64;
        }
        offer.to_bytes()
    }

    /// Connects to the requester that offers this, which errors call `peer`.
    ///
    /// # Errors
    /// When the offer does not fit, or a verb fails.
    pub fn connect(&mut self, connection: usize, offer: &[u8], peer: &str) -> Result<()> {
        self.port.connect(connection, offer, peer)
    }

    /// Queue pairs that it has.
    pub fn queue_pairs(&self) -> usize {
        self.port.queue_pairs()
    }

    /// Requests answered so far, each counted once, and answers sent again.
    pub fn counts(&self) -> (u64, u64) {
        (self.answered, self.repeated)
    }

    /// The completion queue that tells of messages, for a task that waits for them.
    pub fn queue(&self) -> &CompletionQueue {
        self.port.queue()
    }

    /// Whether requests only show in memory, so that nobody can sleep until one comes.
    pub fn must_look(&self) -> bool {
        self.port.looks_at_slots()
    }

    /// What can be read, where the protocol reads.
    pub fn values(&self) -> Option<&Values> {
        self.values.as_ref()
    }

    /// When [`poll`](Self::poll) has something to do although nothing comes; `None` when it has not.
    pub fn due(&self) -> Option<Duration> {
        self.sweeps.due()
    }

    /// Takes the requests that have come, has each answered, and posts the answers together. Returns how much
    /// happened.
    ///
    /// # Errors
    /// When a verb fails in a way that is not a peer's.
    pub fn poll(&mut self, now: Duration, handler: &mut impl Handler) -> Result<usize> {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let mut happened = self.port.poll(&mut arrivals)?;
        if self.port.looks_at_slots() {
            happened += self.look(now, &mut arrivals);
        }
        for (arrival, request) in arrivals.iter() {
            self.asked(arrival, request, handler)?;
        }
        arrivals.clear();
        self.arrivals = arrivals;
        self.port.flush()?;
        Ok(happened)
    }

    /// A connection that broke, and why. Each is reported once.
    pub fn next_gone(&mut self) -> Option<(usize, String)> {
        let connection = self.port.next_gone()?;
        let gone = self.port.gone(connection)?;
        Some((connection, gone.0.clone()))
    }

    /// Notices connections that broke and have nothing to complete.
    pub fn look_at_states(&mut self) {
        self.port.look_at_states();
    }

    /// Looks for requests in memory.
    fn look(&mut self, now: Duration, arrivals: &mut Arrivals) -> usize {
        let mut found = 0;
        for connection in 0..self.served.len() {
            // No requester has more under way; one that does is not let keep this end from the others.
            let next = self.served[connection].next;
            let most = next + self.options.pending as u64;
            let come = (next..most).take_while(|one| self.port.look(connection, *one, arrivals));
            found += come.count();
        }
        // For requests that come again, and those behind one that was lost.
        if self.options.protocol.is_lossy() && self.sweeps.is_time(now, found) {
            for connection in 0..self.served.len() {
                for slot in 0..self.options.pending {
                    let there = self.port.look_at_slot(connection, slot, arrivals);
                    found += usize::from(there);
                }
            }
        }
        found
    }

    fn asked(
        &mut self,
        arrival: &Arrival,
        request: &[u8],
        handler: &mut impl Handler,
    ) -> Result<()> {
        let connection = arrival.connection;
        let served = &mut self.served[connection];
        let Some(sequence) = sequence_near(served.next, arrival.sequence) else {
            return Ok(());
        };
        let lossy = self.options.protocol.is_lossy();
        if !lossy && sequence != served.next {
            let told = format!("request {sequence} came where {} is next", served.next);
            self.port.give_up(connection, Gone(told));
            return Ok(());
        }
        let slots = self.options.pending as u64;
        if lossy {
            if sequence >= served.next + slots {
                // No requester has so many under way.
                return Ok(());
            }
            let slot = (sequence % slots) as usize;
            match &served.answers[slot] {
                Some(answer) if answer.sequence == sequence => {
                    self.repeated += 1;
                    let (kind, response) = (answer.kind, &answer.response);
                    return self.port.send(connection, sequence, kind, response);
                }
                // A late copy of one whose answer has been heard.
                Some(answer) if answer.sequence > sequence => return Ok(()),
                _ => {}
            }
        }
        served.next = served.next.max(sequence + 1);
        self.response.clear();
        let most = self.options.response_bytes;
        let done = handler.handle(connection, request, &mut self.response);
        let done = done.and_then(|()| match self.response.len() {
            bytes if bytes > most => Err(format!(
                "its response has {bytes} bytes, at most {most} fit"
            )),
            _ => Ok(()),
        });
        let kind = match done {
            Ok(()) => Kind::Plain,
            Err(reason) => {
                self.response.clear();
                let told = reason.as_bytes();
                self.response
                    .extend_from_slice(&told[..told.len().min(most)]);
                Kind::Refusal
            }
        };
        self.answered += 1;
        self.port.send(connection, sequence, kind, &self.response)?;
        if lossy {
            let slot = (sequence % slots) as usize;
            let answers = &mut self.served[connection].answers[slot];
            let mut response = answers.take().map_or(Vec::new(), |answer| answer.response);
            std::mem::swap(&mut response, &mut self.response);
            *answers = Some(Answer {
                sequence,
                kind,
                response,
            });
        }
        Ok(())
    }
}
