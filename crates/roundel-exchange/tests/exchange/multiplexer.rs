//! Exchanges through multiplexers: every row, over one connection for each pair of nodes.

use crate::cluster::{Links, Node, connect, options, own};
use crate::designs::{batch, repartition_on};
use arrow::array::RecordBatch;
use futures::TryStreamExt as _;
use roundel_exchange::{Design, ExchangeError, MultiplexerOptions, Scheduling};
use roundel_verbs::Regions;
use std::time::Duration;
use tokio::task::JoinHandle;

pub fn sizes() -> MultiplexerOptions {
    MultiplexerOptions {
        message_bytes: 16 << 10,
        receives: 8,
        posted: 4,
        link_messages: 4,
        query_bytes: 256 << 10,
        scheduling: Scheduling::Off,
        phase_bytes: 64 << 10,
        long_bytes: 16 << 10,
    }
}

/// Everybody sends to everybody, through multiplexers. The nodes are still there then.
pub async fn repartition(
    of: MultiplexerOptions,
    regions: &Regions,
    nodes: usize,
    batches: i64,
    rows: usize,
) -> Vec<Node> {
    let mut options = options(Design::SemqSr, 1);
    options.ordered = true;
    let cluster: Vec<Node> = (0..nodes)
        .map(|_| Node::multiplexed(&options, of, regions))
        .collect();
    repartition_on(&cluster, batches, rows).await;
    for node in &cluster {
        let report = node.multiplexer.as_ref().unwrap().report();
        assert_eq!(report.connections, nodes - 1);
        assert!(report.query_bytes_max <= of.query_bytes, "{report:?}");
        assert_eq!(node.shuffle.report().queue_pairs, 0);
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_over_one_connection_for_each_pair() {
    for nodes in [1, 2, 4] {
        repartition(sizes(), &Regions::one(), nodes, 20, 700).await;
    }
}

/// A cluster of two, and what the first one sends to two partitions of the second, in turn.
pub async fn pair(
    batches: i64,
    regions: &Regions,
) -> ([Node; 2], Links, JoinHandle<Result<(), ExchangeError>>) {
    let mut options = options(Design::SemqSr, 1);
    options.ordered = true;
    let cluster = [0, 1].map(|_| Node::multiplexed(&options, sizes(), regions));
    let links = connect(&cluster, |node| own(node, 2));
    let (destination, group) = links.destinations[0][1].clone();
    let shuffle = cluster[0].shuffle.clone();
    let sender = tokio::spawn(async move {
        for number in 0..batches {
            for partition in own(1, 2) {
                let batch = batch(0, partition, number, 500);
                shuffle.send(&group, partition, &batch).await?;
            }
        }
        shuffle.finish(&destination).await
    });
    (cluster, links, sender)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_takes_in_what_is_for_another() {
    let (cluster, links, sender) = pair(30, &Regions::one()).await;
    let schema = batch(0, 0, 0, 1).schema();
    for partition in own(1, 2) {
        let receive = &cluster[1].receive;
        let stream = receive.stream(&links.links[1][0], partition, &schema);
        let got: Vec<RecordBatch> = stream.unwrap().try_collect().await.unwrap();
        let sent: Vec<_> = (0..30)
            .map(|number| batch(0, partition, number, 500))
            .collect();
        assert!(got == sent, "partition {partition}");
        let report = receive.report();
        assert!(report.steals > 0, "partition {partition}: {report:?}");
        assert_eq!(report.region_steals, 0);
    }
    sender.await.unwrap().unwrap();
}

/// Joins read one input after the other: what has come for those that wait must leave room for the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_that_nobody_reads_hold_up_no_other() {
    let mut options = options(Design::SemqSr, 1);
    options.ordered = true;
    let regions = Regions::made_up(2);
    let cluster = [0, 1].map(|_| Node::multiplexed(&options, sizes(), &regions));
    // Together they have more messages on their way than the connection has receives.
    let unread = [0; 4].map(|_| cluster.each_ref().map(|node| node.beside(&options)));
    let mut senders = Vec::new();
    let mut kept = Vec::new();
    for pair in &unread {
        let links = connect(pair, |node| own(node, 1));
        let (_, group) = links.destinations[0][1].clone();
        let shuffle = pair[0].shuffle.clone();
        senders.push(tokio::spawn(async move {
            for number in 0.. {
                let sent = shuffle.send(&group, 1, &batch(0, 1, number, 500)).await;
                if sent.is_err() {
                    return;
                }
            }
        }));
        kept.push(links);
    }
    let all_blocked = async {
        for (pair, links) in unread.iter().zip(&kept) {
            let to = &links.destinations[0][1].0;
            while pair[0].shuffle.destination_report(to).messages < sizes().link_messages as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let all_blocked = tokio::time::timeout(Duration::from_secs(20), all_blocked);
    all_blocked.await.expect("a link has room for its messages");
    repartition_on(&cluster, 20, 500).await;
    drop((kept, unread));
    for sender in senders {
        sender.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_gone_is_an_error_that_names_it() {
    let (cluster, mut links, sender) = pair(10_000, &Regions::made_up(2)).await;
    let schema = batch(0, 0, 0, 1).schema();
    let link = links.links[1].remove(0);
    let mut stream = cluster[1].receive.stream(&link, 2, &schema).unwrap();
    stream.try_next().await.unwrap();
    let [first, second] = cluster;
    sender.abort();
    let _ = sender.await;
    drop((links, first));
    let lost = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match stream.try_next().await {
                Ok(Some(_)) => {}
                other => break other,
            }
        }
    });
    let error = lost.await.expect("nothing hangs").unwrap_err();
    assert!(error.to_string().contains("node 0"), "{error}");
    let multiplexer = second.multiplexer.as_ref().unwrap();
    let gone = async {
        while multiplexer.report().connections > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(20), gone).await;
    gone.expect("the connection ends with its peer");
}
