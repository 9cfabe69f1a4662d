//! Exchanges through multiplexers: every row, over one connection for each pair of nodes.

use crate::cluster::{
    Links, Node, connect, fabric, multiplexed, multiplexer, open_device, options, own,
};
use crate::designs::{batch, feed, repartition_on, sent};
use arrow::array::RecordBatch;
use futures::TryStreamExt as _;
use roundel_exchange::{Design, ExchangeError, Multiplexer, MultiplexerOptions, Scheduling};
use roundel_verbs::{ArenaOptions, Regions};
use std::time::Duration;
use tokio::task::JoinHandle;

pub fn sizes(design: Design) -> MultiplexerOptions {
    MultiplexerOptions {
        design,
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
    let mut options = options(of.design, 1).through(of, regions.clone());
    options.ordered = true;
    let cluster: Vec<Node> = (0..nodes).map(|_| Node::open(&options)).collect();
    repartition_on(&cluster, batches, rows, true).await;
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
    for design in multiplexed() {
        for nodes in [1, 2, 4] {
            repartition(sizes(design), &Regions::one(), nodes, 20, 700).await;
        }
    }
}

/// A cluster of two, and what the first one sends to two partitions of the second, in turn.
pub async fn pair(
    design: Design,
    batches: i64,
    regions: &Regions,
) -> ([Node; 2], Links, JoinHandle<Result<(), ExchangeError>>) {
    let mut options = options(design, 1).through(sizes(design), regions.clone());
    options.ordered = true;
    let cluster = [0, 1].map(|_| Node::open(&options));
    let links = connect(&cluster, |node| own(node, 2));
    let target = &links.destinations[0][1];
    let sender = feed(&cluster[0], target, own(1, 2), 0..batches, (0, 500));
    (cluster, links, sender)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_takes_in_what_is_for_another() {
    let (cluster, links, sender) = pair(Design::SemqSr, 30, &Regions::one()).await;
    let schema = batch(0, 0, 0, 1).schema();
    for partition in own(1, 2) {
        let receive = &cluster[1].receive;
        let stream = receive.stream(&links.links[1][0], partition, &schema);
        let got: Vec<RecordBatch> = stream.unwrap().try_collect().await.unwrap();
        assert!(got == sent(0, partition, 30, 500), "partition {partition}");
        let report = receive.report();
        assert!(report.steals > 0, "partition {partition}: {report:?}");
        assert_eq!(report.region_steals, 0);
    }
    sender.await.unwrap().unwrap();
}

/// Joins read one input after the other: what has come for those that wait must leave room for the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_that_nobody_reads_hold_up_no_other() {
    for design in multiplexed() {
        hold_up_no_other(design).await;
    }
}

async fn hold_up_no_other(design: Design) {
    let mut options = options(design, 1).through(sizes(design), Regions::made_up(2));
    options.ordered = true;
    let cluster = [0, 1].map(|_| Node::open(&options));
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
            while pair[0].shuffle.destination_report(to).messages
                < sizes(design).link_messages as u64
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let all_blocked = tokio::time::timeout(Duration::from_secs(20), all_blocked);
    all_blocked.await.expect("a link has room for its messages");
    repartition_on(&cluster, 20, 500, true).await;
    drop((kept, unread));
    for sender in senders {
        sender.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_gone_is_an_error_that_names_it() {
    for design in multiplexed() {
        is_named_when_gone(design).await;
    }
}

async fn is_named_when_gone(design: Design) {
    let (cluster, mut links, sender) = pair(design, 10_000, &Regions::made_up(2)).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_move_rows_by_other_designs_do_not_meet() {
    let designs = [Design::SemqSr, Design::SemqRd];
    let [one, other] = designs.map(|design| {
        let fabric = fabric(open_device(), ArenaOptions::default());
        multiplexer(&fabric, sizes(design), &Regions::one())
    });
    let address = one.meet(other.id(), "the other").unwrap();
    let error = other.accept(one.id(), "the one", &address).unwrap_err();
    let said = error.to_string();
    for part in ["the one", "SEMQ/SR", "SEMQ/RD"] {
        assert!(said.contains(part), "{said}");
    }
    // Nor does one whose answer was made up.
    let answer = other.meet(one.id(), "the one").unwrap();
    let error = one.join(other.id(), &answer).unwrap_err();
    assert!(
        matches!(error, ExchangeError::OtherDesign { .. }),
        "{error}"
    );
    assert!(!one.is_connected(other.id()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_design_that_multiplexers_cannot_have_is_refused() {
    let fabric = fabric(open_device(), ArenaOptions::default());
    for design in Design::every().filter(|design| design.check_multiplexed().is_err()) {
        let opened = Multiplexer::open(&fabric, sizes(design), &Regions::one());
        let said = opened.unwrap_err().to_string();
        assert!(said.contains(design.multiplexed().name()), "{said}");
    }
}
