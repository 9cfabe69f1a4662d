//! Exchanges through multiplexers: every row, over one connection for each pair of nodes.

use crate::cluster::{Node, connect, options, own};
use crate::designs::batch;
use arrow::array::RecordBatch;
use futures::TryStreamExt as _;
use roundel_exchange::{Design, MultiplexerOptions, Scheduling};
use std::time::Duration;

fn sizes() -> MultiplexerOptions {
    MultiplexerOptions {
        message_bytes: 16 << 10,
        receives: 8,
        posted: 4,
        link_messages: 4,
        query_bytes: 256 << 10,
        scheduling: Scheduling::Off,
        phase_bytes: 64 << 10,
    }
}

async fn repartition(of: MultiplexerOptions, nodes: usize, batches: i64, rows: usize) {
    let mut options = options(Design::SemqSr, 1);
    options.ordered = true;
    let cluster: Vec<Node> = (0..nodes)
        .map(|_| Node::multiplexed(&options, of))
        .collect();
    let partitions = 2u32;
    let schema = batch(0, 0, 0, 1).schema();
    let links = connect(&cluster, |node| own(node, partitions));
    let mut tasks = Vec::new();
    for (source, node) in cluster.iter().enumerate() {
        for (target, (destination, group)) in links.destinations[source].iter().enumerate() {
            let shuffle = node.shuffle.clone();
            let (destination, group) = (destination.clone(), group.clone());
            tasks.push(tokio::spawn(async move {
                for number in 0..batches {
                    for partition in own(target, partitions) {
                        let batch = batch(source, partition, number, rows);
                        shuffle.send(&group, partition, &batch).await.unwrap();
                    }
                }
                shuffle.finish(&destination).await.unwrap();
            }));
        }
    }
    for (target, node) in cluster.iter().enumerate() {
        for (source, link) in links.links[target].iter().enumerate() {
            for partition in own(target, partitions) {
                let stream = node.receive.stream(link, partition, &schema).unwrap();
                tasks.push(tokio::spawn(async move {
                    let got: Vec<RecordBatch> = stream.try_collect().await.unwrap();
                    let expected: Vec<RecordBatch> = (0..batches)
                        .map(|number| batch(source, partition, number, rows))
                        .collect();
                    assert_eq!(got, expected, "{source} to {target}, partition {partition}");
                }));
            }
        }
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task)
            .await
            .expect("no exchange hangs")
            .unwrap();
    }
    for node in &cluster {
        let report = node.multiplexer.as_ref().unwrap().report();
        assert_eq!(report.connections, nodes - 1);
        assert!(report.query_bytes_max <= of.query_bytes, "{report:?}");
        assert_eq!(node.shuffle.report().queue_pairs, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_over_one_connection_for_each_pair() {
    for nodes in [1, 2, 4] {
        repartition(sizes(), nodes, 20, 700).await;
    }
}
