//! What the system tells of its NUMA nodes: their processors, their memory, and which of both a process may use. What
//! its files say is not relied on: where it makes no sense there are no regions.

use super::Place;
use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs;
use std::path::Path;

/// Nodes that Linux can be built for.
pub(super) const NODES_MAX: usize = 1024;

/// Where the kernel shows its nodes. Without NUMA there is no such directory.
const NODES: &str = "/sys/devices/system/node";

/// The file there that lists the nodes with memory.
const WITH_MEMORY: &str = "has_memory";

/// What the kernel tells of this process.
const STATUS: &str = "/proc/self/status";

/// How the line there begins with the nodes from which it may take memory.
const MEMORY_ALLOWED: &str = "Mems_allowed_list:";

/// Whether more than one node has memory.
pub(super) fn has_several_nodes() -> bool {
    let nodes = fs::read_to_string(Path::new(NODES).join(WITH_MEMORY));
    nodes.is_ok_and(|nodes| list(&nodes, NODES_MAX).is_some_and(|nodes| nodes.len() > 1))
}

/// The nodes that this process may use; none where they do not hold all of its processors.
pub(super) fn places() -> Vec<Place> {
    // The main thread's: this one may be bound to a region.
    let Ok(allowed) = sched_getaffinity(Some(getpid())) else {
        return Vec::new();
    };
    let status = fs::read_to_string(STATUS).unwrap_or_default();
    places_in(Path::new(NODES), &status, &allowed).unwrap_or_default()
}

fn places_in(nodes: &Path, status: &str, allowed: &CpuSet) -> Option<Vec<Place>> {
    let read = |file: &Path| fs::read_to_string(nodes.join(file)).ok();
    let with_memory = list(&read(Path::new(WITH_MEMORY))?, NODES_MAX)?;
    let mut line = status.lines();
    let memory_allowed = line.find_map(|line| line.strip_prefix(MEMORY_ALLOWED))?;
    let memory_allowed = list(memory_allowed, NODES_MAX)?;
    let mut places = Vec::new();
    let mut left = *allowed;
    for node in with_memory {
        let file = format!("node{node}/cpulist");
        let mut processors = CpuSet::new();
        for processor in list(&read(Path::new(&file))?, CpuSet::MAX_CPU)? {
            if left.is_set(processor) {
                processors.set(processor);
                left.unset(processor);
            }
        }
        if processors.count() > 0 && memory_allowed.contains(&node) {
            places.push(Place {
                node: Some(node as u32),
                processors,
            });
        }
    }
    let in_places: u32 = places.iter().map(|place| place.processors.count()).sum();
    // Threads that are bound would leave the others idle.
    (in_places == allowed.count()).then_some(places)
}

/// The numbers of a list as the kernel writes it: `0-3,8`, nothing where there are none. `None` where it is no such
/// list, or has a number that is not below the limit.
fn list(text: &str, limit: usize) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    let text = text.trim();
    if text.is_empty() {
        return Some(numbers);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= limit {
            return None;
        }
        // In order, as the kernel has it: so the whole is bounded, too.
        if numbers.last().is_some_and(|before| *before >= first) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATUS_OF_TWO: &str = "Name:\troundel\nMems_allowed:\t3\nMems_allowed_list:\t0-1\n";

    fn set(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|one| set.set(*one));
        set
    }

    /// Nodes as a kernel shows them: their lists of processors, and which have memory.
    fn nodes(with_memory: &str, lists: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(WITH_MEMORY), with_memory).unwrap();
        for (node, list) in lists.iter().enumerate() {
            let node = root.path().join(format!("node{node}"));
            fs::create_dir(&node).unwrap();
            fs::write(node.join("cpulist"), list).unwrap();
        }
        root
    }

    /// Nodes and processors of the regions that a process has.
    fn found(root: &tempfile::TempDir, status: &str, allowed: &[usize]) -> Vec<(u32, Vec<usize>)> {
        let places = places_in(root.path(), status, &set(allowed)).unwrap_or_default();
        let all = |place: &Place| {
            let all = (0..CpuSet::MAX_CPU).filter(|one| place.processors.is_set(*one));
            (place.node.unwrap(), all.collect())
        };
        places.iter().map(all).collect()
    }

    #[test]
    fn a_region_is_what_of_a_node_the_process_may_use() {
        let two = nodes("0-1\n", &["0-1,4\n", "2-3,5\n"]);
        let all = [0, 1, 2, 3, 4, 5];
        let both = [(0, vec![0, 1, 4]), (1, vec![2, 3, 5])];
        assert_eq!(found(&two, STATUS_OF_TWO, &all), both);
        let some = [(0, vec![1]), (1, vec![2, 5])];
        assert_eq!(found(&two, STATUS_OF_TWO, &[1, 2, 5]), some);
        assert_eq!(found(&two, STATUS_OF_TWO, &[2, 3]), [(1, vec![2, 3])]);
    }

    #[test]
    fn regions_hold_all_processors_or_there_are_none() {
        // One without memory, and one whose memory the process may not use.
        let two = nodes("0\n", &["0-1\n", "2-3\n"]);
        assert_eq!(found(&two, STATUS_OF_TWO, &[0, 1, 2]), []);
        assert_eq!(found(&two, STATUS_OF_TWO, &[0, 1]), [(0, vec![0, 1])]);
        let two = nodes("0-1\n", &["0-1\n", "2-3\n"]);
        assert_eq!(found(&two, "Mems_allowed_list:\t1\n", &[0, 2]), []);
        // Memory without processors is no region.
        let three = nodes("0-2\n", &["0-1\n", "2-3\n", "\n"]);
        assert_eq!(found(&three, STATUS_OF_TWO, &[0, 2]).len(), 2);
    }

    #[test]
    fn what_makes_no_sense_is_no_region() {
        let all = [0, 1, 2, 3];
        for (with_memory, first, status) in [
            ("0-1\n", "0-1\n", "Name:\troundel\n"),
            ("0-1\n", "0-1\n", "Mems_allowed_list:\tall\n"),
            ("0-2\n", "0-1\n", STATUS_OF_TWO),
            ("nodes\n", "0-1\n", STATUS_OF_TWO),
            ("0-1\n", "0-\n", STATUS_OF_TWO),
            ("0-1\n", "0\n", STATUS_OF_TWO),
        ] {
            let two = nodes(with_memory, &[first, "2-3\n"]);
            let found = found(&two, status, &all);
            assert_eq!(found, [], "{with_memory:?} {first:?} {status:?}");
        }
        // Without NUMA.
        assert!(places_in(Path::new("/nonexistent"), STATUS_OF_TWO, &set(&all)).is_none());
    }

    #[test]
    fn lists() {
        for (text, numbers) in [
            ("0\n", &[0][..]),
            ("0-2,8\n", &[0, 1, 2, 8]),
            ("\n", &[]),
            ("1023", &[1023]),
        ] {
            assert_eq!(list(text, 1024).unwrap(), numbers);
        }
        for text in [
            "1024",
            "0-1024",
            "3-1",
            "-1",
            "1-",
            ",",
            "0,",
            "1,1",
            "2,0-1",
            "0 1",
            "0x1",
            "0-1-2",
            "0-18446744073709551615",
            "18446744073709551616",
            "\u{0663}",
        ] {
            assert_eq!(list(text, 1024), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[0-9,\\- \n]{0,40}", limit in 1usize..2000) {
            let numbers = list(&text, limit).unwrap_or_default();
            prop_assert!(numbers.len() <= limit && numbers.is_sorted());
            prop_assert!(numbers.iter().all(|number| *number < limit));
        }
    }
}
