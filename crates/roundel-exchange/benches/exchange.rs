//! How fast rows cross an exchange: two nodes in one process, all to all, over shared memory.
//!
//! `cargo bench -p roundel-exchange --bench exchange [part of a case's name]` prints one line per case:
//! bytes of messages sent per second, the median of several runs. Nothing is lost: `repair` beside
//! `restart` says what it costs to be able to repair.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use futures::StreamExt;
use roundel_exchange::*;
use roundel_verbs::{Transport, shm};

const NODES: usize = 2;
const THREADS: usize = 2;
const BATCHES: usize = 1600;
const RUNS: usize = 7;

struct Node {
    shuffle: Arc<Shuffle>,
    receive: Receive,
}

fn main() {
    let only = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    let batches = [("4096 rows", batch(4096)), ("64 rows", batch(64))];
    for (design, on_loss) in designs() {
        for (rows, batch) in &batches {
            for pattern in ["repartition", "broadcast"] {
                let case = format!("{design} {on_loss}, {pattern}, {rows}");
                if only.as_ref().is_some_and(|only| !case.contains(only)) {
                    continue;
                }
                let broadcast = pattern == "broadcast";
                let mut runs: Vec<f64> = (0..RUNS)
                    .map(|_| on_runtime(run(design, on_loss, batch, broadcast)))
                    .collect();
                runs.sort_by(f64::total_cmp);
                println!("{case}: {:.0} MB/s", runs[RUNS / 2]);
            }
        }
    }
}

/// What is compared. Over connections nothing is lost, and there is nothing to do about it.
fn designs() -> Vec<(Design, OnLoss)> {
    let all = Design::ALL.into_iter();
    all.flat_map(|design| match design.transport() {
        Transport::ReliableConnection => vec![(design, OnLoss::default())],
        _ => vec![(design, OnLoss::Repair), (design, OnLoss::Restart)],
    })
    .collect()
}

fn on_runtime(run: impl Future<Output = f64>) -> f64 {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts")
        .block_on(run)
}

fn batch(rows: usize) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let names = (0..rows).map(|row| format!("the name of row {row}"));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    RecordBatch::try_from_iter([("key", keys), ("name", names)]).expect("columns are of one length")
}

/// One exchange, in megabytes per second. Each node has a task and a partition per thread.
async fn run(design: Design, on_loss: OnLoss, batch: &RecordBatch, broadcast: bool) -> f64 {
    let mut options = None;
    let nodes: Vec<Node> = (0..NODES as u32)
        .map(|source| {
            let device = shm::open(shm::ShmOptions::default()).expect("a device opens");
            let fabric = Fabric::open(device, Default::default()).expect("a fabric opens");
            let options = options.get_or_insert_with(|| {
                let mut options =
                    ExchangeOptions::new(design, THREADS, fabric.device.capabilities());
                options.ordered = true;
                options.on_loss = on_loss;
                options
            });
            let budget: Arc<dyn MemoryBudget> = Arc::new(Unlimited);
            Node {
                shuffle: Arc::new(
                    Shuffle::open(&fabric, options, &Route::direct(), 1, source)
                        .expect("endpoints open"),
                ),
                receive: Receive::open(&fabric, options, &Route::direct(), &budget)
                    .expect("endpoints open"),
            }
        })
        .collect();
    let partitions = 0..(NODES * THREADS) as u32;
    let mut links = Vec::new();
    let mut destinations = vec![Vec::new(); NODES];
    for (target, node) in nodes.iter().enumerate() {
        for (source, sender) in nodes.iter().enumerate() {
            let own = partitions.clone();
            let (link, offers) = node.receive.offer("a peer", None, own).expect("links fit");
            let (destination, answers) =
                sender.shuffle.accept(&offers, "a peer").expect("links fit");
            node.receive.connect(&link, &answers).expect("peers answer");
            destinations[source].push(destination);
            links.push((target, link));
        }
    }
    let started = Instant::now();
    let mut tasks = Vec::new();
    for (source, node) in nodes.iter().enumerate() {
        let to = &destinations[source];
        let groups: Vec<_> = match broadcast {
            true => vec![node.shuffle.group(to).expect("buffers are there")],
            false => to
                .iter()
                .map(|to| node.shuffle.group(std::slice::from_ref(to)))
                .collect::<Result<_, _>>()
                .expect("buffers are there"),
        };
        let mut feeds = Vec::new();
        for thread in 0..THREADS {
            let (shuffle, groups, batch) = (node.shuffle.clone(), groups.clone(), batch.clone());
            let all = UInt32Array::from_iter_values(0..batch.num_rows() as u32);
            feeds.push(tokio::spawn(async move {
                for number in 0..BATCHES {
                    let group = &groups[number % groups.len()];
                    let partition = (number % groups.len() * THREADS + thread) as u32;
                    // New rows, as an operator would have made them.
                    let rows = take_record_batch(&batch, &all).expect("rows exist");
                    let sent = shuffle.send(group, partition, &rows).await;
                    sent.expect("nothing fails");
                }
            }));
        }
        let (shuffle, to) = (node.shuffle.clone(), to.clone());
        tasks.push(tokio::spawn(async move {
            for feed in feeds {
                feed.await.expect("nothing panics");
            }
            for destination in &to {
                let finished = shuffle.finish(destination).await;
                finished.expect("nothing fails");
            }
        }));
    }
    for (target, link) in &links {
        for partition in partitions.clone() {
            let stream = nodes[*target]
                .receive
                .stream(link, partition, &batch.schema())
                .expect("types are supported");
            tasks.push(tokio::spawn(stream.for_each(|got| async move {
                got.expect("nothing fails");
            })));
        }
    }
    for task in tasks {
        task.await.expect("nothing panics");
    }
    let seconds = started.elapsed().as_secs_f64();
    let bytes = nodes.iter().zip(&destinations).flat_map(|(node, to)| {
        to.iter()
            .map(|to| node.shuffle.destination_report(to).bytes)
    });
    bytes.sum::<u64>() as f64 / 1e6 / seconds
}
