//! The untimed pass before a test: messages with a pattern, each of which the other end compares
//! byte by byte. It uses the queue pairs, the receives and the memory that the test uses.
//!
//! ```text
//!   the end that posts                  the other end
//!                                       prepares its memory
//!                     ── both are ready ──
//!   posts, waits for completions
//!                     ── both are ready ──
//!                                       compares what is there
//!                     ── both are ready ──
//! ```
//!
//! What READ and atomics bring back the end that posts compares, too.

use super::bandwidth::QUIET;
use super::end::{End, Role};
use super::error::{PerfError, Result};
use super::link::Link;
use super::payload::{fill, first_difference, word};
use super::test::{Test, Verb};
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{
    Capabilities, Completion, Context, Opcode, Payload, SendOperation, SendRequest,
};
use std::time::Duration;

/// Rounds, each with a pattern of its own, so that bytes of an earlier one do not pass.
const ROUNDS: u64 = 2;
/// Messages of a round, where each has memory of its own.
const MESSAGES: usize = 8;
/// Atomics of a round.
const ATOMICS: usize = 2;
/// How long a message may take that its sender saw complete.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pass as one end sees it.
pub(super) struct Verification<'a> {
    pub end: &'a mut End,
    pub link: &'a mut Link,
    pub test: &'a Test,
    /// The same at both ends.
    pub seed: u64,
    pub role: Role,
    pub device: &'a Capabilities,
    pub context: &'a dyn Context,
}

