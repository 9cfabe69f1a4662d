//! Datagrams that are lost are sent again: exactly those, and nobody but the report notices.

use crate::cluster::{Links, Node, Options, connect, fabric, own};
use crate::designs::{batch, number, sent};
use crate::faults::{DATAGRAMS, HANG, pair, small, unruly};
use crate::faulty::{self, Fate, Judge};
use crate::random::{Random, on_runtime};
use arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use roundel_exchange::operator::Group;
use roundel_exchange::wire::{Body, Header, Kind};
use roundel_exchange::{Destination, EndpointReport, ExchangeError, PartitionStream, Shuffle};
use roundel_verbs::ArenaOptions;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const ROWS: usize = 20;

/// Loses messages of every kind, so many of 10,000, and leaves the others to another judge.
fn lossy(seed: u64, rate: u64, mut other: Judge) -> Judge {
    let mut random = Random(seed);
    Box::new(move |header, number| match random.below(10_000) < rate {
        true => Fate::Lost,
        false => other(header, number),
    })
}

fn all_delivered() -> Judge {
    Box::new(|_, _| Fate::Delivered)
}

/// An exchange of every node with every node. Each has two partitions of its own, and one more is
/// broadcast: two groups use each link.
struct Exchange {
    options: Options,
    nodes: usize,
    batches: i64,
    /// Readers dawdle.
    slow: bool,
}

impl Exchange {
    fn partitions(&self) -> std::ops::Range<u32> {
        0..2 * self.nodes as u32 + 1
    }

    fn broadcast(&self) -> u32 {
        2 * self.nodes as u32
    }

    async fn run(&self, judge: impl FnMut(usize) -> Judge, mut random: Random) -> EndpointReport {
        let cluster: Vec<Node> = (0..self.nodes)
            .map(judge)
            .map(|judge| {
                let device = faulty::open(judge);
                Node::on(fabric(device, ArenaOptions::default()), &self.options)
            })
            .collect();
        let links = connect(&cluster, |_| self.partitions());
        let mut tasks = Vec::new();
        for (source, node) in cluster.iter().enumerate() {
            tasks.extend(self.feed(source, node, &links));
        }
        let schema = batch(0, 0, 0, 1).schema();
        for (target, node) in cluster.iter().enumerate() {
            for (source, link) in links.links[target].iter().enumerate() {
                for partition in own(target, 2).chain([self.broadcast()]) {
                    let stream = node.receive.stream(link, partition, &schema).unwrap();
                    let read = self.read(stream, source, partition, random.fork());
                    tasks.push(tokio::spawn(read));
                }
            }
        }
        for task in tasks {
            tokio::time::timeout(HANG, task)
                .await
                .expect("no exchange hangs")
                .unwrap();
        }
        let mut report = EndpointReport::default();
        for node in &cluster {
            report.merge(&node.shuffle.report());
            report.merge(&node.receive.report());
        }
        report
    }

