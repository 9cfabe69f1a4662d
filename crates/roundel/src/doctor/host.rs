//! What the host gives a process: processors, memory and the limits of both. It judges nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use roundel_verbs::rdma::LockedMemory;
use serde::Serialize;

/// The host, as this process sees it. Sizes are in bytes.
#[derive(Debug, Serialize)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// `ID` of the distribution: `debian`, `fedora`, …
    pub distribution: Option<String>,
    /// Processors that this process may use.
    pub cpus: BTreeSet<u32>,
    /// NUMA nodes; none when the kernel shows none.
    pub numa_nodes: Vec<NumaNode>,
    /// Memory of the host.
    pub memory_bytes: Option<u64>,
    /// Memory that can be had without swapping.
    pub memory_available_bytes: Option<u64>,
    /// The least limit of the control groups that this process is in; none without a limit.
    pub cgroup_memory_limit_bytes: Option<u64>,
    /// What a process may lock, and so register with an RDMA device.
    pub locked_memory: LockedMemory,
    /// Pools of huge pages.
    pub huge_pages: Vec<HugePages>,
    /// Policy of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Whether memory without a file can be shared, which `shm` needs.
    pub memfd: bool,
    /// The file system for POSIX shared memory, which `shm` does not need.
    pub dev_shm: Option<FileSystem>,
}

/// A NUMA node.
#[derive(Debug, Serialize)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its processors.
    pub cpus: BTreeSet<u32>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
}

/// Huge pages of one size.
#[derive(Debug, Serialize)]
pub struct HugePages {
    /// Size of a page.
    pub page_bytes: u64,
    /// Pages reserved.
    pub total: u64,
    /// Pages that nobody uses.
    pub free: u64,
}

/// Room of a file system.
#[derive(Debug, Serialize)]
pub struct FileSystem {
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of it that are free.
    pub free_bytes: u64,
}

impl Host {
    /// Looks at the host.
    pub fn collect() -> Self {
        let root = Path::new("/");
        let status = read(&root.join("proc/self/status")).unwrap_or_default();
        let memory = read(&root.join("proc/meminfo")).unwrap_or_default();
        Self {
            kernel: read(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default(),
            distribution: distribution(&read(&root.join("etc/os-release")).unwrap_or_default()),
            cpus: value_of(&status, "Cpus_allowed_list").map_or_else(BTreeSet::new, number_list),
            numa_nodes: numa_nodes(root),
            memory_bytes: kilobytes_of(&memory, "MemTotal"),
            memory_available_bytes: kilobytes_of(&memory, "MemAvailable"),
            cgroup_memory_limit_bytes: cgroup_memory_limit(root),
            locked_memory: LockedMemory::of_this_process(),
            huge_pages: huge_pages(root),
            transparent_huge_pages: transparent_huge_pages(root),
            memfd: rustix::fs::memfd_create("roundel-doctor", rustix::fs::MemfdFlags::CLOEXEC)
                .is_ok(),
            dev_shm: rustix::fs::statvfs("/dev/shm")
                .ok()
                .map(|found| FileSystem {
                    bytes: found.f_blocks * found.f_frsize,
                    free_bytes: found.f_bavail * found.f_frsize,
                }),
        }
    }
}

/// A file's text without white space around it.
pub fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The names in a directory, sorted.
pub fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The value of a line `key: value`; there may be white space before the colon.
pub fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let of_key = |line: &'a str| line.strip_prefix(key)?.trim_start().strip_prefix(':');
    text.lines().find_map(of_key).map(str::trim)
}

/// The bytes in a line `key: 12 kB`.
pub fn kilobytes_of(text: &str, key: &str) -> Option<u64> {
    let kilobytes = value_of(text, key)?.strip_suffix("kB")?;
    kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn distribution(text: &str) -> Option<String> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID="))?;
    Some(id.trim_matches('"').to_owned())
}