impl Verification<'_> {
    /// Does it: from the initiator to the responder, and back if messages will go there too.
    pub(super) fn run(mut self) -> Result<()> {
        self.from(Role::Initiator)?;
        if self.test.goes_both_ways() {
            self.from(Role::Responder)?;
        }
        Ok(())
    }

    /// The rounds in which this end posts.
    fn from(&mut self, from: Role) -> Result<()> {
        let posts = self.role == from;
        let mut verified = 0;
        for round in 0..ROUNDS {
            // One for each message.
            let first = (2 * round + from as u64) * MESSAGES as u64;
            let seed = self.seed.wrapping_add(first);
            if !posts {
                self.prepare(seed);
            }
            self.link.synchronize()?;
            if posts {
                self.post_round(seed)?;
            }
            self.link.synchronize()?;
            if !posts {
                verified += self.receive_round(seed)?;
            }
            self.link.synchronize()?;
        }
        // Where all may be lost, only the end that receives knows.
        if !posts && verified == 0 {
            return Err(self.missing(ROUNDS * self.messages(), 0));
        }
        Ok(())
    }

    /// Fills the memory that the other end will reach.
    fn prepare(&self, seed: u64) {
        let verb = self.test.verb;
        let bytes = match verb {
            Verb::Read => self.pattern(seed),
            Verb::CompareAndSwap | Verb::FetchAndAdd => words(verb, seed)[0].to_ne_bytes().to_vec(),
            // Of the message that is expected, no byte is there before it comes.
            Verb::Send | Verb::Write | Verb::WriteImm => {
                let mut bytes = self.pattern(seed);
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                bytes
            }
        };
        self.end.set_memory(&bytes);
    }

    fn post_round(&mut self, seed: u64) -> Result<()> {
        match self.test.verb {
            Verb::Send | Verb::Write | Verb::WriteImm => self.send(seed),
            Verb::Read => self.read(seed),
            Verb::CompareAndSwap | Verb::FetchAndAdd => self.change_word(seed),
        }
    }

    /// Compares what the other end's round left here; returns how many messages there were.
    fn receive_round(&mut self, seed: u64) -> Result<u64> {
        let verb = self.test.posted_verb();
        match verb {
            Verb::Send | Verb::WriteImm => return self.receive(seed),
            Verb::Write => return self.written(seed),
            // The end that posts has compared it.
            Verb::Read => {}
            Verb::CompareAndSwap | Verb::FetchAndAdd => {
                let left = words(verb, seed)[ATOMICS].to_ne_bytes();
                self.compare(&left, ATOMICS as u64, &self.end.memory())?;
            }
        }
        Ok(self.messages())
    }

    /// Messages of a round.
    fn messages(&self) -> u64 {
        match self.test.verb {
            Verb::Send => MESSAGES.min(self.test.receive_depth(self.device)) as u64,
            // They all go to the same memory.
            _ => 1,
        }
    }

    fn pattern(&self, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.test.bytes];
        fill(seed, &mut bytes);
        bytes
    }

    fn send(&mut self, seed: u64) -> Result<()> {
        for number in 0..self.messages() {
            let bytes = self.pattern(seed.wrapping_add(number));
            let inline = InlineBytes::new(&bytes).filter(|_| self.test.is_inline(self.device));
            let payload = match inline {
                Some(bytes) => Payload::Inline(bytes),
                None => {
                    let mut buffer = self.end.allocate()?;
                    buffer.write(0, &bytes);
                    let length = bytes.len();
                    Payload::Owned { buffer, length }
                }
            };
            let operation = self.end.operation(number, true)?;
            self.post(number, operation, payload)?;
        }
        Ok(())
    }

    fn read(&mut self, seed: u64) -> Result<()> {
        let operation = self.end.operation(0, true)?;
        let bytes = self.fetch(0, operation)?;
        self.compare(&self.pattern(seed), 0, &bytes)
    }

    /// Two atomics, of which the second finds what the first left.
    fn change_word(&mut self, seed: u64) -> Result<()> {
        let verb = self.test.verb;
        let at = self.end.remote()?;
        let words = words(verb, seed);
        for number in 0..ATOMICS {
            let operand = word(seed, number + 1);
            let operation = match verb {
                Verb::CompareAndSwap => SendOperation::CompareAndSwap {
                    at,
                    // Of the second it is wrong.
                    compare: words[0],
                    swap: operand,
                },
                _ => SendOperation::FetchAndAdd { at, add: operand },
            };
            let bytes = self.fetch(number as u64, operation)?;
            self.compare(&words[number].to_ne_bytes(), number as u64, &bytes)?;
        }
        Ok(())
    }

    /// Posts a request that brings bytes back, and waits for them.
    fn fetch(&mut self, number: u64, operation: SendOperation) -> Result<Vec<u8>> {
        let buffer = self.end.allocate()?;
        let length = buffer.len();
        let completion = self.post(number, operation, Payload::Owned { buffer, length })?;
        let mut bytes = Vec::new();
        if let Some(buffer) = completion.buffer {
            buffer.read_append(0, length, &mut bytes);
        }
        Ok(bytes)
    }

    /// Posts a request and waits for its completion.
    fn post(
        &mut self,
        number: u64,
        operation: SendOperation,
        payload: Payload,
    ) -> Result<Completion> {
        let mut requests = vec![SendRequest {
            id: number,
            operation,
            payload,
            destination: self.end.destination().cloned(),
        }];
        self.end.post(&mut requests)?;
        let opcode = self.test.posted_verb().opcode();
        match self.wait(opcode, PATIENCE)? {
            Some(completion) => Ok(completion),
            None => Err(self.missing(1, 0)),
        }
    }

    /// Compares what the WRITE of a round left in memory; returns whether it has come.
    fn written(&mut self, seed: u64) -> Result<u64> {
        if self.end.is_lossy() {
            let Some(before) = self.pattern(seed).last().map(|byte| !byte) else {
                return Ok(0);
            };
            // The last byte comes last, if any is lost.
            let until = self.context.now() + QUIET;
            while self.end.mark() == before {
                self.link.check()?;
                if self.context.now() > until {
                    return Ok(0);
                }
                std::thread::yield_now();
            }
        }
        self.compare(&self.pattern(seed), 0, &self.end.memory())?;
        Ok(1)
    }

    /// Compares the messages of a round that consumed receives; returns how many there were.
    fn receive(&mut self, seed: u64) -> Result<u64> {
        let is_lossy = self.end.is_lossy();
        let patience = if is_lossy { QUIET } else { PATIENCE };
        let expected = self.messages();
        let mut found = 0;
        while found < expected {
            let Some(receive) = self.wait(Opcode::Receive, patience)? else {
                if is_lossy {
                    break;
                }
                return Err(self.missing(expected, found));
            };
            let number = if is_lossy {
                u64::from(receive.immediate.unwrap_or(u32::MAX))
            } else {
                found
            };
            if receive.immediate != Some(number as u32) || number >= expected {
                return Err(PerfError::Miscounted {
                    what: format!("number of a message by {}", self.test.verb.name()),
                    expected: number,
                    found: receive.immediate.map_or(u64::MAX, u64::from),
                    peer: self.end.peer().to_owned(),
                });
            }
            let expected = self.pattern(seed.wrapping_add(number));
            self.compare(&expected, number, &self.end.message(&receive))?;
            self.end.give_back(receive);
            found += 1;
        }
        self.end.post_receives()?;
        Ok(found)
    }

    /// Waits for a completion of this opcode; others have nothing to say.
    fn wait(&mut self, opcode: Opcode, patience: Duration) -> Result<Option<Completion>> {
        let until = self.context.now() + patience;
        loop {
            let found = self.end.poll_one()?;
            if found.as_ref().is_some_and(|found| found.opcode == opcode) {
                return Ok(found);
            }
            self.link.check()?;
            if self.context.now() > until {
                return Ok(None);
            }
            std::thread::yield_now();
        }
    }

    fn compare(&self, expected: &[u8], message: u64, bytes: &[u8]) -> Result<()> {
        match first_difference(expected, bytes) {
            None => Ok(()),
            Some(at) => Err(PerfError::WrongBytes {
                peer: self.end.peer().to_owned(),
                what: self.test.verb.name(),
                message,
                bytes: self.test.bytes,
                at,
            }),
        }
    }

    fn missing(&self, expected: u64, found: u64) -> PerfError {
        PerfError::Miscounted {
            what: format!("messages by {} to verify", self.test.verb.name()),
            expected,
            found,
            peer: self.end.peer().to_owned(),
        }
    }
}

/// What a round of atomics finds in memory, one after the other, and what it leaves there.
fn words(verb: Verb, seed: u64) -> [u64; ATOMICS + 1] {
    let [before, first, second] = [0, 1, 2].map(|index| word(seed, index));
    match verb {
        Verb::CompareAndSwap => [before, first, first],
        _ => {
            let sum = before.wrapping_add(first);
            [before, sum, sum.wrapping_add(second)]
        }
    }
}
