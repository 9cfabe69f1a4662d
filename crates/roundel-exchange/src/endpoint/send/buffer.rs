//! A registered buffer in the hands of whoever fills it.

use super::GroupId;
use crate::wire::HEADER_LENGTH;
use roundel_verbs::Buffer;
use std::mem::MaybeUninit;
use std::sync::Weak;

/// Where a buffer goes that is not sent.
pub(crate) trait TakesBack: Send + Sync {
    /// Takes a buffer of a group back.
    fn take_back(&self, group: GroupId, buffer: Buffer);
}

/// A registered buffer to fill with a message. Dropped without being put, it goes back.
pub struct SendBuffer {
    buffer: Option<Buffer>,
    group: GroupId,
    home: Weak<dyn TakesBack>,
}

impl SendBuffer {
    pub(crate) fn new(buffer: Buffer, group: GroupId, home: Weak<dyn TakesBack>) -> Self {
        Self {
            buffer: Some(buffer),
            group,
            home,
        }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    /// The memory, which does not go back any more.
    pub(crate) fn take(&mut self) -> Buffer {
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
        if let (Some(buffer), Some(home)) = (self.buffer.take(), self.home.upgrade()) {
            home.take_back(self.group, buffer);
        }
    }
}
