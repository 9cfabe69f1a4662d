//! The untimed pass before a test: messages with a pattern, each of which the other end compares
//! byte by byte. It uses the queue pairs, the receives and the memory that the test uses.
//!
//! ```text
//!   the end with the message            the other end
//!   posts, waits for completions
//!                     ── both are ready ──
//!                                       compares what is there
//!                     ── both are ready ──
//! ```
//!
//! Of READ the end with the message puts it into its memory, and the other one reads it.

use super::bandwidth::QUIET;
use super::end::End;
use super::error::{PerfError, Result};
use super::link::Link;
use super::payload::{fill, first_difference};
use super::session::Role;
use super::test::{Test, Verb};
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{Capabilities, Completion, Context, Opcode, Payload, SendRequest};
use std::time::Duration;

/// Rounds, each with a pattern of its own: what an earlier one left behind does not pass.
const ROUNDS: u64 = 2;
/// Messages of a round, where each has memory of its own.
const MESSAGES: usize = 8;
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
        // What is read goes the other way.
        let first = match self.test.verb {
            Verb::Read => Role::Responder,
            _ => Role::Initiator,
        };
        self.from(first)?;
        if self.test.goes_both_ways() {
            self.from(Role::Responder)?;
        }
        Ok(())
    }

    fn from(&mut self, from: Role) -> Result<()> {
        let has_message = self.role == from;
        let mut verified = 0;
        for round in 0..ROUNDS {
            // One for each message.
            let first = (2 * round + from as u64) * MESSAGES as u64;
            let seed = self.seed.wrapping_add(first);
            match (has_message, self.test.verb) {
                (true, Verb::Read) => {
                    self.end.set_memory(&self.pattern(seed));
                    self.link.synchronize()?;
                }
                (true, _) => {
                    self.send(seed)?;
                    self.link.synchronize()?;
                }
                (false, Verb::Read) => {
                    self.link.synchronize()?;
                    verified += self.read(seed)?;
                }
                (false, _) => {
                    self.link.synchronize()?;
                    verified += self.receive(seed)?;
                }
            }
            self.link.synchronize()?;
        }
        if !has_message && verified == 0 {
            return Err(self.missing(ROUNDS * self.messages(), 0));
        }
        Ok(())
    }

    /// Messages of a round.
    fn messages(&self) -> u64 {
        match self.test.verb {
            Verb::Send => MESSAGES.min(self.test.receive_depth(self.device)) as u64,
            // They all go to the same memory.
            Verb::Write | Verb::WriteImm | Verb::Read => 1,
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
            self.post(number, payload)?;
        }
        Ok(())
    }

    fn read(&mut self, seed: u64) -> Result<u64> {
        let buffer = self.end.allocate()?;
        let length = buffer.len();
        let completion = self.post(0, Payload::Owned { buffer, length })?;
        let mut bytes = Vec::new();
        if let Some(buffer) = completion.buffer {
            buffer.read_append(0, length, &mut bytes);
        }
        self.compare(seed, 0, &bytes)?;
        Ok(1)
    }

    /// Posts a request and waits for its completion.
    fn post(&mut self, number: u64, payload: Payload) -> Result<Completion> {
        let mut requests = vec![SendRequest {
            id: number,
            operation: self.end.operation(number, true)?,
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

    /// Compares the messages of a round; returns how many there were.
    fn receive(&mut self, seed: u64) -> Result<u64> {
        if self.test.posted_verb() == Verb::Write {
            self.compare(seed, 0, &self.end.memory())?;
            return Ok(1);
        }
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
            self.compare(
                seed.wrapping_add(number),
                number,
                &self.end.message(&receive),
            )?;
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

    fn compare(&self, seed: u64, message: u64, bytes: &[u8]) -> Result<()> {
        // A message of another size is wrong from its first byte on.
        let differs = match bytes.len() == self.test.bytes {
            true => first_difference(seed, bytes),
            false => Some(0),
        };
        match differs {
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