    fn feed(&self, source: usize, node: &Node, links: &Links) -> Vec<tokio::task::JoinHandle<()>> {
        let to = &links.destinations[source];
        let members: Vec<_> = to.iter().map(|(member, _)| member.clone()).collect();
        let everybody = node.shuffle.group(&members).unwrap();
        let mut places: Vec<(Group, Vec<u32>)> = to
            .iter()
            .enumerate()
            .map(|(target, (_, group))| (group.clone(), own(target, 2).collect()))
            .collect();
        places.push((everybody, vec![self.broadcast()]));
        let batches = self.batches;
        let sends: Vec<_> = places
            .into_iter()
            .map(|(group, partitions)| {
                let shuffle = node.shuffle.clone();
                tokio::spawn(async move {
                    for number in 0..batches {
                        for partition in &partitions {
                            let batch = mixed(source, *partition, number);
                            shuffle.send(&group, *partition, &batch).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        let shuffle = node.shuffle.clone();
        vec![tokio::spawn(async move {
            for send in sends {
                send.await.unwrap();
            }
            let ends = members.iter().map(|member| shuffle.finish(member));
            futures::future::try_join_all(ends).await.unwrap();
        })]
    }

    fn read(
        &self,
        mut stream: PartitionStream,
        source: usize,
        partition: u32,
        mut random: Random,
    ) -> impl Future<Output = ()> + use<> {
        let (slow, ordered, batches) = (self.slow, self.options.ordered, self.batches);
        async move {
            let mut got = Vec::new();
            while let Some(batch) = stream.next().await {
                got.push(batch.unwrap());
                if slow {
                    random.dawdle().await;
                }
            }
            if !ordered {
                got.sort_by_key(number);
            }
            let numbers = 0..batches;
            let expected: Vec<_> = numbers.map(|n| mixed(source, partition, n)).collect();
            assert!(got == expected, "{source}, {partition}: {}", got.len());
        }
    }
}

/// A batch of one message, of two or of several.
fn mixed(source: usize, partition: u32, number: i64) -> RecordBatch {
    let rows = [2, ROWS, 3 * ROWS][number as usize % 3];
    batch(source, partition, number, rows)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_row_arrives_once_whatever_is_lost(
        seed: u64,
        design in prop::sample::select(DATAGRAMS.to_vec()),
        nodes in 1usize..=3,
        rate in prop::sample::select(vec![10, 100, 1_000, 3_000]),
        window in prop::sample::select(vec![2usize, 3, 16, 100]),
        ordered: bool,
        slow: bool,
        disturbed: bool,
    ) {
        let mut options = small(design);
        options.window.least = window;
        options.window.first = window;
        options.window.most = 2 * window;
        options.ordered = ordered;
        let exchange = Exchange { options, nodes, batches: 20, slow };
        let mut random = Random(seed);
        let judges = random.fork();
        on_runtime(2, async move {
            let judge = |node| {
                let seed = judges.0.wrapping_add(node as u64);
                let other = if disturbed { unruly(seed) } else { all_delivered() };
                lossy(seed, rate, other)
            };
            exchange.run(judge, random).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_heals_may_be_lost_too() {
    for design in DATAGRAMS {
        for lost in [
            Kind::Credit,
            Kind::EndOfStream,
            Kind::Acknowledge,
            Kind::Sent,
            Kind::Missing,
        ] {
            let judge = |_| -> Judge {
                Box::new(move |header, number| match header.kind() {
                    // So many that questions, answers and asks are needed.
                    Kind::Data if number % 5 == 3 => Fate::Lost,
                    kind if kind == lost && number < 10 => Fate::Lost,
                    _ => Fate::Delivered,
                })
            };
            let exchange = Exchange {
                options: small(design),
                nodes: 2,
                batches: 20,
                slow: false,
            };
            let report = exchange.run(judge, Random(1)).await;
            assert!(report.repaired_messages > 0 && report.repair_asks > 0);
        }
    }
}

/// Loses the first copy of some data messages, and counts.
fn lose_once(is_lost: impl Fn(u64) -> bool + Send + 'static) -> Judge {
    lose_copy(0, is_lost)
}

/// Loses one copy of some data messages: those to one member of a group.
fn lose_copy(copy: usize, is_lost: impl Fn(u64) -> bool + Send + 'static) -> Judge {
    let mut copies: HashMap<(u16, u64), usize> = HashMap::new();
    Box::new(move |header: &Header, _| {
        let Body::Data(_) = header.body else {
            return Fate::Delivered;
        };
        let sent = copies.entry((header.group, header.sequence)).or_default();
        *sent += 1;
        match *sent == copy + 1 && is_lost(header.sequence) {
            true => Fate::Lost,
            false => Fate::Delivered,
        }
    })
}

/// One partition of node 1, from node 0.
struct OneLink {
    cluster: [Node; 2],
    links: Links,
}

impl OneLink {
    fn open(options: &Options, judge: impl FnMut() -> Judge) -> Self {
        let (cluster, links) = pair(options, judge);
        Self { cluster, links }
    }

    fn sender(&self) -> (Arc<Shuffle>, Destination, Group) {
        let (destination, group) = self.links.destinations[0][1].clone();
        (self.cluster[0].shuffle.clone(), destination, group)
    }

    fn stream(&self) -> PartitionStream {
        let schema = batch(0, 0, 0, 1).schema();
        let receive = &self.cluster[1].receive;
        receive.stream(&self.links.links[1][0], 2, &schema).unwrap()
    }
}

/// Ends the lane of the partition that is read.
async fn finish(shuffle: &Shuffle, destination: &Destination) -> Result<(), ExchangeError> {
    let lane = destination.lane_of(2);
    shuffle.finish_lane(destination, lane).await
}

/// Messages of the exchange below that a batch takes.
const MESSAGES: u64 = 2;

/// Loses some messages of one link once, and returns how many.
async fn lose_exactly(options: &Options, batches: i64, lost: &'static [u64]) {
    let link = OneLink::open(options, || {
        lose_once(move |sequence| lost.contains(&sequence))
    });
    let (shuffle, destination, group) = link.sender();
    let sender = tokio::spawn(async move {
        for batch in sent(0, 2, batches, ROWS) {
            shuffle.send(&group, 2, &batch).await.unwrap();
        }
        finish(&shuffle, &destination).await.unwrap();
    });
    let read = link.stream().try_collect::<Vec<_>>();
    let mut got = tokio::time::timeout(HANG, read)
        .await
        .expect("no exchange hangs")
        .unwrap();
    got.sort_by_key(number);
    assert!(got == sent(0, 2, batches, ROWS));
    tokio::time::timeout(HANG, sender)
        .await
        .expect("the sender ends")
        .unwrap();
    let (shuffle, destination, _) = link.sender();
    let to = shuffle.destination_report(&destination);
    assert_eq!(to.messages, MESSAGES * batches as u64);
    assert!(lost.iter().all(|sequence| *sequence < to.messages));
    assert_eq!(to.repaired_messages, lost.len() as u64, "{lost:?}");
    assert_eq!(shuffle.report().repaired_messages, lost.len() as u64);
    let received = link.cluster[1].receive.report();
    assert_eq!(received.duplicates, 0, "{lost:?}");
    assert_eq!(received.repair_asks > 0, !lost.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_what_was_lost_is_sent_again() {
    for design in DATAGRAMS {
        let mut options = small(design);
        // Longer than anything takes: nobody asks twice.
        options.repeat_interval = Duration::from_millis(400);
        for lost in [
            &[] as &[u64],
            &[0],
            &[7],
            &[119],
            &[0, 1, 17, 18, 19, 50, 118],
            // More than a window, its credit, and the end of everything.
            &[
                20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,
            ],
            &[112, 113, 114, 115, 116, 117, 118, 119],
        ] {
            lose_exactly(&options, 60, lost).await;
        }
        // More than one ask can name.
        const MANY: [u64; 200] = {
            let mut lost = [0; 200];
            let mut index = 0;
            while index < 200 {
                lost[index] = index as u64 * 2;
                index += 1;
            }
            lost
        };
        options.window.first = 400;
        options.window.most = 400;
        lose_exactly(&options, 200, &MANY).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_misses_something_gets_it_alone() {
    for design in DATAGRAMS {
        let mut options = small(design);
        options.repeat_interval = Duration::from_millis(400);
        let nodes: Vec<Node> = (0..4)
            .map(|_| {
                let device = faulty::open(lose_copy(1, |sequence| sequence % 10 == 9));
                Node::on(fabric(device, ArenaOptions::default()), &options)
            })
            .collect();
        let links = connect(&nodes, |_| 0..1);
        let to = links.destinations[0].iter().skip(1);
        let members: Vec<_> = to.map(|(member, _)| member.clone()).collect();
        let group = nodes[0].shuffle.group(&members).unwrap();
        let shuffle = nodes[0].shuffle.clone();
        let to = members.clone();
        let sender = tokio::spawn(async move {
            for batch in sent(0, 0, 40, ROWS) {
                shuffle.send(&group, 0, &batch).await.unwrap();
            }
            let ends = to.iter().map(|member| shuffle.finish(member));
            futures::future::try_join_all(ends).await.unwrap();
        });
        let schema = batch(0, 0, 0, 1).schema();
        let reads = (1..4).map(|target| {
            let link = &links.links[target][0];
            let stream = nodes[target].receive.stream(link, 0, &schema).unwrap();
            stream.try_collect::<Vec<_>>()
        });
        let reads = futures::future::try_join_all(reads);
        let all = tokio::time::timeout(HANG, reads).await;
        for mut got in all.expect("no exchange hangs").unwrap() {
            got.sort_by_key(number);
            assert!(got == sent(0, 0, 40, ROWS));
        }
        sender.await.unwrap();
        let repaired = members.iter().map(|member| {
            let report = nodes[0].shuffle.destination_report(member);
            report.repaired_messages
        });
        assert_eq!(repaired.collect::<Vec<_>>(), [0, 8, 0]);
        for node in &nodes {
            assert_eq!(node.receive.report().duplicates, 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_takes_nothing_from_the_others() {
    for design in DATAGRAMS {
        let options = small(design);
        let judge = || lose_copy(1, |sequence| sequence % 2 == 0);
        let (cluster, mut links) = pair(&options, judge);
        let to = links.destinations[0].clone();
        let members: Vec<_> = to.iter().map(|(member, _)| member.clone()).collect();
        let group = cluster[0].shuffle.group(&members).unwrap();
        let shuffle = &cluster[0].shuffle;
        // What fits in the window at once; then one leaves, and the other misses half of it.
        for batch in sent(0, 2, 5, ROWS) {
            shuffle.send(&group, 2, &batch).await.unwrap();
        }
        shuffle.close(&members[0], None);
        drop(links.links[0].remove(0));
        let sent_more = shuffle.send(&group, 2, &batch(0, 2, 5, ROWS)).await;
        assert!(sent_more.is_err());
        let schema = batch(0, 0, 0, 1).schema();
        let link = &links.links[1][0];
        let stream = cluster[1].receive.stream(link, 2, &schema).unwrap();
        let read = async { stream.try_collect::<Vec<_>>().await.unwrap() };
        let both = async { futures::join!(read, finish(shuffle, &members[1])) };
        let (mut got, finished) = tokio::time::timeout(HANG, both)
            .await
            .expect("no exchange hangs");
        finished.unwrap();
        got.sort_by_key(number);
        assert!(got == sent(0, 2, 5, ROWS));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_busy_elsewhere_repairs() {
    for design in DATAGRAMS {
        let last = MESSAGES * 10 - 1;
        let link = OneLink::open(&small(design), || {
            lose_once(move |sequence| sequence == 3 || sequence == last)
        });
        let (shuffle, destination, group) = link.sender();
        for batch in sent(0, 2, 4, ROWS) {
            shuffle.send(&group, 2, &batch).await.unwrap();
        }
        let mut stream = link.stream();
        let read = tokio::spawn(async move {
            let mut got = Vec::new();
            while got.len() < 10 {
                got.push(stream.next().await.unwrap().unwrap());
            }
            got.sort_by_key(number);
            (got, stream)
        });
        for batch in sent(0, 2, 10, ROWS).into_iter().skip(4) {
            shuffle.send(&group, 2, &batch).await.unwrap();
        }
        // It neither sends nor ends until the reader has everything.
        let (got, stream) = tokio::time::timeout(HANG, read)
            .await
            .expect("no exchange hangs")
            .unwrap();
        assert!(got == sent(0, 2, 10, ROWS));
        let rest = async { stream.try_collect::<Vec<_>>().await.unwrap() };
        let both = async { futures::join!(rest, finish(&shuffle, &destination)) };
        let (rest, finished) = tokio::time::timeout(HANG, both)
            .await
            .expect("no exchange hangs");
        finished.unwrap();
        assert!(rest.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_was_silent_for_long_is_given_time() {
    for design in DATAGRAMS {
        let mut options = small(design);
        options.repeat_interval = Duration::from_millis(20);
        options.missing_deadline = Duration::from_millis(200);
        let link = OneLink::open(&options, || lose_once(|sequence| sequence >= MESSAGES));
        let (shuffle, destination, group) = link.sender();
        let sender = tokio::spawn(async move {
            for batch in sent(0, 2, 3, ROWS) {
                shuffle.send(&group, 2, &batch).await.unwrap();
                tokio::time::sleep(2 * options.missing_deadline).await;
            }
            finish(&shuffle, &destination).await.unwrap();
        });
        let read = link.stream().try_collect::<Vec<_>>();
        let got = tokio::time::timeout(HANG, read).await;
        assert!(got.expect("no exchange hangs").unwrap() == sent(0, 2, 3, ROWS));
        sender.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_hold_all_buffers_hold_up_no_repair() {
    const TASKS: i64 = 6;
    for design in DATAGRAMS {
        let mut options = small(design);
        options.window.least = 2;
        options.window.first = 2;
        options.window.most = 2;
        let link = OneLink::open(&options, || lose_once(|sequence| sequence % 5 == 0));
        let (shuffle, destination, group) = link.sender();
        let sends = (0..TASKS).map(|task| {
            let (shuffle, group) = (shuffle.clone(), group.clone());
            tokio::spawn(async move {
                let mine = |number: &usize| *number as i64 % TASKS == task;
                let all = sent(0, 2, 10 * TASKS, ROWS).into_iter().enumerate();
                for (_, batch) in all.filter(|(number, _)| mine(number)) {
                    shuffle.send(&group, 2, &batch).await.unwrap();
                }
            })
        });
        let sends: Vec<_> = sends.collect();
        let send = async {
            futures::future::try_join_all(sends).await.unwrap();
            finish(&shuffle, &destination).await.unwrap();
        };
        let read = async { link.stream().try_collect::<Vec<_>>().await.unwrap() };
        let both = async { futures::join!(read, send) };
        let (mut got, ()) = tokio::time::timeout(HANG, both)
            .await
            .expect("no exchange hangs");
        got.sort_by_key(number);
        assert!(got == sent(0, 2, 10 * TASKS, ROWS));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_has_ended_is_needed_no_more() {
    for design in DATAGRAMS {
        let last = MESSAGES * 10 - 1;
        let link = OneLink::open(&small(design), || {
            lose_once(move |sequence| sequence == last)
        });
        let (shuffle, destination, group) = link.sender();
        let sender = tokio::spawn(async move {
            for batch in sent(0, 2, 10, ROWS) {
                shuffle.send(&group, 2, &batch).await.unwrap();
            }
            finish(&shuffle, &destination).await.unwrap();
            shuffle.close(&destination, None);
        });
        let read = link.stream().try_collect::<Vec<_>>();
        let got = tokio::time::timeout(HANG, read).await;
        let mut got = got.expect("no exchange hangs").unwrap();
        got.sort_by_key(number);
        assert!(got == sent(0, 2, 10, ROWS));
        sender.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_kept_until_they_have_arrived() {
    for design in DATAGRAMS {
        let link = OneLink::open(&small(design), || lose_once(|sequence| sequence == 0));
        let (shuffle, destination, group) = link.sender();
        let rows = batch(0, 2, 0, ROWS);
        let held = || rows.column(0).to_data().buffers()[0].strong_count();
        let unsent = held();
        shuffle.send(&group, 2, &rows).await.unwrap();
        assert!(held() > unsent);
        let read = async { link.stream().try_collect::<Vec<_>>().await.unwrap() };
        let both = async { futures::join!(read, finish(&shuffle, &destination)) };
        let (got, finished) = tokio::time::timeout(HANG, both)
            .await
            .expect("no exchange hangs");
        finished.unwrap();
        assert!(got == [rows.clone()]);
        drop(got);
        assert_eq!(held(), unsent, "{design}");
    }
}

/// The error that a reader ends with.
async fn failure(mut stream: PartitionStream) -> ExchangeError {
    let read = async {
        loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return error,
                None => panic!("rows are missing and nobody says so"),
            }
        }
    };
    let failed = tokio::time::timeout(HANG, read).await;
    failed.expect("no exchange hangs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_repaired_is_missing() {
    for design in DATAGRAMS {
        for source_stays in [true, false] {
            let mut options = small(design);
            options.missing_deadline = Duration::from_millis(200);
            let never = |header: &Header, _| match header.body {
                Body::Data(_) if header.sequence == 5 => Fate::Lost,
                _ => Fate::Delivered,
            };
            let mut link = OneLink::open(&options, || Box::new(never));
            let (shuffle, destination, group) = link.sender();
            for batch in sent(0, 2, 4, ROWS) {
                shuffle.send(&group, 2, &batch).await.unwrap();
            }
            let stream = link.stream();
            if !source_stays {
                drop((shuffle, destination, group));
                link.links.destinations.clear();
                let other = link.cluster[1].shuffle.clone();
                link.cluster[0].shuffle = other;
            }
            let error = failure(stream).await;
            assert!(error.is_transient(), "{error}");
            let ExchangeError::MessagesMissing { missing, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(missing, 1);
        }
    }
}
