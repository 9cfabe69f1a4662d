//! Registered memory: pages of this process, found by their local key, and by their remote key
//! when peers may reach them. Knows nothing of connections.
#![allow(unsafe_code)] // Maps memory.

use crate::error::{Result, VerbsError};
use crate::memory::RemoteAddress;
use crate::provider::{ProviderSegment, RawLocal};
use parking_lot::RwLock;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a page, and of a huge page.
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// Pages of this process, unmapped when the last who uses them is done: the segment, or whoever is
/// just moving a peer's bytes in or out.
pub(super) struct Pages {
    base: *mut u8,
    length: usize,
}

// SAFETY: the pages belong to no thread; who touches them when is the object model's to say.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(length: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address that the system chooses.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE) }
                .map_err(VerbsError::system("mapping memory"))?;
        if length >= HUGE_PAGE {
            // SAFETY: the range was mapped just now. Advice that is not taken does no harm.
            let _ = unsafe { madvise(base, length, Advice::LinuxHugepage) };
        }
        Ok(Self {
            base: base.cast(),
            length,
        })
    }

    /// The address of a range, if it lies inside.
    fn range(&self, address: u64, length: usize) -> Option<*mut u8> {
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

/// The memory of a device, by key.
#[derive(Default)]
pub(super) struct Registry(RwLock<Keys>);

#[derive(Default)]
struct Keys {
    local: HashMap<u32, Arc<Pages>>,
    remote: HashMap<u32, Arc<Pages>>,
}

impl Keys {
    /// A key that nobody can guess and that opens nothing else, not even as one of the other kind.
    fn unused(&self) -> u32 {
        loop {
            let key = rand::random();
            if key != 0 && !self.local.contains_key(&key) && !self.remote.contains_key(&key) {
                return key;
            }
        }
    }
}

impl Registry {
    pub(super) fn register(self: &Arc<Self>, length: usize, exposed: bool) -> Result<TcpSegment> {
        let length = length
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| VerbsError::InvalidRequest(format!("a segment of {length} bytes")))?;
        let pages = Arc::new(Pages::map(length)?);
        let mut keys = self.0.write();
        let local_key = keys.unused();
        keys.local.insert(local_key, pages.clone());
        let mut remote_key = 0;
        if exposed {
            remote_key = keys.unused();
            keys.remote.insert(remote_key, pages.clone());
        }
        drop(keys);
        Ok(TcpSegment {
            registry: self.clone(),
            pages,
            local_key,
            remote_key,
        })
    }

    /// The address of local memory, if its key covers it. No bytes need no key.
    pub(super) fn local(&self, local: &RawLocal) -> Option<*mut u8> {
        if local.length == 0 {
            return Some(std::ptr::NonNull::dangling().as_ptr());
        }
        let keys = self.0.read();
        keys.local
            .get(&local.local_key)?
            .range(local.address, local.length)
    }

    /// The address of exposed memory, if the key covers it, with what keeps it mapped. No bytes need no
    /// key.
    pub(super) fn exposed(
        &self,
        at: RemoteAddress,
        length: usize,
    ) -> Option<(*mut u8, Option<Arc<Pages>>)> {
        if length == 0 {
            return Some((std::ptr::null_mut(), None));
        }
        let keys = self.0.read();
        let pages = keys.remote.get(&at.remote_key)?;
        Some((pages.range(at.address, length)?, Some(pages.clone())))
    }
}

/// A registered segment.
pub(super) struct TcpSegment {
    registry: Arc<Registry>,
    pages: Arc<Pages>,
    local_key: u32,
    remote_key: u32,
}

impl ProviderSegment for TcpSegment {
    fn base(&self) -> *mut u8 {
        self.pages.base
    }

    fn remote_base(&self) -> u64 {
        self.pages.base as u64
    }

    fn len(&self) -> usize {
        self.pages.length
    }

    fn local_key(&self) -> u32 {
        self.local_key
    }

    fn remote_key(&self) -> u32 {
        self.remote_key
    }
}

impl Drop for TcpSegment {
    fn drop(&mut self) {
        let mut keys = self.registry.0.write();
        keys.local.remove(&self.local_key);
        keys.remote.remove(&self.remote_key);
    }
}
