//! CPU cost of the loops of SHUFFLE: rows are put in the order of their partitions, then gathered into
//! messages.
//!
//! `cargo bench -p roundel-exchange --bench scatter` prints one line per number of partitions: the
//! median nanoseconds per row of either loop, for batches of 8192 rows of two 8-byte integers. Words after
//! `--` are how often each is run, then numbers of partitions; `peers/instructions` counts what is executed.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use roundel_exchange::RowsByPartition;
use roundel_exchange::frame::RowSource;

const ROWS: usize = 8_192;
const MESSAGE_LENGTH: usize = 64 << 10;
const PARTITIONS: &[usize] = &[2, 3, 8, 16, 64];

fn main() {
    let words = std::env::args().filter_map(|word| word.parse().ok());
    let words: Vec<usize> = words.collect();
    let (runs, partitions) = match words.split_first() {
        Some((runs, [])) => (*runs, PARTITIONS),
        Some((runs, partitions)) => (*runs, partitions),
        None => (1001, PARTITIONS),
    };
    for &partitions in partitions {
        let [sort, gather] = measure(partitions, runs);
        println!(
            "{partitions:3} partitions: {sort:.2} ns/row to sort, {gather:.2} ns/row to gather, {:.1} GB/s",
            16.0 / (sort + gather)
        );
    }
}

fn measure(partitions: usize, runs: usize) -> [f64; 2] {
    let numbers = |factor: u64| -> ArrayRef {
        let numbers = (0..ROWS as u64).map(|row| (row * factor) as i64);
        Arc::new(Int64Array::from_iter_values(numbers))
    };
    let batch = RecordBatch::try_from_iter([("key", numbers(7919)), ("value", numbers(104_729))]);
    let batch = batch.expect("columns of one length");
    // As a hash would have it, without its cost.
    let targets = (0..ROWS as u64).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
    let targets: Vec<u32> = targets
        .map(|hash| hash as u32 % partitions as u32)
        .collect();
    let mut rows = RowsByPartition::default();
    let mut message = vec![0; MESSAGE_LENGTH];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        let started = Instant::now();
        sort(&mut rows, &targets, partitions);
        let sorted = Instant::now();
        gather(&batch, &rows, partitions, &mut message);
        times[0].push(sorted - started);
        times[1].push(sorted.elapsed());
    }
    times.map(|mut times: Vec<Duration>| {
        times.sort();
        times[runs / 2].as_nanos() as f64 / ROWS as f64
    })
}

// Apart, so that a profiler can tell them.
#[inline(never)]
fn sort(rows: &mut RowsByPartition, targets: &[u32], partitions: usize) {
    rows.sort(black_box(targets), partitions, false)
        .expect("partitions are in bounds");
}

#[inline(never)]
fn gather(batch: &RecordBatch, rows: &RowsByPartition, partitions: usize, message: &mut [u8]) {
    let source = RowSource::new(black_box(batch)).expect("numbers are flat");
    for partition in 0..partitions {
        let mut rest = rows.of(partition);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(source.fitting(&rest, message.len()));
            black_box(source.encode_over(&now, message));
            rest = later;
        }
    }
}
