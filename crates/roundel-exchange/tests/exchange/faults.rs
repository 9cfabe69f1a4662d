//! Over datagrams that are lost, repeated and overtaken, every row arrives exactly once, or the
//! receiver says that messages are missing. How lost rows are repaired is in `repair`.

use crate::cluster::{Links, Node, Options, connect, fabric, options, own};
use crate::designs::{batch, feed, repartition_on};
use crate::faulty::{self, Fate, Judge};
use crate::random::{Random, on_runtime};
use futures::StreamExt;
use proptest::prelude::*;
use roundel_exchange::wire::{Header, Kind};
use roundel_exchange::{Design, ExchangeError, OnLoss};
use roundel_verbs::ArenaOptions;
use std::time::Duration;

pub const DATAGRAMS: [Design; 2] = [Design::MesqSr, Design::SesqSr];
pub const WINDOW: usize = 16;
/// Longer than any of these exchanges takes.
pub const HANG: Duration = Duration::from_secs(10);

pub fn small(design: Design) -> Options {
    let mut options = options(design, 2);
    options.message_bytes = 512;
    options.window.least = WINDOW;
    options.window.most = WINDOW;
    options.repeat_interval = Duration::from_millis(3);
    options.missing_deadline = HANG / 2;
    options
}

/// Overtakes data at random and repeats some of it, not so much at a time that a receiver has no
/// receive left for it; loses, repeats and overtakes control messages.
pub fn unruly(seed: u64) -> Judge {
    let mut random = Random(seed);
    let mut repeated_at = 0;
    Box::new(move |header, number| {
        let turns = 1 + random.below(8) as u32;
        if header.kind() == Kind::Data {
            let repeat = number >= repeated_at + 2 * WINDOW as u64 && random.below(4) == 0;
            if repeat {
                repeated_at = number;
            }
            return match (repeat, random.below(4)) {
                (true, 0 | 1) => Fate::Repeated,
                (true, _) => Fate::RepeatedLater(turns),
                (false, 0) => Fate::HeldBack(turns),
                (false, _) => Fate::Delivered,
            };
        }
        match random.below(6) {
            0 | 1 => Fate::Lost,
            2 => Fate::Repeated,
            3 => Fate::HeldBack(turns),
            _ => Fate::Delivered,
        }
    })
}

/// Two nodes, each with such a device.
fn nodes(options: &Options, mut judge: impl FnMut() -> Judge) -> [Node; 2] {
    [0, 1].map(|_| {
        let device = faulty::open(judge());
        Node::on(fabric(device, ArenaOptions::default()), options)
    })
}

/// The same, linked.
pub fn pair(options: &Options, judge: impl FnMut() -> Judge) -> ([Node; 2], Links) {
    let cluster = nodes(options, judge);
    let links = connect(&cluster, |node| own(node, 2));
    (cluster, links)
}

/// Sends batches of both partitions from each node to each, and checks what arrives.
async fn exchange(options: &Options, batches: i64, judge: impl FnMut() -> Judge) {
    let nodes = nodes(options, judge);
    let exchanged = repartition_on(&nodes, batches, 20, options.ordered);
    tokio::time::timeout(HANG, exchanged)
        .await
        .expect("no repetition hangs");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_row_arrives_once_whatever_the_network_does(
        seed: u64,
        ordered: bool,
        multi: bool,
        on_loss in prop::sample::select(OnLoss::ALL.to_vec()),
    ) {
        let mut options = small(DATAGRAMS[usize::from(multi)]);
        options.ordered = ordered;
        options.on_loss = on_loss;
        let mut seeds = seed..;
        on_runtime(2, exchange(&options, 60, || unruly(seeds.next().unwrap())));
    }
}

/// Of a kind, the first few are lost.
pub fn first_lost(lost: Kind, count: u64) -> Judge {
    Box::new(
        move |header, number| match header.kind() == lost && number < count {
            true => Fate::Lost,
            false => Fate::Delivered,
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_control_messages_are_repeated() {
    for design in DATAGRAMS {
        for lost in [Kind::Credit, Kind::EndOfStream, Kind::Acknowledge] {
            for on_loss in OnLoss::ALL {
                let mut options = small(design);
                options.on_loss = on_loss;
                exchange(&options, 30, || first_lost(lost, 10)).await;
            }
        }
    }
}

/// Loses data messages from the `first`, for good; one partition is read, by one reader.
async fn lose(design: Design, on_loss: OnLoss, first: u64, count: u64, batches: i64) {
    let lost = move |header: &Header, number| match header.kind() == Kind::Data
        && (first..first + count).contains(&number)
    {
        true => Fate::Lost,
        false => Fate::Delivered,
    };
    let mut options = small(design);
    options.on_loss = on_loss;
    options.missing_deadline = Duration::from_millis(200);
    let (cluster, links) = pair(&options, || Box::new(lost));
    let target = &links.destinations[0][1];
    let sender = feed(&cluster[0], target, 2..3, 0..batches, (0, 20));
    let schema = batch(0, 0, 0, 1).schema();
    let link = &links.links[1][0];
    let mut stream = cluster[1].receive.stream(link, 2, &schema).unwrap();
    let error = tokio::time::timeout(HANG, async {
        loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return error,
                None => panic!("rows are missing and nobody says so"),
            }
        }
    })
    .await
    .expect("no exchange hangs");
    assert_eq!(error.is_transient(), on_loss == OnLoss::Restart, "{error}");
    let told = error.to_string();
    assert!(told.starts_with("node 0 sent "), "{told}");
    let ExchangeError::MessagesMissing { missing, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(missing, count);
    // Whoever reads tells the source by the control plane.
    cluster[0].shuffle.close(&target.0, Some(error));
    let _ = tokio::time::timeout(HANG, sender)
        .await
        .expect("the sender ends")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_data_is_missed_at_the_end() {
    for design in DATAGRAMS {
        for on_loss in [OnLoss::Restart, OnLoss::Fail] {
            for count in [1, 5] {
                lose(design, on_loss, 7, count, 10).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_whose_credit_was_lost_with_its_data_is_not_waited_for() {
    for design in DATAGRAMS {
        for on_loss in [OnLoss::Restart, OnLoss::Fail] {
            lose(design, on_loss, 0, WINDOW as u64, 100).await;
            lose(design, on_loss, 20, WINDOW as u64, 100).await;
        }
    }
}
