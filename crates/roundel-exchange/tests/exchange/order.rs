//! Whatever the order in which partitions and exchanges are consumed, and however slowly, every
//! row arrives exactly once and nobody waits for ever.

use crate::cluster::{Links, Node, Options, connect, fabric, open_device, options, own, ways};
use crate::designs::batch;
use crate::random::{Random, on_runtime};
use futures::StreamExt;
use proptest::prelude::*;
use roundel_exchange::PartitionStream;
use roundel_verbs::ArenaOptions;
use std::time::Duration;

const EXCHANGES: usize = 2;
const BATCHES: i64 = 12;
const ROWS: usize = 30;
const HANG: Duration = Duration::from_secs(30);

struct Case {
    options: Options,
    nodes: usize,
    partitions: u32,
    /// Each source feeds all nodes from one task, and each node reads an exchange from one; else
    /// there is a task for each source and target, and each node reads all exchanges from one.
    one_source_task: bool,
}

struct Exchange {
    nodes: Vec<Node>,
    links: Links,
}

/// One of the streams that a node reads, with what it shall bring.
struct Input {
    stream: PartitionStream,
    source: usize,
    partition: u32,
}

impl Case {
    fn open(&self) -> Vec<Exchange> {
        let fabrics: Vec<_> = (0..self.nodes)
            .map(|_| {
                let device = open_device();
                fabric(device, ArenaOptions::default())
            })
            .collect();
        (0..EXCHANGES)
            .map(|_| {
                let nodes: Vec<Node> = fabrics
                    .iter()
                    .map(|fabric| Node::on(fabric.clone(), &self.options))
                    .collect();
                let links = connect(&nodes, |node| own(node, self.partitions));
                Exchange { nodes, links }
            })
            .collect()
    }

    /// Sends all batches of a source to some targets, in an order of its own.
    async fn feed(
        &self,
        exchange: &Exchange,
        source: usize,
        targets: &[usize],
        mut random: Random,
    ) {
        let shuffle = &exchange.nodes[source].shuffle;
        let to = &exchange.links.destinations[source];
        for number in 0..BATCHES {
            let mut places: Vec<_> = targets
                .iter()
                .flat_map(|target| own(*target, self.partitions).map(move |p| (*target, p)))
                .collect();
            random.shuffle(&mut places);
            for (target, partition) in places {
                random.dawdle().await;
                let batch = batch(source, partition, number, ROWS);
                shuffle
                    .send(&to[target].1, partition, &batch)
                    .await
                    .unwrap();
            }
        }
        let ends = targets.iter().map(|target| shuffle.finish(&to[*target].0));
        futures::future::try_join_all(ends).await.unwrap();
    }

    fn inputs(&self, exchange: &Exchange, target: usize) -> Vec<Input> {
        let schema = batch(0, 0, 0, 1).schema();
        let mut inputs = Vec::new();
        for (source, link) in exchange.links.links[target].iter().enumerate() {
            for partition in own(target, self.partitions) {
                let receive = &exchange.nodes[target].receive;
                inputs.push(Input {
                    stream: receive.stream(link, partition, &schema).unwrap(),
                    source,
                    partition,
                });
            }
        }
        inputs
    }
}

/// Reads inputs to their ends, one after the other.
async fn consume(mut inputs: Vec<Input>, mut random: Random) {
    random.shuffle(&mut inputs);
    for mut input in inputs {
        for number in 0..BATCHES {
            random.dawdle().await;
            let got = input.stream.next().await.expect("a batch more").unwrap();
            let sent = batch(input.source, input.partition, number, ROWS);
            assert!(got == sent, "{} {}", input.source, input.partition);
        }
        assert!(input.stream.next().await.is_none());
    }
}

async fn run(case: Case, mut random: Random) {
    let exchanges = case.open();
    let all: Vec<usize> = (0..case.nodes).collect();
    let mut feeds = Vec::new();
    let mut reads = Vec::new();
    for exchange in &exchanges {
        for source in 0..case.nodes {
            let size = if case.one_source_task { case.nodes } else { 1 };
            for targets in all.chunks(size) {
                feeds.push(case.feed(exchange, source, targets, random.fork()));
            }
        }
    }
    for target in 0..case.nodes {
        let mut inputs: Vec<_> = exchanges
            .iter()
            .map(|exchange| case.inputs(exchange, target))
            .collect();
        if !case.one_source_task {
            inputs = vec![inputs.into_iter().flatten().collect()];
        }
        for inputs in inputs {
            reads.push(tokio::spawn(consume(inputs, random.fork())));
        }
    }
    let feeds = futures::future::join_all(feeds);
    let reads = futures::future::try_join_all(reads);
    let (_, read) = tokio::time::timeout(HANG, async { futures::join!(feeds, reads) })
        .await
        .expect("no order of consumption deadlocks");
    read.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_order_of_consumption(
        seed: u64,
        design in prop::sample::select(ways()),
        threads in 1usize..=4,
        nodes in 1usize..=3,
        partitions in 1u32..=3,
        window in 2usize..=6,
        growth in 1usize..=4,
        one_source_task: bool,
    ) {
        on_runtime(threads.min(2), async move {
            let mut options = options(design, threads);
            options.message_bytes = 512;
            options.window.least = window;
            options.window.first = window;
            options.window.most = window * growth;
            options.repeat_interval = Duration::from_millis(3);
            options.ordered = true;
            let case = Case { options, nodes, partitions, one_source_task };
            run(case, Random(seed)).await;
        });
    }
}
