//! The NUMA node on which memory lies that a mapping asks for. It is a preference: memory elsewhere is slower, not
//! wrong, so what refuses it is logged and changes nothing. Knows nothing of devices or of what is mapped.
#![allow(unsafe_code)] // Memory policies have system calls only: no library in use has them.

use super::system::{self, NODES_MAX};
use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io;
use std::ptr::null_mut;

/// A set of nodes as the kernel takes it, a bit for each.
type NodeMask = [c_ulong; NODES_MAX / c_ulong::BITS as usize];

/// Where memory is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    node: u32,
    mask: NodeMask,
}

impl Placement {
    /// Near a device on that node. None where there is nothing to choose: the device's node is not
    /// known, or there is one node only. None too where this thread has a memory policy of its own,
    /// as from `numactl`: whoever set it has chosen.
    pub(crate) fn near(node: Option<u32>) -> Option<Self> {
        let node = node?;
        if !system::has_several_nodes() || has_policy() {
            return None;
        }
        Self::on(node)
    }

    /// On that node; none if there can be no such node.
    pub(crate) fn on(node: u32) -> Option<Self> {
        let mask = mask_of(node)?;
        Some(Self { node, mask })
    }

    /// The node.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Asks for the pages of a mapping, none of which may have been touched: those stay where they
    /// are. Whether the kernel will see to it.
    pub(crate) fn prefer(&self, base: *mut c_void, length: usize) -> bool {
        let asked = set_policy(base, length, libc::MPOL_PREFERRED, &self.mask);
        if let Err(error) = &asked {
            // ENOSYS without NUMA, EPERM in a container, EINVAL for a node without memory or
            // outside of the cpuset.
            tracing::debug!(
                node = self.node,
                %error,
                "registered memory lies wherever the kernel puts it, not where it is wanted"
            );
        }
        asked.is_ok()
    }
}

/// Has the kernel put the pages of a mapping wherever it likes, as without a wish: a file that is mapped remembers
/// what was asked for its pages when these are gone.
pub(crate) fn forget(base: *mut c_void, length: usize) {
    // A policy that cannot be set was not set before.
    let _ = set_policy(base, length, libc::MPOL_DEFAULT, &NodeMask::default());
}

fn set_policy(base: *mut c_void, length: usize, mode: c_int, mask: &NodeMask) -> io::Result<()> {
    // SAFETY: the mask outlives the call and has all bits that are announced. The call decides
    // where pages will be taken from, never what memory holds, and refuses what is not mapped.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            base,
            length,
            c_long::from(mode),
            mask.as_ptr(),
            // The kernel reads one bit fewer than the number that it gets.
            NODES_MAX as c_ulong + 1,
            c_ulong::MIN,
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The set of that node alone; none beyond the kernel's most.
fn mask_of(node: u32) -> Option<NodeMask> {
    let mut mask = NodeMask::default();
    *mask.get_mut((node / c_ulong::BITS) as usize)? = 1 << (node % c_ulong::BITS);
    Some(mask)
}

/// Whether this thread takes memory otherwise than from the node it runs on.
pub(super) fn has_policy() -> bool {
    let mut mode: c_int = libc::MPOL_DEFAULT;
    let nothing = null_mut::<c_void>();
    // SAFETY: `mode` is a valid place for the result; nothing else is asked for.
    let code = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            nothing,
            c_ulong::MIN,
            nothing,
            c_ulong::MIN,
        )
    };
    code == 0 && mode != libc::MPOL_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    const MIB: usize = 1 << 20;

    #[test]
    fn a_node_is_a_bit() {
        assert_eq!(mask_of(0).unwrap()[0], 1);
        let mask = mask_of(65).unwrap();
        assert_eq!(mask[..3], [0, 2, 0]);
        assert_eq!(mask_of(NODES_MAX as u32 - 1).unwrap()[15], 1 << 63);
        assert_eq!(mask_of(NODES_MAX as u32), None);
    }

    #[test]
    fn a_device_of_no_known_node_wants_none() {
        assert!(Placement::near(None).is_none());
    }

    #[test]
    fn memory_that_cannot_be_placed_is_memory_all_the_same() {
        let placement = Placement::on(NODES_MAX as u32 - 1).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping, written within its length; nothing points to it when it goes.
        unsafe {
            let base = mmap_anonymous(null_mut(), MIB, protection, MapFlags::PRIVATE).unwrap();
            assert!(!placement.prefer(base, MIB));
            base.cast::<u8>().add(MIB - 1).write(1);
            munmap(base, MIB).unwrap();
        }
    }
}
