//! Pages of this process as registered memory, for providers whose devices are software.
#![allow(unsafe_code)] // Maps memory.

use crate::error::{Result, VerbsError};
use crate::numa::Placement;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a page, and of a huge page.
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// Pages of this process, unmapped when the last who uses them is done: the segment, or whoever is
/// just moving a peer's bytes in or out.
pub(crate) struct Pages {
    base: *mut u8,
    length: usize,
}

// SAFETY: the pages belong to no thread; the object model says who touches them, and when.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least so many bytes, whole pages, never none, on a NUMA node if that can be.
    pub(crate) fn map(length: usize, node: Option<u32>) -> Result<Self> {
        let length = length
            .max(1)
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| VerbsError::InvalidRequest(format!("a segment of {length} bytes")))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address that the system chooses.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE) }
                .map_err(VerbsError::system("mapping memory"))?;
        if length >= HUGE_PAGE {
            // SAFETY: the range was mapped just now. Advice that is not taken does no harm.
            let _ = unsafe { madvise(base, length, Advice::LinuxHugepage) };
        }
        if let Some(placement) = node.and_then(Placement::on) {
            placement.prefer(base, length);
        }
        Ok(Self {
            base: base.cast(),
            length,
        })
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The address of a range, if it lies inside.
    pub(crate) fn range(&self, address: u64, length: usize) -> Option<*mut u8> {
        let at = address.checked_sub(self.base as u64)?;
        let end = at.checked_add(length as u64)?;
        // SAFETY: inside the mapping, as the condition says.
        (end <= self.length as u64).then(|| unsafe { self.base.add(at as usize) })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody uses them any more.
        let unmapped = unsafe { munmap(self.base.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "unmapping what was mapped");
    }
}
