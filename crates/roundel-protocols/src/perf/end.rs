//! One end of a test: a queue pair with its memory, its posted receives, and the account of what
//! completed. The only place here that knows what differs between transports.

use super::error::{PerfError, Result};
use super::message::Offer;
use super::payload::Payloads;
use super::test::{Polling, Test, Verb};
use roundel_verbs::{
    AddressHandle, Arena, ArenaOptions, Buffer, Completion, CompletionQueue, CompletionStatus,
    CounterSnapshot, Device, ExposedBuffer, Opcode, QueuePair, QueuePairOptions, ReceiveRequest,
    RemoteAddress, SendOperation, SendRequest, Transport, VerbsError,
};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The one that says what is measured.
    Initiator,
    /// The other one.
    Responder,
}

/// Completions taken at a time.
const POLL_MAX: usize = 32;
/// Receives are posted again in batches of at most so many.
const REPOST_MAX: usize = 16;
/// A SEND waits for a receive without end.
const RNR_RETRY: u8 = 7;
const WORD: usize = size_of::<u64>();

/// One end of a test.
pub(super) struct End {
    device: Device,
    pair: QueuePair,
    queue: CompletionQueue,
    arena: Arena,
    transport: Transport,
    verb: Verb,
    bytes: usize,
    peer: String,
    exposed: Option<ExposedBuffer>,
    remote: Option<RemoteAddress>,
    destination: Option<AddressHandle>,
    /// Completions that a sleep found.
    found: Vec<Completion>,
    /// Receives to be posted again.
    receives: Vec<ReceiveRequest>,
    repost: usize,
    counters_before: CounterSnapshot,
    completed: [u64; Opcode::ALL.len()],
}

impl End {
    /// Makes the queue pair and its memory, and posts receives. The device has been asked whether
    /// it can do the test.
    pub(super) fn create(device: &Device, test: &Test, role: Role, peer: &str) -> Result<Self> {
        let capabilities = device.capabilities();
        let counters_before = device.counters();
        let channel = match test.polling {
            Polling::Busy => None,
            Polling::Event => Some(device.create_channel()?),
        };
        let verb = test.posted_verb();
        let send_depth = test.send_depth(capabilities);
        let receive_depth = test.receive_depth(capabilities);
        let queue = device.create_completion_queue(send_depth + receive_depth, channel.as_ref())?;
        let options = QueuePairOptions {
            transport: test.transport,
            send_depth,
            receive_depth,
            rnr_retry: RNR_RETRY,
            queue_key: std::process::id(),
        };
        let pair = device.create_queue_pair(&options, &queue, &queue)?;
        let arena = device.arena(ArenaOptions {
            registered_bytes_max: capabilities.registered_bytes_max,
            ..ArenaOptions::default()
        });
        let is_target = role == Role::Responder || test.goes_both_ways();
        let exposed = match is_target && verb.is_one_sided() {
            // The end of a message falls on the end of a word, which then arrives whole.
            true => Some(arena.allocate_exposed(test.bytes.next_multiple_of(WORD))?),
            false => None,
        };
        let mut end = Self {
            device: device.clone(),
            pair,
            queue,
            arena,
            transport: test.transport,
            verb,
            bytes: test.bytes,
            peer: peer.to_owned(),
            exposed,
            remote: None,
            destination: None,
            found: Vec::with_capacity(POLL_MAX),
            receives: Vec::with_capacity(receive_depth),
            repost: REPOST_MAX.min(receive_depth / 2).max(1),
            counters_before,
            completed: Default::default(),
        };
        if is_target && verb.consumes_receive() {
            for id in 0..receive_depth as u64 {
                let buffer = end.receive_buffer()?;
                end.receives.push(ReceiveRequest { id, buffer });
            }
            end.post_receives()?;
        }
        Ok(end)
    }

    fn receive_buffer(&self) -> Result<Option<Buffer>> {
        Ok(match self.verb {
            // The message goes to exposed memory.
            Verb::WriteImm => None,
            _ => Some(self.arena.allocate(self.header_bytes() + self.bytes)?),
        })
    }

    /// Bytes in front of a received message.
    fn header_bytes(&self) -> usize {
        match self.transport {
            Transport::UnreliableDatagram => self.device.capabilities().grh_bytes,
            _ => 0,
        }
    }

    /// How errors call the other end.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Whether messages may be lost.
    pub(super) fn is_lossy(&self) -> bool {
        self.transport != Transport::ReliableConnection
    }

