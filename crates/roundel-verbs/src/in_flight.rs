//! What posted requests own until they complete: the buffers, and the callers' marks.
//!
//! Knows nothing of providers but the ids under which they hand requests back.

use crate::error::Result;
use crate::memory::{Buffer, SharedBuffer};
use crate::provider::{
    ProviderAddressHandle, RawCompletion, RawLocal, RawReceiveRequest, RawSendRequest,
};
use crate::work::{Completion, Payload, ReceiveRequest, SendRequest};
use parking_lot::Mutex;
use std::sync::Arc;

/// The requests in flight of a queue pair.
pub(crate) struct InFlight {
    sends: Sends,
    /// Shared with the other queue pairs of a shared receive queue.
    receives: Arc<Receives>,
}

impl InFlight {
    pub(crate) fn new(receives: Arc<Receives>) -> Self {
        Self {
            sends: Sends::default(),
            receives,
        }
    }

    pub(crate) fn sends(&self) -> &Sends {
        &self.sends
    }

    pub(crate) fn receives(&self) -> &Receives {
        &self.receives
    }

    /// Ends requests of the send queue, if `of_sends`, or of the receive queue, and appends their
    /// completions.
    pub(crate) fn complete(
        &self,
        of_sends: bool,
        ended: &[RawCompletion],
        completions: &mut Vec<Completion>,
    ) {
        if of_sends {
            let slots = &mut self.sends.0.lock().slots;
            append(ended, completions, |slot| {
                let slot = slots.remove(slot)?;
                let buffer = match slot.buffer {
                    PostedBuffer::Owned(buffer) => Some(buffer),
                    PostedBuffer::Shared(_) | PostedBuffer::None => None,
                };
                Some((slot.id, buffer))
            });
        } else {
            let slots = &mut self.receives.0.lock().slots;
            append(ended, completions, |slot| {
                let slot = slots.remove(slot)?;
                Some((slot.id, slot.buffer))
            });
        }
    }
}

/// Appends completions, with the mark and the buffer that `end` has for the slot of each.
fn append(
    ended: &[RawCompletion],
    completions: &mut Vec<Completion>,
    mut end: impl FnMut(u64) -> Option<(u64, Option<Buffer>)>,
) {
    for raw in ended {
        if let Some((id, buffer)) = end(raw.id) {
            completions.push(Completion {
                id,
                queue_pair: raw.queue_pair,
                status: raw.status,
                opcode: raw.opcode,
                bytes: raw.bytes,
                written: raw.written,
                immediate: raw.immediate,
                buffer,
                source_queue_pair: raw.source_queue_pair,
            });
        }
    }
}

/// The requests of one queue.
struct Requests<S, R> {
    slots: Slots<S>,
    /// Memory for the next call's requests in the provider's terms, empty.
    spare: Vec<R>,
}

impl<S, R> Default for Requests<S, R> {
    fn default() -> Self {
        Self {
            slots: Slots::default(),
            spare: Vec::new(),
        }
    }
}

/// The sends in flight of a queue pair.
#[derive(Default)]
pub(crate) struct Sends(Mutex<Requests<SendSlot, RawSendRequest>>);

struct SendSlot {
    id: u64,
    buffer: PostedBuffer,
    /// A device may look at it until the request is done.
    _destination: Option<Arc<dyn ProviderAddressHandle>>,
}

enum PostedBuffer {
    None,
    Owned(Buffer),
    Shared(SharedBuffer),
}

impl Sends {
    /// Hands requests to `post`, at most as many as keep `depth` in flight, and removes those
    /// that it took from the front of the vector. The others have their payloads again.
    pub(crate) fn post(
        &self,
        requests: &mut Vec<SendRequest>,
        depth: usize,
        post: impl FnOnce(&[RawSendRequest]) -> Result<usize>,
    ) -> Result<usize> {
        // The slots are filled before the provider sees the requests: another thread may poll
        // their completions before this call returns.
        let mut raw = {
            let sends = &mut *self.0.lock();
            let room = depth.saturating_sub(sends.slots.len());
            if room == 0 {
                return Ok(0);
            }
            let mut raw = std::mem::take(&mut sends.spare);
            for request in requests.iter_mut().take(room) {
                let (buffer, local) = take_buffer(&mut request.payload);
                let destination = request.destination.as_ref().map(|handle| handle.0.clone());
                let id = sends.slots.insert(SendSlot {
                    id: request.id,
                    buffer,
                    _destination: destination.clone(),
                });
                raw.push(RawSendRequest {
                    id,
                    operation: request.operation,
                    inline: None,
                    local,
                    destination,
                });
                if let (Payload::Inline(bytes), Some(raw)) = (&request.payload, raw.last_mut()) {
                    raw.inline = Some(*bytes);
                }
            }
            raw
        };
        let posted = post(&raw);
        let taken = *posted.as_ref().unwrap_or(&0);
        requests.drain(..taken);
        let mut sends = self.0.lock();
        for (raw, request) in raw.iter().skip(taken).zip(requests.iter_mut()) {
            let slot = sends
                .slots
                .remove(raw.id)
                .expect("a request that was not posted keeps its slot");
            let length = raw.local.length;
            match slot.buffer {
                PostedBuffer::Owned(buffer) => request.payload = Payload::Owned { buffer, length },
                PostedBuffer::Shared(buffer) => {
                    request.payload = Payload::Shared { buffer, length };
                }
                // The payload is where it was.
                PostedBuffer::None => {}
            }
        }
        raw.clear();
        sends.spare = raw;
        posted
    }

