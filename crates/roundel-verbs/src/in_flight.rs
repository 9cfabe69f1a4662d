//! What posted requests own until they complete: the buffers, and the callers' marks.
//!
//! Knows nothing of providers but the ids under which they hand requests back.

use crate::error::Result;
use crate::memory::{Buffer, SharedBuffer};
use crate::provider::{RawLocal, RawReceiveRequest};
use crate::work::ReceiveRequest;
use parking_lot::Mutex;
use std::sync::Arc;

/// The requests in flight of a queue pair.
pub(crate) struct InFlight {
    pub(crate) sends: Mutex<Slots<SendSlot>>,
    /// Shared with the other queue pairs of a shared receive queue.
    pub(crate) receives: Arc<Receives>,
}

pub(crate) struct SendSlot {
    pub id: u64,
    pub buffer: PostedBuffer,
}

pub(crate) enum PostedBuffer {
    None,
    Owned(Buffer),
    Shared(SharedBuffer),
}

impl InFlight {
    pub(crate) fn new(receives: Arc<Receives>) -> Self {
        Self {
            sends: Mutex::default(),
            receives,
        }
    }

    /// Ends a send: its mark and the buffer it owned.
    pub(crate) fn complete_send(&self, slot: u64) -> Option<(u64, Option<Buffer>)> {
        let slot = self.sends.lock().remove(slot)?;
        let buffer = match slot.buffer {
            PostedBuffer::Owned(buffer) => Some(buffer),
            PostedBuffer::Shared(_) | PostedBuffer::None => None,
        };
        Some((slot.id, buffer))
    }
}

/// The receives in flight of a queue pair, or of a shared receive queue.
#[derive(Default)]
pub(crate) struct Receives(Mutex<Slots<ReceiveSlot>>);

struct ReceiveSlot {
    id: u64,
    buffer: Option<Buffer>,
}

impl Receives {
    /// Hands requests to `post`, at most as many as keep `depth` in flight, and removes those
    /// that it took from the front of the vector. The others have their buffers again.
    pub(crate) fn post(
        &self,
        requests: &mut Vec<ReceiveRequest>,
        depth: usize,
        post: impl FnOnce(&[RawReceiveRequest]) -> Result<usize>,
    ) -> Result<usize> {
        let mut raw = Vec::with_capacity(requests.len());
        {
            let mut slots = self.0.lock();
            let room = depth.saturating_sub(slots.len());
            for request in requests.iter_mut().take(room) {
                let local = request
                    .buffer
                    .as_ref()
                    .map_or(RawLocal::default(), RawLocal::of);
                let id = slots.insert(ReceiveSlot {
                    id: request.id,
                    buffer: request.buffer.take(),
                });
                raw.push(RawReceiveRequest { id, local });
            }
        }
        if raw.is_empty() {
            return Ok(0);
        }
        let posted = post(&raw);
        let taken = *posted.as_ref().unwrap_or(&0);
        {
            let mut slots = self.0.lock();
            for (raw, request) in raw.iter().zip(requests.iter_mut()).skip(taken) {
                let slot = slots
                    .remove(raw.id)
                    .expect("a request that was not posted keeps its slot");
                request.buffer = slot.buffer;
            }
        }
        requests.drain(..taken);
        posted
    }

    /// Ends a receive: its mark and its buffer.
    pub(crate) fn complete(&self, slot: u64) -> Option<(u64, Option<Buffer>)> {
        let slot = self.0.lock().remove(slot)?;
        Some((slot.id, slot.buffer))
    }

    /// The buffers of all that is posted, which counts as ended.
    pub(crate) fn take_all(&self) -> Vec<Buffer> {
        std::mem::take(&mut *self.0.lock())
            .into_values()
            .filter_map(|slot| slot.buffer)
            .collect()
    }
}

/// Slots with stable indices and a free list.
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Values inside.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(value);
        index as u64
    }

    pub(crate) fn remove(&mut self, index: u64) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index as usize);
        Some(value)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().flatten()
    }
}
