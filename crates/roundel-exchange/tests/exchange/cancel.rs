//! Readers and senders that end at random moments hold up nobody else.

use crate::cluster::{Node, Way, connect, options, own, ways};
use crate::designs::batch;
use crate::random::{Random, on_runtime};
use futures::StreamExt;
use proptest::prelude::*;
use roundel_exchange::ExchangeError;
use std::time::Duration;

const NODES: usize = 3;
const BATCHES: i64 = 20;
const HANG: Duration = Duration::from_secs(30);

/// How a link ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Whole,
    SenderCancelled(i64),
    ReaderCancelled(i64),
}

async fn run(design: Way, threads: usize, mut random: Random) {
    let mut options = options(design, threads);
    options.message_bytes = 1024;
    options.window.least = 4;
    options.window.first = 4;
    options.window.most = 8;
    options.ordered = true;
    let cluster: Vec<Node> = (0..NODES).map(|_| Node::open(&options)).collect();
    let mut links = connect(&cluster, |node| own(node, 2));
    let schema = batch(0, 0, 0, 1).schema();
    let mut tasks = Vec::new();
    for target in (0..NODES).rev() {
        for source in (0..NODES).rev() {
            let after = random.below(BATCHES as u64) as i64;
            let ending = match random.below(4) {
                0 => Ending::SenderCancelled(after),
                1 => Ending::ReaderCancelled(after),
                _ => Ending::Whole,
            };
            let link = links.links[target].pop().unwrap();
            let (destination, group) = links.destinations[source][target].clone();
            let abort = link.aborter();
            let shuffle = cluster[source].shuffle.clone();
            let to = destination.clone();
            let sender = tokio::spawn(async move {
                for number in 0..BATCHES {
                    for partition in own(target, 2) {
                        let batch = batch(source, partition, number, 40);
                        let sent = shuffle.send(&group, partition, &batch);
                        if ending == Ending::SenderCancelled(number) {
                            // Wherever it is by then.
                            let _ = tokio::time::timeout(Duration::from_micros(300), sent).await;
                            shuffle.close(&to, None);
                            abort(&ExchangeError::PeerFailed {
                                peer: format!("node {source}"),
                                reason: "cancelled".into(),
                            });
                            return;
                        }
                        if let Err(error) = sent.await {
                            assert!(matches!(ending, Ending::ReaderCancelled(_)), "{error}");
                            return;
                        }
                    }
                }
                let done = shuffle.finish(&to).await;
                assert!(done.is_ok() || ending != Ending::Whole, "{done:?}");
            });
            let streams: Vec<_> = own(target, 2)
                .map(|partition| {
                    let receive = &cluster[target].receive;
                    (
                        partition,
                        receive.stream(&link, partition, &schema).unwrap(),
                    )
                })
                .collect();
            let shuffle = cluster[source].shuffle.clone();
            let mut random = random.fork();
            tasks.push(tokio::spawn(async move {
                'read: for (partition, mut stream) in streams {
                    let mut number = 0;
                    while let Some(got) = stream.next().await {
                        random.dawdle().await;
                        match got {
                            Ok(got) => assert!(got == batch(source, partition, number, 40)),
                            Err(error) => {
                                let cancelled = matches!(ending, Ending::SenderCancelled(_));
                                assert!(cancelled, "{error}");
                                break 'read;
                            }
                        }
                        number += 1;
                        if ending == Ending::ReaderCancelled(number) {
                            break 'read;
                        }
                    }
                    assert!(number == BATCHES || ending != Ending::Whole);
                }
                if ending == Ending::Whole {
                    sender.await.unwrap();
                    drop(link);
                } else {
                    drop(link);
                    shuffle.close(&destination, None);
                    sender.await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        tokio::time::timeout(HANG, task)
            .await
            .expect("nobody is held up")
            .unwrap();
    }
}

/// In the machine everything takes long.
fn cases() -> u32 {
    roundel_testbed::devices().map_or(64, |_| 8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_cancelled_hold_up_nobody(
        seed: u64,
        design in prop::sample::select(ways()),
        threads in 1usize..=2,
    ) {
        on_runtime(2, run(design, threads, Random(seed)));
    }
}