    /// How the peer reaches this end.
    pub(super) fn offer(&self) -> Offer {
        Offer {
            queue_pair: self.pair.address().clone(),
            exposed: self.exposed.as_ref().map(ExposedBuffer::remote_address),
        }
    }

    /// Connects to the end that offers this.
    pub(super) fn connect(&mut self, offer: &Offer) -> Result<()> {
        let address = &offer.queue_pair;
        match self.transport {
            Transport::UnreliableDatagram => {
                self.pair.activate()?;
                self.destination = Some(self.device.create_address_handle(address)?);
            }
            _ => self.pair.connect(address)?,
        }
        let gap = self.bytes.next_multiple_of(WORD) - self.bytes;
        self.remote = offer.exposed.map(|memory| memory.offset(gap));
        Ok(())
    }

    /// The payloads of this end: inline, one shared buffer, or `owned` buffers.
    pub(super) fn payloads(&self, test: &Test, owned: Option<usize>) -> Result<Payloads> {
        let length = test.bytes;
        if test.is_inline(self.device.capabilities()) {
            let bytes = vec![0; length];
            return Ok(Payloads::Inline { bytes });
        }
        let Some(owned) = owned else {
            let buffer = self.arena.allocate(length)?.share();
            return Ok(Payloads::Shared { buffer, length });
        };
        let free: Result<Vec<Buffer>, VerbsError> = (0..test.owned_buffers(owned))
            .map(|_| self.arena.allocate(length))
            .collect();
        let free = free?;
        Ok(Payloads::Owned { free, length })
    }

    /// A buffer for one message.
    pub(super) fn allocate(&self) -> Result<Buffer> {
        Ok(self.arena.allocate(self.bytes)?)
    }

    /// The peer's exposed memory.
    pub(super) fn remote(&self) -> Result<RemoteAddress> {
        self.remote.ok_or_else(|| PerfError::Protocol {
            peer: self.peer.clone(),
            reason: "it offers no memory".into(),
        })
    }

    /// What a request of the test's verb does. A SEND carries its number if `numbered`.
    pub(super) fn operation(&self, number: u64, numbered: bool) -> Result<SendOperation> {
        Ok(match self.verb {
            Verb::Send if numbered => SendOperation::SendWithImmediate(number as u32),
            Verb::Send => SendOperation::Send,
            Verb::Write => SendOperation::Write(self.remote()?),
            Verb::WriteImm => SendOperation::WriteWithImmediate(self.remote()?, number as u32),
            Verb::Read => SendOperation::Read(self.remote()?),
            // From number 1 on, each finds what the one before it left: they all change the word.
            Verb::CompareAndSwap => SendOperation::CompareAndSwap {
                at: self.remote()?,
                compare: number.wrapping_sub(1),
                swap: number,
            },
            Verb::FetchAndAdd => SendOperation::FetchAndAdd {
                at: self.remote()?,
                add: 1,
            },
        })
    }

    /// Where datagrams go.
    pub(super) fn destination(&self) -> Option<&AddressHandle> {
        self.destination.as_ref()
    }

    /// Posts requests, as many as there is room for; returns how many.
    pub(super) fn post(&self, requests: &mut Vec<SendRequest>) -> Result<usize> {
        Ok(self.pair.post_send(requests)?)
    }

    /// Hands the completions that are there to `take`; returns how many there were.
    pub(super) fn poll(&mut self, mut take: impl FnMut(&mut Self, Completion)) -> Result<usize> {
        let mut found = std::mem::take(&mut self.found);
        if found.is_empty() {
            self.queue.poll(&mut found, POLL_MAX);
        }
        let count = found.len();
        for completion in found.drain(..) {
            self.account(&completion)?;
            take(self, completion);
        }
        self.found = found;
        Ok(count)
    }

    /// The next completion, if there is one.
    pub(super) fn poll_one(&mut self) -> Result<Option<Completion>> {
        self.queue.poll(&mut self.found, 1);
        match self.found.pop() {
            Some(completion) => {
                self.account(&completion)?;
                Ok(Some(completion))
            }
            None => Ok(None),
        }
    }

    fn account(&mut self, completion: &Completion) -> Result<()> {
        if completion.status != CompletionStatus::Success {
            return Err(PerfError::Completion {
                what: completion.opcode.name(),
                peer: self.peer.clone(),
                status: completion.status,
            });
        }
        self.completed[completion.opcode as usize] += 1;
        Ok(())
    }

