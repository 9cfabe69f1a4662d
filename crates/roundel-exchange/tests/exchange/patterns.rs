//! One suite for all endpoints: every design with every transmission pattern and 1 to 4 threads, over
//! tiny pools, with sources and readers that dawdle, one of them badly.

use crate::cluster::{Node, Options, Way, connect, options, ways};
use crate::designs::batch;
use crate::random::{Random, on_runtime};
use arrow::array::RecordBatch;
use futures::StreamExt;
use roundel_exchange::Window;
use roundel_exchange::buffers::Rule;
use roundel_exchange::operator::Group;
use std::ops::Range;
use std::time::Duration;

const NODES: usize = 3;
const BATCHES: i64 = 4;
const ROWS: usize = 40;
const HANG: Duration = Duration::from_secs(60);

/// The groups of a pattern: which nodes get the same rows. Groups that a node is in come one after the
/// other.
#[derive(Clone, Copy, Debug)]
struct Pattern(&'static [&'static [usize]]);

const REPARTITION: Pattern = Pattern(&[&[0], &[1], &[2]]);
const MULTICAST: Pattern = Pattern(&[&[0, 1], &[1, 2]]);
const BROADCAST: Pattern = Pattern(&[&[0, 1, 2]]);

impl Pattern {
    /// Each group has a partition for each thread.
    fn partitions(self, group: usize, threads: u32) -> Range<u32> {
        let first = group as u32 * threads;
        first..first + threads
    }

    /// What a node reads.
    fn read_by(self, node: usize, threads: u32) -> Range<u32> {
        let own = |group: &usize| self.0[*group].contains(&node);
        let groups: Vec<usize> = (0..self.0.len()).filter(own).collect();
        let (first, last) = (groups[0], groups[groups.len() - 1]);
        self.partitions(first, threads).start..self.partitions(last, threads).end
    }
}

async fn run(options: &Options, pattern: Pattern, threads: u32, mut random: Random) {
    let cluster: Vec<Node> = (0..NODES).map(|_| Node::open(options)).collect();
    let links = connect(&cluster, |node| pattern.read_by(node, threads));
    let schema = batch(0, 0, 0, 1).schema();
    let mut tasks = Vec::new();
    for (source, node) in cluster.iter().enumerate() {
        let destinations: Vec<_> = links.destinations[source]
            .iter()
            .map(|(destination, _)| destination.clone())
            .collect();
        let groups: Vec<Group> = pattern
            .0
            .iter()
            .map(|members| {
                let members: Vec<_> = members
                    .iter()
                    .map(|node| destinations[*node].clone())
                    .collect();
                node.shuffle.group(&members).unwrap()
            })
            .collect();
        let feeds = (0..threads).map(|thread| {
            let (shuffle, groups, mut random) =
                (node.shuffle.clone(), groups.clone(), random.fork());
            tokio::spawn(async move {
                for number in 0..BATCHES {
                    for (index, group) in groups.iter().enumerate() {
                        random.dawdle().await;
                        let partition = pattern.partitions(index, threads).start + thread;
                        let batch = batch(source, partition, number, ROWS);
                        shuffle.send(group, partition, &batch).await.unwrap();
                    }
                }
            })
        });
        let (shuffle, feeds) = (node.shuffle.clone(), feeds.collect::<Vec<_>>());
        tasks.push(tokio::spawn(async move {
            for feed in feeds {
                feed.await.unwrap();
            }
            let all = destinations.iter().map(|to| shuffle.finish(to));
            futures::future::try_join_all(all).await.unwrap();
        }));
    }
    for (target, node) in cluster.iter().enumerate() {
        for (source, link) in links.links[target].iter().enumerate() {
            for partition in pattern.read_by(target, threads) {
                let mut stream = node.receive.stream(link, partition, &schema).unwrap();
                let mut random = random.fork();
                tasks.push(tokio::spawn(async move {
                    for number in 0..BATCHES {
                        random.dawdle().await;
                        if target == 0 {
                            tokio::time::sleep(Duration::from_millis(random.below(3))).await;
                        }
                        let got: RecordBatch = stream.next().await.expect("more rows").unwrap();
                        assert_eq!(got, batch(source, partition, number, ROWS));
                    }
                    assert!(stream.next().await.is_none(), "no more rows");
                }));
            }
        }
    }
    let work = futures::future::try_join_all(tasks);
    tokio::time::timeout(HANG, work)
        .await
        .expect("nobody waits for ever")
        .unwrap();
}

/// Two messages of 512 bytes at each end of a link, of which a batch takes several.
fn tiny(design: Way, threads: u32) -> Options {
    let mut options = options(design, threads as usize);
    options.message_bytes = 512;
    options.window = Window::fixed(2);
    options.ordered = true;
    options
}

fn with_pattern(pattern: Pattern) {
    for design in ways() {
        for threads in 1..=4 {
            let seed = u64::from(threads) << 8 | design.to_string().len() as u64;
            on_runtime(threads as usize, async {
                run(&tiny(design, threads), pattern, threads, Random(seed)).await;
                let mut adaptive = tiny(design, threads);
                adaptive.window = Window {
                    least: 2,
                    first: 4,
                    most: 16,
                    budget: 6,
                    rule: Rule::Calm,
                };
                run(&adaptive, pattern, threads, Random(seed + 1)).await;
            });
        }
    }
}

#[test]
fn repartition() {
    with_pattern(REPARTITION);
}

#[test]
fn multicast() {
    with_pattern(MULTICAST);
}

#[test]
fn broadcast() {
    with_pattern(BROADCAST);
}
