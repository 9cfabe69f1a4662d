//! Batches that any consumer will do for.

use crate::cluster::{Node, connect, options, ways};
use crate::designs::{batch, feed, number};
use roundel_exchange::operator::SharedStreams;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const BATCHES: i64 = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_batch_is_one_consumers_and_a_slow_one_takes_few() {
    for way in ways() {
        let options = options(way, 2);
        let cluster: Vec<Node> = (0..3).map(|_| Node::open(&options)).collect();
        let links = connect(&cluster, |node| node as u32..node as u32 + 1);
        let schema = batch(0, 0, 0, 1).schema();
        let mut senders = Vec::new();
        for (source, node) in cluster.iter().enumerate() {
            let target = &links.destinations[source][0];
            let first = source as i64 * BATCHES;
            let numbers = first..first + BATCHES;
            senders.push(feed(node, target, 0..1, numbers, (source, 300)));
        }
        let receive = &cluster[0].receive;
        let streams = links.links[0].iter();
        let streams = streams.map(|link| receive.stream(link, 0, &schema).unwrap());
        let shared = SharedStreams::new(streams);
        let done = Arc::new(Semaphore::new(0));
        // The first one has not done with its first batch before the others have done with all.
        let consumers = [true, false, false].map(|slow| {
            let (shared, done) = (shared.clone(), done.clone());
            tokio::spawn(async move {
                let mut got = Vec::new();
                while let Some(batch) = shared.next().await {
                    got.push(number(&batch.unwrap()));
                    if slow {
                        done.acquire_many(2).await.unwrap().forget();
                    }
                }
                done.add_permits(1);
                got
            })
        });
        let mut all = Vec::new();
        for consumer in consumers {
            let got = tokio::time::timeout(Duration::from_secs(60), consumer);
            all.push(got.await.expect("no consumer hangs").unwrap());
        }
        assert!(all[0].len() <= 1, "{way}: {} batches", all[0].len());
        let mut all = all.concat();
        all.sort_unstable();
        assert_eq!(all, (0..3 * BATCHES).collect::<Vec<_>>(), "{way}");
        for sender in senders {
            sender.await.unwrap().unwrap();
        }
    }
}