    /// Sleeps until there is a completion, for the next poll to take.
    pub(super) fn sleep(&mut self, at_most: Duration) -> Result<()> {
        if self.found.is_empty() {
            self.queue.wait(&mut self.found, POLL_MAX, 0, at_most)?;
        }
        Ok(())
    }

    /// Takes the buffer of a completed receive, to post it again with others.
    pub(super) fn give_back(&mut self, receive: Completion) {
        self.receives.push(ReceiveRequest {
            id: receive.id,
            buffer: receive.buffer,
        });
    }

    /// Posts the receives that were given back, once there are enough for one call.
    pub(super) fn repost(&mut self) -> Result<()> {
        if self.receives.len() >= self.repost {
            self.post_receives()?;
        }
        Ok(())
    }

    /// Posts all receives that were given back.
    pub(super) fn post_receives(&mut self) -> Result<()> {
        self.pair.post_receive(&mut self.receives)?;
        Ok(())
    }

    /// Copies a received message out; empty when it is not of the test's size.
    pub(super) fn message(&self, receive: &Completion) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (&receive.buffer, receive.written) {
            (Some(buffer), false) if receive.bytes == self.header_bytes() + self.bytes => {
                buffer.read_append(self.header_bytes(), self.bytes, &mut bytes);
            }
            (_, true) if receive.bytes == self.bytes => bytes = self.memory(),
            _ => {}
        }
        bytes
    }

    /// Copies the message in exposed memory out; empty when there is no such memory.
    pub(super) fn memory(&self) -> Vec<u8> {
        let Some(exposed) = &self.exposed else {
            return Vec::new();
        };
        let mut bytes = vec![0; self.bytes];
        exposed.read(exposed.len() - self.bytes, &mut bytes);
        bytes
    }

    /// Puts a message into exposed memory.
    pub(super) fn set_memory(&self, message: &[u8]) {
        let Some(exposed) = &self.exposed else { return };
        let mut bytes = vec![0; exposed.len() - message.len()];
        bytes.extend_from_slice(message);
        for (index, word) in bytes.chunks_exact(WORD).enumerate() {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            exposed.word(WORD * index).store(word, Ordering::Release);
        }
    }

    /// The last byte of the message in exposed memory, which arrives last.
    pub(super) fn mark(&self) -> u8 {
        let Some(exposed) = &self.exposed else {
            return 0;
        };
        let word = exposed.word(exposed.len() - WORD);
        word.load(Ordering::Acquire).to_ne_bytes()[WORD - 1]
    }

    /// Makes the last word zero: no message that is polled for ends so, and atomics begin there.
    pub(super) fn clear_mark(&self) {
        if let Some(exposed) = &self.exposed {
            let word = exposed.word(exposed.len() - WORD);
            word.store(0, Ordering::Release);
        }
    }

    /// Whether the word in exposed memory, since it was cleared, was changed by this many atomics:
    /// each made it greater by one.
    pub(super) fn check_word(&self, atomics: u64) -> Result<()> {
        let word = self.memory().try_into().map_or(0, u64::from_ne_bytes);
        if word == atomics {
            return Ok(());
        }
        Err(PerfError::Miscounted {
            what: format!("changes of the word by {}", self.verb.name()),
            expected: atomics,
            found: word,
            peer: self.peer.clone(),
        })
    }

    /// Completions so far, of this opcode.
    pub(super) fn completed(&self, opcode: Opcode) -> u64 {
        self.completed[opcode as usize]
    }

    /// Whether the device counted what completed here.
    pub(super) fn check_counters(&self) -> Result<()> {
        let counted = self.device.counters().since(&self.counters_before);
        let wrong = |what: String, expected, found| PerfError::Miscounted {
            what,
            expected,
            found,
            peer: self.peer.clone(),
        };
        for opcode in Opcode::ALL {
            let (expected, found) = (self.completed(opcode), counted.messages(opcode));
            let what = |unit| format!("{unit} of {} in the device's counters", opcode.name());
            if expected != found {
                return Err(wrong(what("messages"), expected, found));
            }
            let expected = expected * self.bytes as u64;
            // On some transports a receive also counts the bytes of a header.
            if opcode != Opcode::Receive && counted.bytes(opcode) != expected {
                return Err(wrong(what("bytes"), expected, counted.bytes(opcode)));
            }
        }
        Ok(())
    }
}
