//! Over datagrams: messages that a receiver misses are made once more, from what is kept of them
//! until the receiver has acknowledged them.

use super::SendEndpoint;
use super::posting::REPAIR;
use super::state::{CONTROL_SENDS, State};
use crate::wire::{Data, HEADER_LENGTH, Missing};
use roundel_verbs::{Buffer, Payload};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Buffers of an endpoint for repairs.
pub(super) const REPAIR_BUFFERS: usize = 8;

/// What the payloads of messages are cut from. It does not change.
pub trait Origin: Send + Sync {
    /// Calls `write` with the bytes of a range, in order, in pieces: each with its offset in the
    /// range.
    fn read(&self, range: Range<usize>, write: &mut dyn FnMut(usize, &[u8]));
}

/// A message that may have to be sent again. All members of a group get the same bytes.
pub(super) struct Kept {
    partition: u32,
    data: Data,
    content: Content,
    asked: Vec<Asked>,
}

/// What its payload can be made from.
enum Content {
    Copy(Vec<u8>),
    Origin(Arc<dyn Origin>),
}

/// A destination that has asked for a message.
struct Asked {
    destination: usize,
    /// It waits to be sent.
    waits: bool,
    /// When it was last sent.
    sent_at: Option<Duration>,
}

/// A message to send again.
#[derive(Clone, Copy)]
pub(super) struct Repair {
    destination: usize,
    group: u16,
    sequence: u64,
}

impl Kept {
    /// Keeps a message that is in `memory`: the origin of its payload, or else a copy of it.
    pub(super) fn new(
        partition: u32,
        data: Data,
        origin: Option<&Arc<dyn Origin>>,
        memory: &Buffer,
        spare_copies: &mut Vec<Vec<u8>>,
    ) -> Self {
        let content = match origin {
            Some(origin) => Content::Origin(origin.clone()),
            None => {
                let mut copy = spare_copies
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

    /// The memory of a copy, to use again.
    pub(super) fn into_copy(self) -> Option<Vec<u8>> {
        match self.content {
            Content::Copy(copy) => Some(copy),
            Content::Origin(_) => None,
        }
    }

    fn asked_by(&mut self, destination: usize) -> &mut Asked {
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

impl SendEndpoint {
    /// A destination misses messages of a group. What was never sent, or has been acknowledged, or
    /// was sent again just now, is not meant.
    pub(super) fn take_missing(
        &self,
        state: &mut State,
        index: usize,
        group: u16,
        missing: Missing,
    ) {
        let now = self.0.fabric.context.now();
        let recent = self.0.options.repeat_interval / 2;
        let State {
            groups, repairs, ..
        } = state;
        let Some((member, retained)) = State::retained(groups, index, usize::from(group)) else {
            return;
        };
        for sequence in missing.sequences() {
            let Some(kept) = retained.missed(member, sequence) else {
                continue;
            };
            let asked = kept.asked_by(index);
            let was_sent = |at| now.saturating_sub(at) < recent;
            if !asked.waits && !asked.sent_at.is_some_and(was_sent) {
                asked.waits = true;
                repairs.push_back(Repair {
                    destination: index,
                    group,
                    sequence,
                });
            }
        }
    }

    /// Sends again what is missing, as far as there are buffers and room; returns whether there
    /// was any. That costs no credit: what was lost has not used up the receive it was paid with.
    pub(super) fn repair(&self, state: &mut State) -> bool {
        let mut any = false;
        while let Some(next) = state.repairs.front().copied() {
            if !state.has_room(next.destination, 1 + CONTROL_SENDS) {
                break;
            }
            let Some(buffer) = state.repair_buffers.pop() else {
                break;
            };
            state.repairs.pop_front();
            any = true;
            self.send_again(state, next, buffer);
        }
        any
    }

    fn send_again(&self, state: &mut State, repair: Repair, mut buffer: Buffer) {
        let Repair {
            destination,
            group,
            sequence,
        } = repair;
        let index = usize::from(group);
        let kept = State::retained(&mut state.groups, destination, index)
            .and_then(|(member, retained)| retained.missed(member, sequence));
        let Some(kept) = kept else {
            // It has arrived meanwhile.
            state.repair_buffers.push(buffer);
            return;
        };
        let asked = kept.asked_by(destination);
        asked.waits = false;
        asked.sent_at = Some(self.0.fabric.context.now());
        let (partition, data) = (kept.partition, kept.data);
        let (offset, length) = (data.offset as usize, data.payload_length as usize);
        match &kept.content {
            Content::Copy(copy) => buffer.write(HEADER_LENGTH, copy),
            Content::Origin(origin) => origin.read(offset..offset + length, &mut |at, bytes| {
                buffer.write(HEADER_LENGTH + at, bytes);
            }),
        }
        let header = self.data_header(state, index, sequence, partition, data);
        buffer.write(0, &header.emit());
        let payload = Payload::Owned {
            buffer,
            length: HEADER_LENGTH + length,
        };
        // A destination that cannot be sent to has failed, and says so to whoever sends to it.
        if state.send(destination, REPAIR, payload).is_ok() {
            state.report.repaired_messages += 1;
            state.destinations[destination].report.repaired_messages += 1;
        }
    }
}
