//! A device's shared memory as mapped by this process: its own or a peer's.
#![allow(unsafe_code)] // Maps memory and gives typed views of it; every offset is checked here.

use super::layout::{
    Header, MAGIC, PairEntry, QUEUE_PAIRS_MAX, QUEUES_MAX, QueueEntry, REGIONS_MAX, RegionEntry,
    SEGMENTS_AT, SlotEntry, VERSION, pair_at, queue_at, region_at,
};
use super::sync::Ordering;
use crate::error::{Result, VerbsError};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// Largest file that a peer may ask us to map, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 40;

pub(super) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is shared with other processes anyway; all typed access is through atomics,
// byte ranges are copied through raw pointers under the ownership rules of queue pairs.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes the file of a new device with room for `segment_bytes` of segments, and maps it.
    pub(super) fn create(segment_bytes: usize) -> Result<(Self, OwnedFd)> {
        let file =
            rustix::fs::memfd_create("roundel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(VerbsError::system("memfd_create"))?;
        let length = SEGMENTS_AT + segment_bytes;
        rustix::fs::ftruncate(&file, length as u64).map_err(VerbsError::system("ftruncate"))?;
        // Peers rely on the size: a file that shrinks under a mapping kills its reader.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(VerbsError::system("sealing the memfd"))?;
        let mapping = Self::map(&file, length)?;
        let header = mapping.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.process.store(std::process::id(), Ordering::Relaxed);
        header.file_bytes.store(length as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok((mapping, file))
    }

    /// Maps the file that a peer sent, after checking that it is what it should be.
    pub(super) fn of_peer(file: &OwnedFd) -> Result<Self> {
        let refuse = |what: &str| Err(VerbsError::InvalidAddress(format!("peer's memory: {what}")));
        let seals =
            rustix::fs::fcntl_get_seals(file).map_err(VerbsError::system("reading seals"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return refuse("not sealed against shrinking");
        }
        let size = rustix::fs::fstat(file)
            .map_err(VerbsError::system("fstat"))?
            .st_size as u64;
        if size < SEGMENTS_AT as u64 || size > FILE_BYTES_MAX {
            return refuse("of an impossible size");
        }
        let mapping = Self::map(file, size as usize)?;
        let header = mapping.header();
        if header.magic.load(Ordering::Acquire) != MAGIC
            || header.version.load(Ordering::Relaxed) != VERSION
        {
            return refuse("not laid out as this version does it");
        }
        Ok(mapping)
    }

    fn map(file: impl AsFd, length: usize) -> Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file is sealed
        // against shrinking before anyone touches it.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                0,
            )
        }
        .map_err(VerbsError::system("mmap"))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| {
            VerbsError::InvalidAddress("the kernel mapped at address zero".into())
        })?;
        Ok(Self { base, length })
    }

    pub(super) fn header(&self) -> &Header {
        self.entry(0)
    }

    pub(super) fn region(&self, index: usize) -> Option<&RegionEntry> {
        (index < REGIONS_MAX).then(|| self.entry(region_at(index)))
    }

    pub(super) fn queue(&self, index: usize) -> Option<&QueueEntry> {
        (index < QUEUES_MAX).then(|| self.entry(queue_at(index)))
    }

    pub(super) fn pair(&self, index: usize) -> Option<&PairEntry> {
        (index < QUEUE_PAIRS_MAX).then(|| self.entry(pair_at(index)))
    }

    /// A receive ring; `None` when it does not lie where rings lie.
    pub(super) fn slots(&self, at: u64, count: u32) -> Option<&[SlotEntry]> {
        let bytes = u64::from(count).checked_mul(size_of::<SlotEntry>() as u64)?;
        let end = at.checked_add(bytes)?;
        if count == 0
            || at < super::layout::RINGS_AT as u64
            || end > SEGMENTS_AT as u64
            || !at.is_multiple_of(align_of::<SlotEntry>() as u64)
        {
            return None;
        }
        // SAFETY: in bounds and aligned (checked above); slots are atomics only, valid for any
        // bytes; the mapping outlives the borrow.
        Some(unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().add(at as usize).cast(), count as usize)
        })
    }

    /// The address of a range of segment memory; `None` when it is not inside.
    pub(super) fn segment_range(&self, at: u64, length: usize) -> Option<*mut u8> {
        let end = at.checked_add(length as u64)?;
        if at < SEGMENTS_AT as u64 || end > self.length as u64 {
            return None;
        }
        // SAFETY: inside the mapping (checked above).
        Some(unsafe { self.base.as_ptr().add(at as usize) })
    }

    /// The file offset of an address in the segments of this mapping.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        let at = address.checked_sub(self.base.as_ptr() as u64)?;
        (at >= SEGMENTS_AT as u64 && at <= self.length as u64).then_some(at)
    }

    fn entry<T>(&self, at: usize) -> &T {
        const {
            assert!(align_of::<T>() <= 128);
        }
        assert!(at + size_of::<T>() <= SEGMENTS_AT && at.is_multiple_of(align_of::<T>()));
        // SAFETY: in bounds and aligned (asserted); T is one of the layout's structs, atomics
        // only, valid for any bytes; the mapping outlives the borrow.
        unsafe { &*self.base.as_ptr().add(at).cast::<T>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map` and nobody borrows from it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "unmapping what was mapped");
    }
}

/// Gives the pages of a range back to the system.
pub(super) fn punch_hole(file: &OwnedFd, at: usize, length: usize) {
    // Best effort: the range is free for reuse either way.
    let _ = rustix::fs::fallocate(
        file,
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        at as u64,
        length as u64,
    );
}