/// Numbers as the kernel lists them: `0-3,8`.
fn number_list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn numa_nodes(root: &Path) -> Vec<NumaNode> {
    let directory = root.join("sys/devices/system/node");
    let mut nodes: Vec<NumaNode> = names_in(&directory)
        .into_iter()
        .filter_map(|name| {
            let node: u32 = name.strip_prefix("node")?.parse().ok()?;
            let files = directory.join(&name);
            let memory = read(&files.join("meminfo")).unwrap_or_default();
            // Here each line begins with the node.
            let memory = memory.replace(&format!("Node {node} "), "");
            Some(NumaNode {
                node,
                cpus: number_list(&read(&files.join("cpulist"))?),
                memory_bytes: kilobytes_of(&memory, "MemTotal"),
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.node);
    nodes
}

/// The least limit on the way from this process's control group to the root, of either version.
fn cgroup_memory_limit(root: &Path) -> Option<u64> {
    let groups = read(&root.join("proc/self/cgroup"))?;
    let mounted = root.join("sys/fs/cgroup");
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (top, file) = match controllers {
            "" => (mounted.clone(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container the path may be that of the host: then only the root is there.
        let group = top.join(path.trim_start_matches('/'));
        let on_the_way = group
            .ancestors()
            .take_while(|group| group.starts_with(&top));
        on_the_way
            .filter_map(|group| read(&group.join(file))?.parse::<u64>().ok())
            .min()
    });
    // Version 1 says "no limit" with the highest number of whole pages.
    limits
        .min()
        .filter(|limit| *limit < i64::MAX as u64 - 65536)
}

fn huge_pages(root: &Path) -> Vec<HugePages> {
    let directory = root.join("sys/kernel/mm/hugepages");
    let mut pools: Vec<HugePages> = names_in(&directory)
        .into_iter()
        .filter_map(|name| {
            let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            let count = |file: &str| read(&directory.join(&name).join(file))?.parse().ok();
            Some(HugePages {
                page_bytes: size.parse::<u64>().ok()?.checked_mul(1024)?,
                total: count("nr_hugepages")?,
                free: count("free_hugepages")?,
            })
        })
        .collect();
    pools.sort_by_key(|pool| pool.page_bytes);
    pools
}

fn transparent_huge_pages(root: &Path) -> Option<String> {
    let choices = read(&root.join("sys/kernel/mm/transparent_hugepage/enabled"))?;
    let (_, chosen) = choices.split_once('[')?;
    Some(chosen.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root_with as root;

    #[test]
    fn lists_of_numbers_have_ranges() {
        assert_eq!(number_list("0-2,5"), BTreeSet::from([0, 1, 2, 5]));
        assert_eq!(number_list(""), BTreeSet::new());
    }

    #[test]
    fn nodes_have_processors_and_memory() {
        let node = "sys/devices/system/node/node1";
        let root = root(&[
            (&format!("{node}/cpulist"), "4-5\n"),
            (&format!("{node}/meminfo"), "Node 1 MemTotal:  2048 kB\n"),
            ("sys/devices/system/node/online", "1\n"),
        ]);
        let [node] = &numa_nodes(root.path())[..] else {
            panic!("one node")
        };
        assert_eq!((node.node, node.memory_bytes), (1, Some(2 << 20)));
        assert_eq!(node.cpus, BTreeSet::from([4, 5]));
    }

    #[test]
    fn the_least_limit_of_the_control_groups_counts() {
        let two = root(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
        ]);
        assert_eq!(cgroup_memory_limit(two.path()), Some(1000));
        let one = root(&[
            ("proc/self/cgroup", "4:cpu,memory:/not/mounted\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"),
        ]);
        assert_eq!(cgroup_memory_limit(one.path()), Some(2000));
        let unlimited = root(&[
            ("proc/self/cgroup", "4:memory:/\n"),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ]);
        assert_eq!(cgroup_memory_limit(unlimited.path()), None);
    }

    #[test]
    fn huge_pages_come_by_size() {
        let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
        let root = root(&[
            (&format!("{pool}/nr_hugepages"), "8\n"),
            (&format!("{pool}/free_hugepages"), "3\n"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
        ]);
        let pools = huge_pages(root.path());
        assert_eq!(
            (pools[0].page_bytes, pools[0].total, pools[0].free),
            (2 << 20, 8, 3)
        );
        let policy = transparent_huge_pages(root.path());
        assert_eq!(policy.as_deref(), Some("madvise"));
    }

    #[test]
    fn this_host_has_what_every_host_has() {
        let host = Host::collect();
        assert!(!host.kernel.is_empty() && !host.cpus.is_empty());
        assert!(host.memory_bytes > host.memory_available_bytes);
        assert!(host.memfd);
    }
}
