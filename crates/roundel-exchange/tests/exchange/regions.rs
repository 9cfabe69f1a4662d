//! Multiplexers in several NUMA regions, made up and those of a machine that has two.

use crate::cluster::{multiplexed, own};
use crate::designs::{batch, sent};
use crate::multiplexer::{pair, repartition, sizes};
use arrow::array::RecordBatch;
use futures::TryStreamExt as _;
use roundel_exchange::Design;
use roundel_testbed::{Machine, Place, in_machine};
use roundel_verbs::Regions;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs something on two threads that stay in the regions in turn.
fn in_regions<T>(regions: &Regions, work: impl Future<Output = T>) -> T {
    let (bound, turn) = (regions.clone(), AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(move || bound.bind(turn.fetch_add(1, Ordering::Relaxed)))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

#[test]
fn every_row_whichever_region_it_comes_to_and_is_read_in() {
    // More regions than threads, as many, and fewer.
    for count in [4, 2, 1] {
        let regions = Regions::made_up(count);
        in_regions(&regions, async {
            for design in multiplexed() {
                for nodes in [2, 3] {
                    repartition(sizes(design), &regions, nodes, 40, 700).await;
                }
            }
        });
    }
}

/// All readers are in the first of two regions, to each of which half of the messages come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_to_a_region_where_nobody_reads_is_taken_in_by_others() {
    let (cluster, links, sender) = pair(Design::SemqSr, 60, &Regions::made_up(2)).await;
    let schema = batch(0, 0, 0, 1).schema();
    let receive = &cluster[1].receive;
    let (links, schema) = (&links, &schema);
    let partitions = own(1, 2).map(|partition| async move {
        let stream = receive.stream(&links.links[1][0], partition, schema);
        let got: Vec<RecordBatch> = stream.unwrap().try_collect().await.unwrap();
        assert!(got == sent(0, partition, 60, 500), "partition {partition}");
    });
    futures::future::join_all(partitions).await;
    sender.await.unwrap().unwrap();
    let report = receive.report();
    assert!(report.region_steals > 0, "{report:?}");
}

/// Pages of each node in the mappings for which one node is preferred, by that node.
fn preferred_pages() -> BTreeMap<u32, BTreeMap<u32, usize>> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let mut found: BTreeMap<u32, BTreeMap<u32, usize>> = BTreeMap::new();
    for line in maps.lines() {
        let mut words = line.split(' ').skip(1);
        let preferred = words
            .next()
            .and_then(|policy| policy.strip_prefix("prefer:"));
        let Some(preferred) = preferred else {
            continue;
        };
        let pages = found.entry(preferred.parse().unwrap()).or_default();
        for (node, count) in words.filter_map(|word| word.strip_prefix('N')?.split_once('=')) {
            *pages.entry(node.parse().unwrap()).or_default() += count.parse::<usize>().unwrap();
        }
    }
    found
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn in_a_machine_of_two_nodes() {
    let machine = Machine {
        options: &["--numa", "2", "--cpus", "4"],
        ..Machine::default()
    };
    let Place::Machine(_) = in_machine("regions::in_a_machine_of_two_nodes", machine) else {
        return;
    };
    let regions = Regions::of_this_process();
    assert_eq!(regions.count(), 2);
    let pages = in_regions(&regions, async {
        let _cluster = repartition(sizes(Design::SemqSr), &regions, 2, 10, 700).await;
        preferred_pages()
    });
    println!("{pages:?}");
    // Each of two nodes has a segment of 4 MiB in each region.
    let least = 2 * (4 << 20) / 4096;
    for node in [0, 1] {
        let on = Vec::from_iter(&pages[&node]);
        assert!(
            matches!(on[..], [(at, count)] if *at == node && *count >= least),
            "{on:?}"
        );
    }
}
