//! The NUMA node on which memory registered with a device lies: near the device, whatever CPU the
//! thread that registers it runs on. It is a preference: memory elsewhere is slower, not wrong, so
//! what refuses it is logged and changes nothing. Knows nothing of libibverbs.
#![allow(unsafe_code)] // Memory policies have system calls only: no library in use has them.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::fs;
use std::io;
use std::ptr::null_mut;
use std::sync::Once;

/// The nodes that have memory, as the kernel lists them: `0-1`. Without NUMA there is no such file.
const MEMORY_NODES: &str = "/sys/devices/system/node/has_memory";

/// Nodes that Linux can be built for.
const NODES_MAX: u32 = 1024;

/// A set of nodes as the kernel takes it, a bit for each.
type NodeMask = [c_ulong; (NODES_MAX / c_ulong::BITS) as usize];

/// Where memory is wanted.
#[derive(Debug)]
pub(super) struct Placement {
    node: u32,
    mask: NodeMask,
    /// The kernel's first refusal was logged; the others would say the same.
    refused: Once,
}

impl Placement {
    /// Near a device on that node. None where there is nothing to choose: the device's node is not
    /// known, or there is one node only. None too where this thread has a memory policy of its own,
    /// as from `numactl`: whoever set it has chosen.
    pub(super) fn near(node: Option<u32>) -> Option<Self> {
        let node = node?;
        let several = fs::read_to_string(MEMORY_NODES).is_ok_and(|nodes| names_several(&nodes));
        if !several || has_policy() {
            return None;
        }
        Self::on(node)
    }

    /// On that node; none if there can be no such node.
    fn on(node: u32) -> Option<Self> {
        Some(Self {
            node,
            mask: mask_of(node)?,
            refused: Once::new(),
        })
    }

    /// The node.
    pub(super) fn node(&self) -> u32 {
        self.node
    }

    /// Asks for the pages of a mapping, none of which may have been touched: those stay where they
    /// are.
    pub(super) fn prefer(&self, base: *mut c_void, length: usize) {
        // SAFETY: the mask outlives the call and has all bits that are announced. The call decides
        // where pages will be taken from, never what memory holds, and refuses what is not mapped.
        let code = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                base,
                length,
                c_long::from(libc::MPOL_PREFERRED),
                self.mask.as_ptr(),
                // The kernel reads one bit fewer than it is told.
                c_ulong::from(NODES_MAX) + 1,
                c_ulong::MIN,
            )
        };
        if code != 0 {
            // ENOSYS without NUMA, EPERM in a container, EINVAL for a node without memory or
            // outside of the cpuset.
            let error = io::Error::last_os_error();
            self.refused.call_once(|| {
                tracing::debug!(
                    node = self.node,
                    %error,
                    "registered memory lies wherever the kernel puts it, not near the device"
                );
            });
        }
    }
}

/// Whether a list of the kernel's, such as `0-1` or `0,2`, has more than one number.
fn names_several(nodes: &str) -> bool {
    nodes.contains(['-', ','])
}

/// The set of that node alone; none beyond the kernel's most.
fn mask_of(node: u32) -> Option<NodeMask> {
    let mut mask = NodeMask::default();
    *mask.get_mut((node / c_ulong::BITS) as usize)? = 1 << (node % c_ulong::BITS);
    Some(mask)
}

/// Whether this thread takes memory otherwise than from the node it runs on.
fn has_policy() -> bool {
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
    use crate::memory::ArenaOptions;
    use crate::rdma::choice::choose;
    use crate::rdma::device::open_chosen;
    use roundel_testbed::{Machine, Place, in_machine};
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use rustix::thread::{CpuSet, sched_setaffinity};
    use std::collections::BTreeMap;

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;

    #[test]
    fn lists_of_nodes() {
        assert!(!names_several("0\n") && !names_several("12\n") && !names_several(""));
        assert!(names_several("0-1\n") && names_several("0,2\n"));
    }

    #[test]
    fn a_node_is_a_bit() {
        assert_eq!(mask_of(0).unwrap()[0], 1);
        let mask = mask_of(65).unwrap();
        assert_eq!(mask[..3], [0, 2, 0]);
        assert_eq!(mask_of(NODES_MAX - 1).unwrap()[15], 1 << 63);
        assert_eq!(mask_of(NODES_MAX), None);
    }

    #[test]
    fn a_device_of_no_known_node_wants_none() {
        assert!(Placement::near(None).is_none());
    }

    #[test]
    fn memory_that_cannot_be_placed_is_memory_all_the_same() {
        let placement = Placement::on(NODES_MAX - 1).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping, written within its length; nothing points to it when it goes.
        unsafe {
            let base = mmap_anonymous(null_mut(), MIB, protection, MapFlags::PRIVATE).unwrap();
            placement.prefer(base, MIB);
            base.cast::<u8>().add(MIB - 1).write(1);
            munmap(base, MIB).unwrap();
        }
        assert!(placement.refused.is_completed());
    }

    /// Pages of each node in the mapping at that address, and the kibibytes of a page.
    fn pages(address: u64) -> (BTreeMap<u32, usize>, usize) {
        let maps = fs::read_to_string("/proc/self/numa_maps").unwrap();
        let start = |line: &str| u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        let line = maps.lines().rfind(|line| start(line) <= address).unwrap();
        println!("{line}");
        let mut nodes = BTreeMap::new();
        let mut page_kib = 0;
        for (name, value) in line.split(' ').filter_map(|word| word.split_once('=')) {
            if name == "kernelpagesize_kB" {
                page_kib = value.parse().unwrap();
            } else if let Some(node) = name.strip_prefix('N').and_then(|node| node.parse().ok()) {
                nodes.insert(node, value.parse().unwrap());
            }
        }
        (nodes, page_kib)
    }

    #[test]
    fn registered_memory_lies_on_the_node_wanted() {
        let test = "rdma::placement::tests::registered_memory_lies_on_the_node_wanted";
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
                    let (nodes, page_kib) = pages(buffer.remote_address().address);
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

        let mask = mask_of(0).unwrap();
        // SAFETY: as in `prefer`; the policy is that of this thread.
        let code = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                c_long::from(libc::MPOL_BIND),
                mask.as_ptr(),
                c_ulong::from(NODES_MAX) + 1,
            )
        };
        assert_eq!(code, 0);
        assert!(Placement::near(Some(1)).is_none());
    }
}
