//! MQ/WR at the receiver (section 5.5): numbered buffers that the source writes to, and the queue of
//! the source's in which those that are free are named, `FreeArr`.
//!
//! With polled buffers, the receiver looks only at the one that the source was given first, since the source uses them
//! in the order in which it got them. The paper's receivers look at all of them.

use super::Place;
use crate::design::Notification;
use crate::error::Result;
use crate::fabric::{Fabric, expose};
use crate::link::queue::{Queue, RemoteQueue};
use crate::link::seal::{arrived, break_seal, sealed_length};
use crate::options::ExchangeOptions;
use roundel_verbs::{Buffer, ExposedBuffer, SendRequest};
use std::collections::VecDeque;

/// One source that writes.
pub(super) struct Written {
    notification: Notification,
    buffer_bytes: usize,
    /// By number; those that hold a message in hand are not there, nor those without a buffer.
    slots: Vec<Option<ExposedBuffer>>,
    /// Numbers without a buffer.
    vacant: Vec<u32>,
    /// Numbers of free buffers that the source has not been told of.
    untold: VecDeque<u32>,
    /// Those that it has, in order, where buffers are polled.
    given: VecDeque<u32>,
    /// `ValidArr`, where it is polled; and for the source to ask for the bell.
    pub(super) valid: Option<Queue>,
    /// `FreeArr`, once the source has answered.
    pub(super) free: Option<RemoteQueue>,
    /// Messages taken.
    taken: u64,
}

impl Written {
    pub(super) fn open(
        notification: Notification,
        fabric: &Fabric,
        options: &ExchangeOptions,
    ) -> Result<Self> {
        let entries = match notification {
            Notification::MessageQueue => Some(options.window_max()),
            Notification::Buffers => Some(0),
            Notification::CompletionQueue => None,
        };
        let valid = entries.map(|entries| Queue::open(&fabric.arena, entries));
        let mut written = Self {
            notification,
            buffer_bytes: match notification {
                Notification::Buffers => sealed_length(options.message_bytes),
                // Exposed memory is words.
                _ => options.message_bytes.next_multiple_of(8),
            },
            slots: Vec::new(),
            vacant: Vec::new(),
            untold: VecDeque::new(),
            given: VecDeque::new(),
            valid: valid.transpose()?,
            free: None,
            taken: 0,
        };
        for _ in 0..options.window.least {
            let buffer = fabric.buffer(written.buffer_bytes, true)?;
            written.add(expose(buffer)?);
        }
        Ok(written)
    }

    /// Adds up to so many buffers, as far as there is memory to spare; returns how many.
    pub(super) fn widen(&mut self, fabric: &Fabric, wanted: usize) -> usize {
        for added in 0..wanted {
            let buffer = fabric.spare_buffer(self.buffer_bytes, true);
            let Some(Ok(buffer)) = buffer.map(Buffer::expose) else {
                return added;
            };
            self.add(buffer);
        }
        wanted
    }

    fn add(&mut self, buffer: ExposedBuffer) {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        self.put(buffer, slot);
    }

    /// A buffer of this number that is to be written to.
    fn put(&mut self, buffer: ExposedBuffer, slot: u32) {
        if self.notification == Notification::Buffers {
            break_seal(&buffer);
        }
        self.slots[slot as usize] = Some(buffer);
        self.untold.push_back(slot);
    }

    /// The buffer of a number, which was read, does not come back.
    pub(super) fn retire(&mut self, slot: u32) {
        self.vacant.push(slot);
    }

    /// Whether a message uses up a receive.
    pub(super) fn counts_on_receives(&self) -> bool {
        self.notification == Notification::CompletionQueue
    }

    /// The buffer that a message was written to. `None` when it is in hand, or was never there.
    pub(super) fn take(&mut self, slot: u32) -> Option<Buffer> {
        let buffer = self.slots.get_mut(slot as usize)?.take()?;
        self.taken += 1;
        Some(buffer.reclaim())
    }

    /// Takes a buffer back that was read.
    pub(super) fn give(&mut self, buffer: Buffer, slot: u32) {
        // It came out of exposed memory.
        if let Ok(buffer) = buffer.expose() {
            self.put(buffer, slot);
        }
    }

    /// The request that tells the source of one more free buffer.
    pub(super) fn tell(&mut self, id: u64) -> Option<SendRequest> {
        let free = self.free.as_mut()?;
        let slot = *self.untold.front()?;
        let buffer = self.slots.get(slot as usize)?.as_ref()?;
        self.untold.pop_front();
        if self.notification == Notification::Buffers {
            self.given.push_back(slot);
        }
        let at = buffer.remote_address();
        let bytes = buffer.len() - buffer.len() % 8;
        let key_and_bytes = u64::from(at.remote_key) | (bytes as u64) << 32;
        Some(free.put(id, [at.address, key_and_bytes, slot.into()]))
    }

    /// The next message, and its bytes, where they are polled for; `Err` for one that cannot be.
    pub(super) fn poll(&mut self) -> Option<Result<(Place, usize), &'static str>> {
        let (slot, (at, length)) = match self.notification {
            Notification::CompletionQueue => return None,
            Notification::MessageQueue => {
                let [slot, length, _] = self.valid.as_mut()?.take()?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                (u32::try_from(slot).unwrap_or(u32::MAX), (0, length))
            }
            Notification::Buffers => {
                let slot = *self.given.front()?;
                let part = arrived(self.slots.get(slot as usize)?.as_ref()?)?;
                self.given.pop_front();
                (slot, part)
            }
        };
        Some(match self.take(slot) {
            Some(buffer) => Ok((Place::Here { buffer, at, slot }, length)),
            None => Err("it writes into a buffer that it was not given"),
        })
    }

    /// Messages taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}
