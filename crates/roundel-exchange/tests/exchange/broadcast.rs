//! Rows for several destinations: filled into messages once, whatever carries them, and whoever leaves.

use crate::cluster::{Node, Options, Way, connect, options, ways};
use crate::designs::batch;
use crate::random::on_runtime;
use arrow::array::RecordBatch;
use futures::StreamExt as _;
use futures::future::try_join_all;
use roundel_exchange::operator::Broadcast;
use roundel_exchange::wire::HEADER_LENGTH;
use roundel_exchange::{Destination, PartitionStream, Window};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const NODES: usize = 4;
const PARTITIONS: u32 = 2;
const BATCHES: i64 = 20;
const ROWS: usize = 300;
const HANG: Duration = Duration::from_secs(60);

/// Node 0 has the same for all; each reads what is for it.
struct Cluster {
    nodes: Vec<Node>,
    destinations: Vec<Destination>,
    links: Vec<Vec<roundel_exchange::ReceiveLink>>,
}

impl Cluster {
    fn open(options: &Options) -> Self {
        let nodes: Vec<Node> = (0..NODES).map(|_| Node::open(options)).collect();
        let mut links = connect(&nodes, |_| 0..PARTITIONS);
        let destinations = links.destinations.swap_remove(0).into_iter();
        Self {
            nodes,
            destinations: destinations.map(|(to, _)| to).collect(),
            links: links.links,
        }
    }

    fn stream(&self, target: usize, partition: u32) -> PartitionStream {
        let schema = batch(0, 0, 0, 1).schema();
        let link = &self.links[target][0];
        let receive = &self.nodes[target].receive;
        receive.stream(link, partition, &schema).unwrap()
    }

    /// Reads all that a target gets, in its order.
    async fn read(&self, target: usize) {
        let read = |partition| async move {
            let mut stream = self.stream(target, partition);
            for number in 0..BATCHES {
                let got: RecordBatch = stream.next().await.expect("more rows").unwrap();
                assert_eq!(got, batch(0, partition, number, ROWS), "at node {target}");
            }
            assert!(stream.next().await.is_none(), "no more rows at {target}");
        };
        let all = (0..PARTITIONS).map(read);
        futures::future::join_all(all).await;
    }

    /// Sends everything to some of the nodes, a task for each partition.
    async fn send(&self, targets: Range<usize>) {
        let members = self.destinations[targets].to_vec();
        let shuffle = &self.nodes[0].shuffle;
        let broadcast = Arc::new(Broadcast::new(shuffle.clone(), members.clone()).unwrap());
        let tasks = (0..PARTITIONS).map(|partition| {
            let broadcast = broadcast.clone();
            tokio::spawn(async move {
                for number in 0..BATCHES {
                    let batch = batch(0, partition, number, ROWS);
                    let unit = partition as usize;
                    broadcast.send(unit, partition, &batch).await.unwrap();
                }
            })
        });
        try_join_all(tasks.collect::<Vec<_>>()).await.unwrap();
        let finished = members.iter().map(|to| shuffle.finish(to));
        // Of those who are there.
        let _ = futures::future::join_all(finished).await;
    }
}

/// Messages that are short, of which a batch takes many.
fn tiny(mut options: Options) -> Options {
    options.message_bytes = 512;
    options.window = Window::fixed(2);
    options.ordered = true;
    options.coupled = true;
    options
}

fn within<F: Future<Output = ()>>(work: F) {
    on_runtime(2, async {
        let done = tokio::time::timeout(HANG, work).await;
        done.expect("nobody waits for ever");
    });
}

#[test]
fn messages_are_filled_once_for_all() {
    for way in ways() {
        for short in [false, true] {
            within(async {
                let mut options = options(way, 2);
                options.ordered = true;
                if short {
                    options = tiny(options);
                }
                let cluster = Cluster::open(&options);
                let reads = futures::future::join_all((1..NODES).map(|to| cluster.read(to)));
                tokio::join!(cluster.send(1..NODES), reads);
                let shuffle = &cluster.nodes[0].shuffle;
                let filled = shuffle.report().filled_bytes;
                for to in &cluster.destinations[1..] {
                    let report = shuffle.destination_report(to);
                    let headers = report.messages * HEADER_LENGTH as u64;
                    assert_eq!(report.bytes, filled + headers, "{way}");
                }
                assert_eq!(shuffle.filled_since(), filled);
                assert_eq!(shuffle.filled_since(), 0);
            });
        }
    }
}

#[test]
fn who_comes_later_gets_everything() {
    for way in ways() {
        within(async {
            let cluster = Cluster::open(&tiny(options(way, 2)));
            let reads = futures::future::join_all((1..NODES).map(|to| cluster.read(to)));
            let later = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                cluster.send(2..NODES).await;
            };
            tokio::join!(cluster.send(1..2), later, reads);
        });
    }
}

#[test]
fn who_leaves_is_left_out_and_the_others_miss_nothing() {
    for way in ways() {
        within(async {
            let cluster = Cluster::open(&tiny(options(way, 2)));
            let leave = async {
                // In the middle of a batch: the other partition is not read at all.
                let mut stream = cluster.stream(2, 0);
                stream.next().await.expect("rows").unwrap();
                drop(stream);
                let shuffle = &cluster.nodes[0].shuffle;
                shuffle.close(&cluster.destinations[2], None);
            };
            tokio::join!(
                cluster.send(1..NODES),
                cluster.read(1),
                cluster.read(3),
                leave
            );
        });
    }
}

#[test]
fn when_all_have_left_it_ends() {
    for way in ways() {
        within(async {
            let cluster = Cluster::open(&tiny(options(way, 2)));
            let shuffle = &cluster.nodes[0].shuffle;
            let members = cluster.destinations[1..3].to_vec();
            let broadcast = Broadcast::new(shuffle.clone(), members).unwrap();
            for to in &cluster.destinations[1..3] {
                shuffle.close(to, None);
            }
            let left = broadcast.send(0, 0, &batch(0, 0, 0, ROWS)).await;
            assert!(!left.unwrap(), "{way}");
        });
    }
}

#[test]
fn within_a_process_a_frame_is_shared() {
    // Processes that share a multiplexer are one.
    let alone = |way: &Way| !matches!(way, Way::Multiplexer(_));
    for way in ways().into_iter().filter(alone) {
        within(async {
            let options = tiny(options(way, 2)).in_one_process();
            let cluster = Cluster::open(&options);
            let leave = async {
                let mut stream = cluster.stream(2, 0);
                stream.next().await.expect("rows").unwrap();
            };
            let reads = async { tokio::join!(cluster.read(1), cluster.read(3), leave) };
            tokio::join!(cluster.send(1..NODES), reads);
            assert_eq!(cluster.nodes[0].shuffle.report().filled_bytes, 0, "{way}");
        });
    }
}
