//! What it costs to send the same 200 MB of rows to several nodes: to each by itself, and to all at once. One process,
//! shared memory; the source keeps its batches, as one does that several consumers read.
//!
//! `cargo bench --bench broadcast [part of a case's name]` prints one line per case: the medians of several runs, which
//! take turns, and how many times as long "each" takes as "all".

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::StreamExt;
use futures::future::try_join_all;
use roundel_exchange::multiplexer::{Multiplexer, MultiplexerOptions};
use roundel_exchange::operator::Broadcast;
use roundel_exchange::*;
use roundel_verbs::{Regions, shm};

const BYTES: usize = 200_000_000;
const PARTITIONS: u32 = 2;
const RUNS: usize = 5;
const READ_AT_ONCE: &str = "an endpoint's READ";
const MULTIPLEXER: &str = "a multiplexer";

struct Node {
    multiplexer: Multiplexer,
    shuffle: Arc<Shuffle>,
    receive: Receive,
}

/// Seconds that passed, and that processors worked.
#[derive(Clone, Copy)]
struct Took {
    passed: f64,
    worked: f64,
    /// Bytes of rows that messages were filled with.
    filled: u64,
}

fn main() {
    let only = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    let batches = batches();
    for way in ["an endpoint's SEND", READ_AT_ONCE, MULTIPLEXER] {
        for consumers in [3, 7] {
            let case = format!("{consumers} consumers through {way}");
            if only.as_ref().is_some_and(|only| !case.contains(only)) {
                continue;
            }
            let mut runs = [Vec::new(), Vec::new()];
            for _ in 0..RUNS {
                for (at_once, runs) in runs.iter_mut().enumerate() {
                    let run = run(way, consumers, &batches, at_once == 1);
                    runs.push(on_runtime(run));
                }
            }
            let median = |runs: &[Took], value: fn(&Took) -> f64| {
                let mut values: Vec<f64> = runs.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let [each, all] = &runs;
            let (passed, worked) = (|took: &Took| took.passed, |took: &Took| took.worked);
            println!(
                "{case}: each {:.2} s, {:.2} s of processors, {} MB filled; all {:.2} s, {:.2} s, {} MB; {:.2} and {:.2} times",
                median(each, passed),
                median(each, worked),
                each[0].filled / 1_000_000,
                median(all, passed),
                median(all, worked),
                all[0].filled / 1_000_000,
                median(each, passed) / median(all, passed),
                median(each, worked) / median(all, worked),
            );
        }
    }
}

fn on_runtime<T>(run: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts")
        .block_on(run)
}

/// Batches of 8192 rows each.
fn batches() -> Vec<RecordBatch> {
    let rows = 8192;
    let batch = |number: i64| {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(
            (0..rows).map(|row| number * row),
        ));
        let names = (0..rows).map(|row| format!("the name of row {row} of batch {number}"));
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
        RecordBatch::try_from_iter([("key", keys), ("name", names)])
            .expect("columns are of one length")
    };
    let count = BYTES / batch(0).get_array_memory_size();
    (0..count as i64).map(batch).collect()
}

/// Time that the processors worked for this process.
fn worked() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux says so");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // In hundredths of a second.
    let [user, system] = [11, 12].map(|field| fields[field].parse::<u64>().expect("a number"));
    (user + system) as f64 / 100.0
}

fn open(way: &str, number: u32) -> Node {
    let device = shm::open(shm::ShmOptions::default()).expect("a device opens");
    let fabric = Fabric::open(device, Default::default()).expect("a fabric opens");
    let capabilities = fabric.device.capabilities().clone();
    let multiplexer = Multiplexer::open(
        &fabric,
        MultiplexerOptions::new(&capabilities),
        &Regions::one(),
    );
    let multiplexer = multiplexer.expect("a multiplexer opens");
    tokio::spawn(multiplexer.drive());
    let design = match way {
        READ_AT_ONCE => Design::MemqRd,
        _ => Design::MemqSr,
    };
    let mut options = ExchangeOptions::new(design, PARTITIONS as usize, &capabilities);
    let route = match way {
        MULTIPLEXER => Route::through(&multiplexer, 1, &Arc::default()),
        _ => Route::direct(),
    };
    options.ordered = true;
    options.coupled = true;
    let budget: Arc<dyn MemoryBudget> = Arc::new(Unlimited);
    Node {
        shuffle: Arc::new(
            Shuffle::open(&fabric, &options, &route, 1, number).expect("endpoints open"),
        ),
        receive: Receive::open(&fabric, &options, &route, &budget).expect("endpoints open"),
        multiplexer,
    }
}

fn meet(one: &Multiplexer, other: &Multiplexer) {
    let address = one.meet(other.id(), "other").expect("a queue pair opens");
    let answer = other.accept(one.id(), "one", &address).expect("it answers");
    one.join(other.id(), &answer).expect("they meet");
}

async fn run(way: &str, consumers: u32, batches: &[RecordBatch], at_once: bool) -> Took {
    let source = open(way, 0);
    let nodes: Vec<Node> = (1..=consumers).map(|number| open(way, number)).collect();
    let mut members = Vec::new();
    let mut reads = Vec::new();
    let mut links = Vec::new();
    let schema = batches[0].schema();
    for node in &nodes {
        let met = (way == MULTIPLEXER).then(|| {
            meet(&source.multiplexer, &node.multiplexer);
            source.multiplexer.id()
        });
        let offered = node.receive.offer("a peer", met, 0..PARTITIONS);
        let (link, offers) = offered.expect("links fit");
        let (to, answers) = source.shuffle.accept(&offers, "a peer").expect("links fit");
        node.receive.connect(&link, &answers).expect("peers answer");
        for partition in 0..PARTITIONS {
            let stream = node.receive.stream(&link, partition, &schema);
            let stream = stream.expect("types are supported");
            reads.push(tokio::spawn(stream.fold(0, async |rows, got| {
                rows + got.expect("nothing fails").num_rows()
            })));
        }
        members.push(to);
        links.push(link);
    }
    let (began, worked_before) = (Instant::now(), worked());
    let mut sends = Vec::new();
    let parts = if at_once {
        vec![members.clone()]
    } else {
        members.iter().map(|to| vec![to.clone()]).collect()
    };
    for part in parts {
        let broadcast = Broadcast::new(source.shuffle.clone(), part);
        let broadcast = Arc::new(broadcast.expect("buffers are there"));
        for partition in 0..PARTITIONS {
            let broadcast = broadcast.clone();
            let own = batches
                .iter()
                .skip(partition as usize)
                .step_by(PARTITIONS as usize);
            let own: Vec<RecordBatch> = own.cloned().collect();
            sends.push(tokio::spawn(async move {
                for batch in &own {
                    let sent = broadcast.send(partition as usize, partition, batch).await;
                    sent.expect("nothing fails");
                }
            }));
        }
    }
    try_join_all(sends).await.expect("nothing panics");
    let finished = members.iter().map(|to| source.shuffle.finish(to));
    try_join_all(finished).await.expect("nothing fails");
    let rows: Vec<usize> = try_join_all(reads).await.expect("nothing panics");
    let sent: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows.iter().sum::<usize>(), sent * consumers as usize);
    Took {
        passed: began.elapsed().as_secs_f64(),
        worked: worked() - worked_before,
        filled: source.shuffle.report().filled_bytes,
    }
}
