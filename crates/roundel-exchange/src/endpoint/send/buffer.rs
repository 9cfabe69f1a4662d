//! A registered buffer in the hands of whoever fills it.

use super::{GroupId, Inner};
use crate::wire::HEADER_LENGTH;
use roundel_verbs::Buffer;
use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};

/// A registered buffer to fill with a message. Dropped without being put, it goes back.
pub struct SendBuffer {
    buffer: Option<Buffer>,
    group: GroupId,
    endpoint: Weak<Inner>,
}

impl SendBuffer {
    pub(super) fn new(buffer: Buffer, group: GroupId, endpoint: &Arc<Inner>) -> Self {
        Self {
            buffer: Some(buffer),
            group,
            endpoint: Arc::downgrade(endpoint),
        }
    }

    pub(super) fn group(&self) -> GroupId {
        self.group
    }

    /// The memory, which does not go back any more.
    pub(super) fn take(&mut self) -> Buffer {
        self.buffer.take().expect(FILLED_ONCE)
    }

    /// The first `length` bytes of the payload, to be written.
    ///
    /// # Panics
    /// When the buffer has fewer.
    pub fn payload_mut(&mut self, length: usize) -> &mut [MaybeUninit<u8>] {
        let buffer = self.buffer.as_mut().expect(FILLED_ONCE);
        &mut buffer.bytes_mut()[HEADER_LENGTH..HEADER_LENGTH + length]
    }

    /// Copies payload bytes to `offset` of the payload.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let buffer = self.buffer.as_mut().expect(FILLED_ONCE);
        buffer.write(HEADER_LENGTH + offset, bytes);
    }
}

const FILLED_ONCE: &str = "a buffer is there until it is put, which consumes it";

impl Drop for SendBuffer {
    fn drop(&mut self) {
        if let (Some(buffer), Some(endpoint)) = (self.buffer.take(), self.endpoint.upgrade()) {
            endpoint.state.lock().give_back(self.group.0, buffer);
            endpoint.queue.wake();
        }
    }
}
