//! Measures the rates of a host: each by a join that does little else, on one thread, the median of several.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures this host, in real time"
)]

use super::Rates;
use crate::cyclo::{Cyclo, Output};
use crate::error::{Result, RingError};
use crate::join::{Algorithm, JoinSpec, JoinType, PairPredicate, Window};
use crate::roundabout::{Next, Opening, RingHost, RingOptions, Roundabout};
use crate::spin::{Spinning, decode};
use crate::threads::TokioThreads;
use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::kernels::cmp::gt;
use roundel_verbs::TokioContext;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows of a batch.
const BATCH: usize = 8192;
/// Runs of each measurement.
const RUNS: usize = 3;
/// Odd, and not near a power of two: multiples of it are all keys below a power of two, in a wild order.
const STRIDE: i64 = 0x9e37_79b1;
/// Rows of the small side of a nested-loops join.
const FEW: usize = 64;
/// Elements that go around a ring to measure its links.
const ELEMENTS: u32 = 64;

/// Rates of this host, by joins of so many rows: 2^17 take a fifth of a second, and more of them are more like large joins.
/// Of the link nothing is known yet: it carries everything at once.
///
/// # Errors
/// When a join fails, as for want of memory.
pub async fn calibrate(rows: usize) -> Result<Rates> {
    // Of a power of two, as their keys are all different then.
    let rows = rows.max(BATCH).next_power_of_two();
    let (even, odd) = (relation(rows, 0), relation(rows, 1));
    let one = || vec![even[0].slice(0, 1)];
    let n = rows as f64;
    let per = |time: Duration, count: f64| time.as_nanos() as f64 / count;

    let cluster = run(hash(), &even, &one()).await?;
    let build = run(hash(), &one(), &even).await?;
    let missed = run(hash(), &even, &odd).await?;
    let found = run(hash(), &even, &even).await?;
    let sorted = run(merge(), &even, &one()).await?;
    let passed = run(merge(), &even, &odd).await?;
    // Whose keys are less than all others.
    let few = relation(FEW, -2 * FEW as i64);
    let tested = run(Algorithm::NestedLoops, &few, &even).await?;
    Ok(Rates {
        open: 0.0,
        build: per(build.set_up, n),
        cluster: per(cluster.set_up, n),
        probe: per(missed.join, n),
        emit: per(found.join.saturating_sub(missed.join), n),
        sort: per(sorted.set_up, n * n.log2()),
        pass: per(passed.join, 2.0 * n),
        test: per(tested.join, n * FEW as f64),
        code: per(coding(&even)?, (rows * WIDTH) as f64),
        link: f64::INFINITY,
    })
}

/// What a ring of two hosts of this process needs to open, in nanoseconds, and what its links carry, in bytes per second:
/// the host's part of `open` and `link`.
///
/// # Errors
/// When the device cannot have a ring.
pub async fn calibrate_link(host: &RingHost) -> Result<(f64, f64)> {
    let began = Instant::now();
    let rings = opened(host)?;
    let turns = rings.into_iter().map(|ring| turn(ring, 0));
    futures::future::try_join_all(turns).await?;
    let open = began.elapsed();

    let rings = opened(host)?;
    let bytes = rings[0].payload_bytes_max() as f64 * f64::from(ELEMENTS);
    let began = Instant::now();
    let turns = rings.into_iter().map(|ring| turn(ring, ELEMENTS));
    futures::future::try_join_all(turns).await?;
    let moved = began.elapsed().saturating_sub(open).as_secs_f64();
    Ok((open.as_nanos() as f64, bytes / moved.max(1e-9)))
}

/// Bytes of a row.
const WIDTH: usize = 16;

/// Rows of a key and a value. Keys are two apart, in a wild order, so that those of another relation may be between them.
fn relation(rows: usize, first: i64) -> Vec<RecordBatch> {
    let mask = rows as i64 - 1;
    let batch = |from: usize| {
        let numbers = from as i64..(from + BATCH).min(rows) as i64;
        let keys = numbers.map(|number| (number.wrapping_mul(STRIDE) & mask) * 2 + first);
        let key: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
        RecordBatch::try_from_iter([("key", key.clone()), ("value", key)])
    };
    let batches = (0..rows).step_by(BATCH).map(batch);
    batches.filter_map(std::result::Result::ok).collect()
}

fn hash() -> Algorithm {
    Algorithm::Hash {
        spinning: vec![0],
        stationary: vec![0],
        nulls_equal: false,
    }
}

fn merge() -> Algorithm {
    let equal = Bound::Included(0);
    Algorithm::Merge {
        spinning: 0,
        stationary: 0,
        window: Window::Whole {
            low: equal,
            high: equal,
        },
    }
}

/// The median set-up and join of several runs.
struct Times {
    set_up: Duration,
    join: Duration,
}

async fn run(
    algorithm: Algorithm,
    spinning: &[RecordBatch],
    stationary: &[RecordBatch],
) -> Result<Times> {
    let schema = spinning[0].schema();
    let predicate = (algorithm == Algorithm::NestedLoops).then(|| Arc::new(Greater) as _);
    let cyclo = Cyclo {
        spec: JoinSpec {
            join_type: JoinType::Inner,
            algorithm,
            predicate,
            spinning: schema.clone(),
            stationary: schema,
        },
        threads: Arc::new(TokioThreads(1)),
        context: Arc::new(TokioContext::current()),
        output: Arc::new(Nowhere),
    };
    let (mut set_up, mut join) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let phases = cyclo
            .run_alone(spinning.to_vec(), stationary.to_vec())
            .await?;
        set_up.push(phases.set_up);
        join.push(phases.join);
    }
    Ok(Times {
        set_up: median(set_up),
        join: median(join),
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// How long it takes to make elements of rows, and rows of elements.
fn coding(rows: &[RecordBatch]) -> Result<Duration> {
    let schema = rows[0].schema();
    let bytes_max = RingOptions::default().element_bytes / 2;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        let mut spinning = Spinning::new(schema.clone(), rows.to_vec(), bytes_max, false);
        while !spinning.is_over() {
            decode(spinning.piece()?.payload.into(), &schema, 0)?;
        }
        times.push(began.elapsed());
    }
    Ok(median(times))
}

/// Whether the spinning key is the greater one.
struct Greater;

impl PairPredicate for Greater {
    fn spinning(&self) -> &[usize] {
        &[0]
    }

    fn stationary(&self) -> &[usize] {
        &[0]
    }

    fn test(&self, columns: &[ArrayRef], _: usize) -> Result<BooleanArray, String> {
        gt(&columns[0], &columns[1]).map_err(|error| error.to_string())
    }
}

/// Takes the result, and drops it.
struct Nowhere;

impl Output for Nowhere {
    fn take(&self, _: RecordBatch) -> Result<(), RingError> {
        Ok(())
    }
}

/// Two places of a ring on one device.
fn opened(host: &RingHost) -> Result<Vec<Roundabout>> {
    Opening::all(&[host.clone(), host.clone()], RingOptions::default())
}

/// Has so many elements of this place go around.
async fn turn(mut ring: Roundabout, elements: u32) -> Result<()> {
    let payload = vec![0; ring.payload_bytes_max()];
    let last = elements.max(1);
    let mut begun = 0;
    loop {
        let element = match ring.next(begun < last).await? {
            Next::End => break,
            Next::Element(element) => element,
            Next::Blank(blank) => {
                begun += 1;
                let payload = if elements == 0 { &[] } else { &payload[..] };
                ring.begin(blank, payload, &[], begun == last)
            }
        };
        ring.pass_on(element);
    }
    ring.finish().await
}
