//! A source keeps a message that may have to be sent again, until it has arrived everywhere. This knows no endpoint.

use crate::wire::{Data, HEADER_LENGTH};
use roundel_verbs::Buffer;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The bytes that the payloads of messages are cut from. They do not change.
pub trait Origin: Send + Sync {
    /// Calls `write` with the bytes of a range, in order, in pieces: each with its offset in the
    /// range.
    fn read(&self, range: Range<usize>, write: &mut dyn FnMut(usize, &[u8]));
}

/// A message that may have to be sent again. All members of a group get the same bytes.
pub(super) struct Kept {
    pub(super) partition: u32,
    pub(super) data: Data,
    content: Content,
    asked: Vec<Asked>,
}

/// What its payload can be made from.
enum Content {
    Copy(Vec<u8>),
    Origin(Arc<dyn Origin>),
}

/// A destination that has asked for a message.
pub(super) struct Asked {
    destination: usize,
    /// It waits to be sent.
    pub(super) waits: bool,
    /// When it was last sent.
    pub(super) sent_at: Option<Duration>,
}

/// A message to send again.
#[derive(Clone, Copy)]
pub(super) struct Repair {
    pub(super) destination: usize,
    pub(super) group: u16,
    pub(super) sequence: u64,
}

/// What is to be sent again.
#[derive(Default)]
pub(super) struct Repairs {
    pub(super) due: VecDeque<Repair>,
    /// Free buffers for it: those of the groups may all be in the hands of tasks that cannot go on before something was
    /// repaired.
    pub(super) buffers: Vec<Buffer>,
    /// All buffers that there are for it.
    pub(super) made: usize,
    /// Memory for copies of messages, to use again.
    spare_copies: Vec<Vec<u8>>,
}

impl Repairs {
    /// Uses the memory of messages again that need not be kept.
    pub(super) fn reuse(&mut self, messages: impl Iterator<Item = Kept>) {
        let copies = messages.filter_map(|kept| match kept.content {
            Content::Copy(copy) => Some(copy),
            Content::Origin(_) => None,
        });
        self.spare_copies.extend(copies);
    }
}

impl Kept {
    /// Keeps a message that is in `memory`: the origin of its payload, or else a copy of it.
    pub(super) fn new(
        partition: u32,
        data: Data,
        origin: Option<&Arc<dyn Origin>>,
        memory: &Buffer,
        repairs: &mut Repairs,
    ) -> Self {
        let content = match origin {
            Some(origin) => Content::Origin(origin.clone()),
            None => {
                let mut copy = repairs
                    .spare_copies
                    .pop()
                    .unwrap_or_else(|| Vec::with_capacity(memory.len()));
                copy.clear();
                memory.read_append(HEADER_LENGTH, data.payload_length as usize, &mut copy);
                Content::Copy(copy)
            }
        };
        Self {
            partition,
            data,
            content,
            asked: Vec::new(),
        }
    }

    /// Writes the payload behind the header of a message.
    pub(super) fn write_payload(&self, buffer: &mut Buffer) {
        let (offset, length) = (self.data.offset as usize, self.data.payload_length as usize);
        match &self.content {
            Content::Copy(copy) => buffer.write(HEADER_LENGTH, copy),
            Content::Origin(origin) => origin.read(offset..offset + length, &mut |at, bytes| {
                buffer.write(HEADER_LENGTH + at, bytes);
            }),
        }
    }

    /// The repetitions that a destination has asked for.
    pub(super) fn asked_by(&mut self, destination: usize) -> &mut Asked {
        let known = self
            .asked
            .iter()
            .position(|asked| asked.destination == destination);
        let index = known.unwrap_or_else(|| {
            self.asked.push(Asked {
                destination,
                waits: false,
                sent_at: None,
            });
            self.asked.len() - 1
        });
        &mut self.asked[index]
    }
}
