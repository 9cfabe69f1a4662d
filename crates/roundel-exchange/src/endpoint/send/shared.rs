//! Buffers of messages that several may need: those posted to every member of a group, and those that members have not
//! read yet. A buffer goes back to its group when the last of them is done.

use crate::designs::carrier::Filled;
use crate::error::Result;
use crate::fabric::expose;
use roundel_verbs::{Buffer, ExposedBuffer, Payload, SharedBuffer};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Shared {
    next: u64,
    /// By number.
    posted: BTreeMap<u64, Posted>,
    unread: BTreeMap<u64, Unread>,
}

/// A buffer posted to every member of a group.
struct Posted {
    buffer: SharedBuffer,
    group: usize,
}

/// A message that is not read by every member of its group.
struct Unread {
    buffer: ExposedBuffer,
    group: usize,
    members: Vec<usize>,
}

impl Shared {
    /// A message that is posted to all members; with its number.
    pub(super) fn post(
        &mut self,
        group: usize,
        memory: Buffer,
        length: usize,
    ) -> (u64, impl Fn() -> Filled + use<>) {
        let buffer = memory.share();
        let posted = Posted {
            buffer: buffer.clone(),
            group,
        };
        let number = self.number();
        self.posted.insert(number, posted);
        let message = move || {
            Filled::Bytes(Payload::Shared {
                buffer: buffer.clone(),
                length,
            })
        };
        (number, message)
    }

    /// A message that all members are to read.
    pub(super) fn lay_out(
        &mut self,
        group: usize,
        members: &[usize],
        memory: Buffer,
        length: usize,
    ) -> Result<impl Fn() -> Filled + use<>> {
        let number = self.number();
        let buffer = expose(memory)?;
        let at = buffer.remote_address();
        let unread = Unread {
            buffer,
            group,
            members: members.to_vec(),
        };
        self.unread.insert(number, unread);
        Ok(move || Filled::Exposed { at, length, number })
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// One of the sends of a message has completed: the buffer and its group, if it was the last.
    pub(super) fn completed(&mut self, number: u64) -> Option<(usize, Buffer)> {
        let posted = self.posted.remove(&number)?;
        match posted.buffer.try_into_owned() {
            Ok(buffer) => Some((posted.group, buffer)),
            // Others have not completed yet.
            Err(buffer) => {
                self.posted.insert(number, Posted { buffer, ..posted });
                None
            }
        }
    }

    /// A member has read a message, or will not. `Err` when it had not been told of it, else the buffer and its group,
    /// if it was the last.
    pub(super) fn was_read(
        &mut self,
        number: u64,
        member: usize,
    ) -> Result<Option<(usize, Buffer)>, ()> {
        let unread = self.unread.get_mut(&number).ok_or(())?;
        let mut members = unread.members.iter();
        let at = members.position(|one| *one == member).ok_or(())?;
        unread.members.swap_remove(at);
        if !unread.members.is_empty() {
            return Ok(None);
        }
        let read = self.unread.remove(&number);
        Ok(read.map(|read| (read.group, read.buffer.reclaim())))
    }

    /// Numbers of the messages that somebody has not read.
    pub(super) fn unread(&self) -> Vec<u64> {
        self.unread.keys().copied().collect()
    }

    /// Forgets the posted buffers of some groups: they go back to the arena when they have completed.
    pub(super) fn forget_posted(&mut self, of: impl Fn(usize) -> bool) {
        self.posted.retain(|_, posted| !of(posted.group));
    }
}
