//! Memory that is short, is given back, or is not there.

use crate::cluster::{
    self, Links, Node, Options, Way, connect, designs, fabric, open_device, own, ways,
};
use crate::designs::{batch, feed, sent};
use arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use roundel_exchange::{ExchangeError, MemoryBudget, SpillFile, Window};
use roundel_verbs::{Arena, ArenaOptions, VerbsError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const BATCHES: i64 = 40;
const HANG: Duration = Duration::from_secs(10);

/// So many bytes, and a disk or none.
struct Limited {
    limit: usize,
    used: AtomicUsize,
    disk: bool,
}

impl Limited {
    fn new(limit: usize, disk: bool) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            disk,
        })
    }
}

impl MemoryBudget for Limited {
    fn try_grow(&self, bytes: usize) -> bool {
        let grown = |used: usize| Some(used + bytes).filter(|used| *used <= self.limit);
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown)
            .is_ok()
    }

    fn shrink(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "more is given back than was taken");
    }

    fn spill_file(&self) -> Result<SpillFile, String> {
        if !self.disk {
            return Err("there is no disk".into());
        }
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("roundel-spill-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| error.to_string())?;
        std::fs::remove_file(&path).map_err(|error| error.to_string())?;
        Ok(SpillFile {
            file,
            guard: Box::new(()),
        })
    }
}

/// With windows that hold little of what is sent.
fn options(design: impl Into<Way>, threads: usize) -> Options {
    let mut options = cluster::options(design, threads);
    options.window = Window::fixed(options.window.least);
    options
}

fn pair(options: &Options, budget: &Arc<Limited>) -> ([Node; 2], Links) {
    let node = || {
        let device = open_device();
        let fabric = fabric(device, ArenaOptions::default());
        Node::with_budget(fabric, options, budget.clone())
    };
    let cluster = [node(), node()];
    let links = connect(&cluster, |node| own(node, 2));
    (cluster, links)
}

/// Sends both partitions of node 1 in turn.
fn send(cluster: &[Node; 2], links: &Links, batches: i64) -> JoinHandle<Result<(), ExchangeError>> {
    let target = &links.destinations[0][1];
    feed(&cluster[0], target, own(1, 2), 0..batches, (0, 500))
}

async fn freed(arena: &Arena) {
    let emptied = async {
        while arena.usage().allocated > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let emptied = tokio::time::timeout(Duration::from_secs(1), emptied).await;
    assert!(emptied.is_ok(), "{:?} is still there", arena.usage());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_wait_without_memory_go_to_disk() {
    for design in ways() {
        for (threads, limit) in [(1, 0), (2, 0), (1, 200_000), (2, 200_000)] {
            let mut options = options(design, threads);
            options.ordered = true;
            let budget = Limited::new(limit, true);
            let (cluster, links) = pair(&options, &budget);
            let sender = send(&cluster, &links, BATCHES);
            let schema = batch(0, 0, 0, 1).schema();
            for partition in own(1, 2) {
                let link = &links.links[1][0];
                let receive = &cluster[1].receive;
                let stream = receive.stream(link, partition, &schema).unwrap();
                let got: Vec<RecordBatch> = tokio::time::timeout(HANG, stream.try_collect())
                    .await
                    .expect("no exchange hangs")
                    .unwrap();
                let sent = sent(0, partition, BATCHES, 500);
                assert!(got == sent, "{design} {limit}");
            }
            sender.await.unwrap().unwrap();
            let spilled = cluster[1].receive.report().spilled_bytes;
            assert!(spilled > 0, "{design} {limit}");
            assert_eq!(budget.used.load(Ordering::SeqCst), 0, "{design} {limit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_and_disk_the_exchange_fails() {
    for design in ways() {
        let budget = Limited::new(0, false);
        let (cluster, links) = pair(&options(design, 1), &budget);
        let sender = send(&cluster, &links, BATCHES);
        let schema = batch(0, 0, 0, 1).schema();
        let link = &links.links[1][0];
        for partition in own(1, 2) {
            let receive = &cluster[1].receive;
            let stream = receive.stream(link, partition, &schema).unwrap();
            let got = tokio::time::timeout(HANG, stream.try_collect::<Vec<_>>())
                .await
                .expect("no exchange hangs");
            let error = got.unwrap_err();
            let told =
                matches!(&error, ExchangeError::OutOfMemory(why) if why == "there is no disk");
            assert!(told, "{error}");
        }
        let error = ExchangeError::OutOfMemory("the reader has none".into());
        cluster[0]
            .shuffle
            .close(&links.destinations[0][1].0, Some(error));
        let sent = tokio::time::timeout(HANG, sender).await;
        let _ = sent.expect("the sender ends").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_exchange_gives_everything_back() {
    for design in ways() {
        for read in [0, 1, 5] {
            let budget = Limited::new(1 << 30, true);
            let (cluster, mut links) = pair(&options(design, 2), &budget);
            // More than any buffers hold.
            let sender = send(&cluster, &links, 20 * BATCHES);
            let schema = batch(0, 0, 0, 1).schema();
            let link = links.links[1].remove(0);
            let mut stream = cluster[1].receive.stream(&link, 2, &schema).unwrap();
            for _ in 0..read {
                stream.next().await.unwrap().unwrap();
            }
            drop((stream, link));
            assert_eq!(budget.used.load(Ordering::SeqCst), 0, "{design}");
            cluster[0].shuffle.close(&links.destinations[0][1].0, None);
            let sent = tokio::time::timeout(HANG, sender).await;
            let sent = sent.expect("the sender ends").unwrap();
            assert!(sent.is_err(), "{design}, after {read} batches");
            let arenas = [0, 1].map(|node: usize| cluster[node].fabric.arena.clone());
            drop((links, cluster));
            for arena in arenas {
                freed(&arena).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_beyond_the_quota_are_refused() {
    for design in designs() {
        let options = options(design, 2);
        let device = open_device();
        let small = ArenaOptions {
            registered_bytes_max: 2 << 20,
            segment_bytes: 256 << 10,
        };
        let node = Node::on(fabric(device, small), &options);
        let peer = Node::open(&options);
        let mut links = Vec::new();
        let error = loop {
            let (link, offers) = match node.receive.offer("a peer", None, 0..2) {
                Ok(offered) => offered,
                Err(error) => break error,
            };
            // Its own links take from the same quota.
            let (_, theirs) = peer.receive.offer("the node", None, 0..2).unwrap();
            match node.shuffle.accept(&theirs, "a peer") {
                Ok((destination, _)) => match node.shuffle.group(&[destination]) {
                    Ok(_) => links.push((link, offers)),
                    Err(error) => break error,
                },
                Err(error) => break error,
            }
            assert!(links.len() < 1000, "the quota is not kept");
        };
        let refused = matches!(&error, ExchangeError::Verbs(error)
            if matches!(**error, VerbsError::OutOfRegisteredMemory { .. }));
        assert!(refused, "{error}");
        assert!(!links.is_empty());
        let arena = node.fabric.arena.clone();
        drop((links, node, peer));
        freed(&arena).await;
    }
}
