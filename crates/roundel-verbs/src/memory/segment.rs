//! Segments of registered memory, and the ranges of them that buffers lie in.
#![allow(unsafe_code)] // Hands out addresses inside segments.

use super::ranges::FreeRanges;
use crate::numa::Region;
use parking_lot::Mutex;
use std::sync::Arc;

/// Allocations start at multiples of this and are rounded up to it: two cache lines, so that no
/// two buffers share one, not even through the prefetcher.
const ALIGNMENT_BYTES: usize = 128;

/// Registered memory of a provider; dropped, it is deregistered.
#[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
pub trait ProviderSegment: Send + Sync {
    /// First byte, in this process.
    fn base(&self) -> *mut u8;
    /// First byte, as peers address it.
    fn remote_base(&self) -> u64;
    /// Size in bytes, never 0.
    fn len(&self) -> usize;
    /// Local key.
    fn local_key(&self) -> u32;
    /// Remote key; 0 when the memory is not exposed.
    fn remote_key(&self) -> u32;
}

/// Memory that was registered at once.
pub(super) struct Segment {
    registration: Box<dyn ProviderSegment>,
    pub(super) exposed: bool,
    pub(super) region: Region,
    free: Mutex<FreeRanges>,
}

impl Segment {
    pub(super) fn new(
        registration: Box<dyn ProviderSegment>,
        exposed: bool,
        region: Region,
    ) -> Self {
        let free = Mutex::new(FreeRanges::whole(registration.len()));
        Self {
            registration,
            exposed,
            region,
            free,
        }
    }

    /// Bytes that are registered.
    pub(super) fn len(&self) -> usize {
        self.registration.len()
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.free.lock().bytes
    }

    /// Whether any buffer lies in it.
    pub(super) fn is_in_use(&self) -> bool {
        self.free_bytes() < self.len()
    }

    /// Bytes that a buffer of `length` takes of a segment; `None` when they are more than a `usize` holds.
    pub(super) fn rounded(length: usize) -> Option<usize> {
        length.checked_next_multiple_of(ALIGNMENT_BYTES)
    }

    /// Takes a range for a buffer of `length` bytes, if there is one.
    pub(super) fn take(self: &Arc<Self>, length: usize) -> Option<Allocation> {
        let rounded = Self::rounded(length)?;
        let offset = self.free.lock().take(rounded)?;
        Some(Allocation {
            segment: self.clone(),
            offset,
            length,
            rounded,
        })
    }
}

/// A range of a segment, given back on drop.
pub(super) struct Allocation {
    segment: Arc<Segment>,
    offset: usize,
    length: usize,
    rounded: usize,
}

impl Allocation {
    pub(super) fn base(&self) -> *mut u8 {
        // SAFETY: offset + length lie inside the segment, whose memory lives as long as the Arc.
        unsafe { self.segment.registration.base().add(self.offset) }
    }

    pub(super) fn remote_base(&self) -> u64 {
        self.segment.registration.remote_base() + self.offset as u64
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Makes sure that a range is inside it.
    ///
    /// # Panics
    /// When the range is not inside.
    pub(super) fn check(&self, offset: usize, length: usize) {
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.length),
            "range {offset}+{length} is outside a buffer of {} bytes",
            self.length
        );
    }

    pub(super) fn region(&self) -> Region {
        self.segment.region
    }

    pub(super) fn is_exposed(&self) -> bool {
        self.segment.exposed
    }

    pub(super) fn local_key(&self) -> u32 {
        self.segment.registration.local_key()
    }

    pub(super) fn remote_key(&self) -> u32 {
        self.segment.registration.remote_key()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.segment
            .free
            .lock()
            .give_back(self.offset, self.rounded);
    }
}
