//! Registered memory: anonymous pages, huge ones where there are any, near the device or where else they are wanted, and
//! pinned by it.
#![allow(unsafe_code)] // Maps memory and registers it.

use super::bindings::*;
use super::device_state::DeviceState;
use super::locked_memory::LockedMemory;
use crate::error::{Result, VerbsError};
use crate::numa::Placement;
use crate::provider::ProviderSegment;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// Bytes of a page, and of a huge page.
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// Pages of this process, unmapped when dropped.
struct Pages {
    base: *mut c_void,
    length: usize,
}

impl Pages {
    /// On huge pages when the length is a multiple of them and the system has that many left; else
    /// on pages that the system may make huge by itself.
    fn map(length: usize) -> Result<Self> {
        if length.is_multiple_of(HUGE_PAGE)
            && let Ok(pages) = Self::with(length, MapFlags::PRIVATE | MapFlags::HUGETLB)
        {
            return Ok(pages);
        }
        let pages =
            Self::with(length, MapFlags::PRIVATE).map_err(VerbsError::system("mapping memory"))?;
        // SAFETY: the range was mapped just now. Advice that is not taken does no harm.
        let _ = unsafe { madvise(pages.base, length, Advice::LinuxHugepage) };
        Ok(pages)
    }

    fn with(length: usize, flags: MapFlags) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address that the system chooses.
        let base = unsafe { mmap_anonymous(null_mut(), length, protection, flags) }?;
        let pages = Self { base, length };
        // A child process that is forked must not turn pinned pages into copies.
        // SAFETY: the range was mapped just now.
        let _ = unsafe { madvise(base, length, Advice::LinuxDontFork) };
        Ok(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is mapped, and nobody holds a pointer into it any more: buffers keep
        // their segment, the device's registration is gone before.
        let _ = unsafe { munmap(self.base, self.length) };
    }
}

pub(super) struct RdmaSegment {
    region: *mut ibv_mr,
    exposed: bool,
    device: Arc<DeviceState>,
    /// After the region: fields are dropped in order, and `drop` deregisters first.
    pages: Pages,
}

// SAFETY: the region and the pages belong to the segment, whose methods only read.
unsafe impl Send for RdmaSegment {}
// SAFETY: as above.
unsafe impl Sync for RdmaSegment {}

impl RdmaSegment {
    pub(super) fn register(
        device: &Arc<DeviceState>,
        length: usize,
        exposed: bool,
        node: Option<u32>,
    ) -> Result<Self> {
        let length = length.next_multiple_of(PAGE);
        let pages = Pages::map(length)?;
        let wanted = node.and_then(Placement::on);
        // Before it is registered, which pins the pages where they are.
        if let Some(placement) = wanted.as_ref().or(device.placement.as_ref()) {
            placement.prefer(pages.base, pages.length);
        }
        let mut access = IBV_ACCESS_LOCAL_WRITE;
        if device.context.iwarp {
            // What a READ brings is placed as a WRITE of the peer, whom the device tells the key for it.
            access |= IBV_ACCESS_REMOTE_WRITE;
        }
        if exposed {
            access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
            if device.capabilities.atomics {
                access |= IBV_ACCESS_REMOTE_ATOMIC;
            }
        }
        // SAFETY: the domain is alive as long as the device state; the range is mapped until the
        // segment is dropped, which deregisters it first.
        let region =
            unsafe { (device.verbs().ibv_reg_mr)(device.domain, pages.base, pages.length, access) };
        if region.is_null() {
            return Err(registration_failed(length, std::io::Error::last_os_error()));
        }
        Ok(Self {
            region,
            exposed,
            device: device.clone(),
            pages,
        })
    }
}

/// ENOMEM mostly means the limit of locked memory, which the user can raise.
fn registration_failed(requested: usize, error: std::io::Error) -> VerbsError {
    let out_of_memory = error.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error());
    match LockedMemory::of_this_process().limit_bytes {
        Some(limit) if out_of_memory => VerbsError::MemoryLockLimit { requested, limit },
        _ => VerbsError::System {
            call: "ibv_reg_mr",
            source: error,
        },
    }
}

impl ProviderSegment for RdmaSegment {
    fn base(&self) -> *mut u8 {
        self.pages.base.cast()
    }

    fn remote_base(&self) -> u64 {
        self.pages.base as u64
    }

    fn len(&self) -> usize {
        self.pages.length
    }

    fn local_key(&self) -> u32 {
        // SAFETY: the region is registered until the segment is dropped.
        unsafe { (*self.region).lkey }
    }

    fn remote_key(&self) -> u32 {
        if self.exposed {
            // SAFETY: as above.
            unsafe { (*self.region).rkey }
        } else {
            0
        }
    }
}

impl Drop for RdmaSegment {
    fn drop(&mut self) {
        // SAFETY: registered once; no buffer of it is posted, for posted buffers keep it.
        let code = unsafe { (self.device.verbs().ibv_dereg_mr)(self.region) };
        if code != 0 {
            tracing::warn!(code, "memory could not be deregistered");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::ArenaOptions;
    use crate::numa::{Placement, pages_of::pages_of};
    use crate::rdma::choice::choose;
    use crate::rdma::device::open_chosen;
    use roundel_testbed::{Machine, Place, in_machine};
    use rustix::thread::{CpuSet, sched_setaffinity};
    use std::collections::BTreeMap;

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;

    #[test]
    #[ignore = "needs the virtual machine: vm/run prepare"]
    fn registered_memory_lies_on_the_node_wanted() {
        let test = "rdma::memory::tests::registered_memory_lies_on_the_node_wanted";
        let machine = Machine {
            devices: 1,
            // A CPU and four huge pages in each node.
            options: &["--numa", "2", "--cpus", "2", "--hugepages", "8"],
            ..Machine::default()
        };
        let Place::Machine(names) = in_machine(test, machine) else {
            return;
        };
        let options = names[0].parse().unwrap();
        for cpu in 0..2 {
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            sched_setaffinity(None, &cpus).unwrap();
            for wanted in [None, Some(0), Some(1)] {
                let placement = wanted.map(|node| Placement::near(Some(node)).unwrap());
                let device = open_chosen(choose(&options).unwrap(), placement).unwrap();
                // On huge pages, and on others.
                for (bytes, page) in [(4 * MIB, 2 * MIB), (3 * MIB, 4 * KIB)] {
                    let arena = device.arena(ArenaOptions {
                        segment_bytes: bytes,
                        ..ArenaOptions::default()
                    });
                    let buffer = arena.allocate_exposed(bytes).unwrap();
                    let (nodes, page_kib) = pages_of(buffer.remote_address().address);
                    // Without a wish it is the node of the thread.
                    let node = wanted.unwrap_or(cpu as u32);
                    assert_eq!(
                        (nodes, page_kib * KIB),
                        (BTreeMap::from([(node, bytes / page)]), page),
                        "{wanted:?} from CPU {cpu}"
                    );
                }
            }
        }
    }
}
