//! On which nodes pages are: for tests.

use std::collections::BTreeMap;

/// Pages of each node in the mapping at that address, and the kibibytes of a page.
pub(crate) fn pages_of(address: u64) -> (BTreeMap<u32, usize>, usize) {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
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