    /// Forgets all posted requests. The caller drops what they owned.
    pub(crate) fn take_all(&self) -> impl Sized + use<> {
        std::mem::take(&mut self.0.lock().slots)
    }
}

/// Takes the buffer out of a payload, with the part of it that travels. A payload without a buffer
/// stays where it is.
fn take_buffer(payload: &mut Payload) -> (PostedBuffer, RawLocal) {
    if matches!(payload, Payload::Empty | Payload::Inline(_)) {
        return (PostedBuffer::None, RawLocal::default());
    }
    let part = |buffer: &Buffer, length| RawLocal {
        length,
        ..RawLocal::of(buffer)
    };
    match std::mem::replace(payload, Payload::Empty) {
        Payload::Owned { buffer, length } => {
            let local = part(&buffer, length);
            (PostedBuffer::Owned(buffer), local)
        }
        Payload::Shared { buffer, length } => {
            let local = part(buffer.buffer(), length);
            (PostedBuffer::Shared(buffer), local)
        }
        Payload::Empty | Payload::Inline(_) => (PostedBuffer::None, RawLocal::default()),
    }
}

/// The receives in flight of a queue pair, or of a shared receive queue.
#[derive(Default)]
pub(crate) struct Receives(Mutex<Requests<ReceiveSlot, RawReceiveRequest>>);

struct ReceiveSlot {
    id: u64,
    buffer: Option<Buffer>,
}

impl Receives {
    /// As [`Sends::post`].
    pub(crate) fn post(
        &self,
        requests: &mut Vec<ReceiveRequest>,
        depth: usize,
        post: impl FnOnce(&[RawReceiveRequest]) -> Result<usize>,
    ) -> Result<usize> {
        let mut raw = {
            let receives = &mut *self.0.lock();
            let room = depth.saturating_sub(receives.slots.len());
            if room == 0 {
                return Ok(0);
            }
            let mut raw = std::mem::take(&mut receives.spare);
            for request in requests.iter_mut().take(room) {
                let buffer = request.buffer.take();
                let local = buffer.as_ref().map_or(RawLocal::default(), RawLocal::of);
                let id = receives.slots.insert(ReceiveSlot {
                    id: request.id,
                    buffer,
                });
                raw.push(RawReceiveRequest { id, local });
            }
            raw
        };
        let posted = post(&raw);
        let taken = *posted.as_ref().unwrap_or(&0);
        requests.drain(..taken);
        let mut receives = self.0.lock();
        for (raw, request) in raw.iter().skip(taken).zip(requests.iter_mut()) {
            let slot = receives
                .slots
                .remove(raw.id)
                .expect("a request that was not posted keeps its slot");
            request.buffer = slot.buffer;
        }
        raw.clear();
        receives.spare = raw;
        posted
    }

    /// Ends a receive of which nobody hears: its buffer.
    pub(crate) fn forget(&self, slot: u64) -> Option<Buffer> {
        self.0.lock().slots.remove(slot)?.buffer
    }

    /// The buffers of all that is posted, which counts as ended.
    pub(crate) fn take_all(&self) -> Vec<Buffer> {
        std::mem::take(&mut self.0.lock().slots)
            .into_values()
            .filter_map(|slot| slot.buffer)
            .collect()
    }
}

/// Slots with stable indices and a free list.
struct Slots<T> {
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
    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(value);
        index as u64
    }

    fn remove(&mut self, index: u64) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index as usize);
        Some(value)
    }

    fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().flatten()
    }
}
