//! Buffers of an arena and their three ownerships: owned, shared read-only, exposed.
#![allow(unsafe_code)] // Copies in and out of registered memory, whose bytes peers may change.

use super::segment::Allocation;
use crate::numa::Region;
use serde::{Deserialize, Serialize};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A piece of registered memory that one owner holds. Posting moves it into the work request;
/// its completion gives it back.
pub struct Buffer {
    allocation: Allocation,
}

impl Buffer {
    pub(super) fn new(allocation: Allocation) -> Self {
        Self { allocation }
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.allocation.len()
    }

    /// The NUMA region that it was taken from.
    pub fn region(&self) -> Region {
        self.allocation.region()
    }

    /// Copies `source` to `offset`.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    pub fn write(&mut self, offset: usize, source: &[u8]) {
        self.allocation.check(offset, source.len());
        // SAFETY: the range is inside this allocation (checked above), which this buffer alone
        // writes in this process; `source` is ordinary memory and cannot overlap it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                source.as_ptr(),
                self.allocation.base().add(offset),
                source.len(),
            );
        }
    }

    /// Its bytes, to be written. They may have any value before that, since a peer that maps this
    /// memory can write to it at any time.
    pub fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the allocation is this buffer's alone in this process; any memory is valid as
        // bytes of which nothing is known.
        unsafe { std::slice::from_raw_parts_mut(self.allocation.base().cast(), self.len()) }
    }

    /// Copies from `offset` to `target`.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        self.allocation.check(offset, target.len());
        // SAFETY: the range is inside this allocation; `target` is ordinary memory and cannot
        // overlap it. A peer that writes meanwhile changes which bytes are copied, no more: every
        // bit pattern is a valid u8.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.allocation.base().add(offset),
                target.as_mut_ptr(),
                target.len(),
            );
        }
    }

    /// Appends `length` bytes from `offset` to a vector, without clearing it first.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    pub fn read_append(&self, offset: usize, length: usize, target: &mut Vec<u8>) {
        self.allocation.check(offset, length);
        target.reserve(length);
        // SAFETY: the source range is inside this allocation, the target has `length` spare
        // bytes (reserved above), which the copy initialises before the length counts them.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.allocation.base().add(offset),
                target.as_mut_ptr().add(target.len()),
                length,
            );
            target.set_len(target.len() + length);
        }
    }

    /// Makes the buffer read-only and shareable between work requests.
    pub fn share(self) -> SharedBuffer {
        SharedBuffer(Arc::new(self))
    }

    /// Lets peers at it: from now on it is read and written remotely. `Err` gives a buffer back
    /// that did not come from exposed memory.
    pub fn expose(self) -> Result<ExposedBuffer, Buffer> {
        match self.allocation.is_exposed() {
            true => Ok(ExposedBuffer::new(self.allocation)),
            false => Err(self),
        }
    }

    /// Its address, as a scatter/gather element has it.
    pub fn address(&self) -> u64 {
        self.allocation.base() as u64
    }

    /// The local key of its memory, as a scatter/gather element has it. Peers cannot use it.
    pub fn local_key(&self) -> u32 {
        self.allocation.local_key()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

/// A buffer that several work requests read: one buffer for every member of a transmission group.
#[derive(Clone, Debug)]
pub struct SharedBuffer(Arc<Buffer>);

impl SharedBuffer {
    /// The buffer itself again, when this is the last one who holds it.
    pub fn try_into_owned(self) -> Result<Buffer, SharedBuffer> {
        Arc::try_unwrap(self.0).map_err(SharedBuffer)
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.0
    }
}

/// Where exposed memory is, for a peer's WRITE or READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAddress {
    /// Address on the device that owns it.
    pub address: u64,
    /// The remote key of its region.
    pub remote_key: u32,
}

impl RemoteAddress {
    /// The address `offset` bytes on.
    pub fn offset(self, offset: usize) -> Self {
        Self {
            address: self.address.wrapping_add(offset as u64),
            ..self
        }
    }
}

/// Memory that peers read and write remotely: rings, flags, credits. Reached here through
/// atomics only.
pub struct ExposedBuffer {
    allocation: Allocation,
}

impl ExposedBuffer {
    pub(super) fn new(allocation: Allocation) -> Self {
        Self { allocation }
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.allocation.len()
    }

    /// What a peer needs to reach it.
    pub fn remote_address(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.allocation.remote_base(),
            remote_key: self.allocation.remote_key(),
        }
    }

    /// Takes it back as a buffer to fill or to read. Peers that know its address can still reach
    /// it: those that keep to the protocol do not, and what others write or read is their own harm,
    /// as with any registered memory.
    pub fn reclaim(self) -> Buffer {
        Buffer::new(self.allocation)
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Panics
    /// When `offset` is not a multiple of 8 inside the buffer.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.allocation.check(offset, size_of::<u64>());
        assert!(offset.is_multiple_of(8), "{offset} is not where a word is");
        // SAFETY: allocations are aligned to a cache line, so the word is aligned; it is inside
        // the allocation, which lives as long as `self`; all access to it is atomic, here and,
        // as far as this process can see, in the peers' devices.
        unsafe { AtomicU64::from_ptr(self.allocation.base().add(offset).cast()) }
    }

    /// Copies from `offset` to `target`. Words that a peer writes meanwhile may come out torn.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        self.allocation.check(offset, target.len());
        // SAFETY: in bounds (checked above); every bit pattern is a valid u8.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.allocation.base().add(offset),
                target.as_mut_ptr(),
                target.len(),
            );
        }
    }

    /// Appends `length` bytes from `offset` to a vector, without clearing it first. Words that a peer writes
    /// meanwhile may come out torn.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    pub fn read_append(&self, offset: usize, length: usize, target: &mut Vec<u8>) {
        self.allocation.check(offset, length);
        target.reserve(length);
        // SAFETY: the source range is inside this allocation, the target has `length` spare bytes (reserved above),
        // which the copy initialises before the length counts them; every bit pattern is a valid u8.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.allocation.base().add(offset),
                target.as_mut_ptr().add(target.len()),
                length,
            );
            target.set_len(target.len() + length);
        }
    }
}

impl std::fmt::Debug for ExposedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExposedBuffer({} bytes)", self.len())
    }
}

#[cfg(all(test, not(roundel_loom)))]
mod tests {
    use crate::{ArenaOptions, shm};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn ranges_that_are_not_inside_are_refused() {
        let device = shm::open(shm::ShmOptions::default()).unwrap();
        let arena = device.arena(ArenaOptions::default());
        let (buffer, exposed) = (
            arena.allocate(64).unwrap(),
            arena.allocate_exposed(64).unwrap(),
        );
        // The last two have ends that wrap around.
        for offset in [57, 64, usize::MAX, usize::MAX - 7] {
            let tries: [&dyn Fn(); 5] = [
                &|| buffer.read(offset, &mut [0; 8]),
                &|| buffer.read_append(offset, 8, &mut Vec::new()),
                &|| exposed.read(offset, &mut [0; 8]),
                &|| exposed.read_append(offset, 8, &mut Vec::new()),
                &|| _ = exposed.word(offset),
            ];
            for (number, one) in tries.into_iter().enumerate() {
                let refused = catch_unwind(AssertUnwindSafe(one)).is_err();
                assert!(refused, "{number} at {offset}");
            }
        }
        exposed.word(56);
    }
}
