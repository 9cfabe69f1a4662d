//! Windows around a key (section IV-C2): a sort-merge join. Equality is the window of width 0, a band one around it, and an
//! inequality one that is open at one end.

use super::cluster::{Clustered, cluster};
use super::{Found, Limits, Matcher, PAIRS, Pairs, Window};
use crate::error::{Result, RingError};
use crate::threads::{JoinThreads, on_all};
use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, UInt32Array};
use arrow::compute::{cast, take, take_record_batch};
use arrow::datatypes::{DataType, Decimal64Type, Float64Type, Int64Type, SchemaRef};
use std::cmp::Ordering;
use std::ops::{Bound, Range};

/// Rows of a part that a thread sorts.
const PART_ROWS: usize = 1 << 16;
/// Parts of a batch that spins.
const BATCH_PARTS: usize = 16;
/// Of so many rows one tells where parts begin.
const SAMPLE_EACH: usize = 512;

/// A key that windows can be laid around.
trait Key: Copy + Send + Sync + 'static {
    fn order(&self, other: &Self) -> Ordering;
}

impl Key for i64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Key for f64 {
    /// What is no number is before or behind all numbers, by its sign; keys have no -0.
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

/// A window, as it is laid around spinning keys: the more they are, the further up it is.
trait Around<K>: Send + Sync {
    /// Whether the window begins behind a stationary key.
    fn begins_behind(&self, stationary: K, spinning: K) -> bool;
    /// Whether it ends before one.
    fn ends_before(&self, stationary: K, spinning: K) -> bool;
    /// The stationary keys that the window decides about, from the one to the other; a predicate does about all others.
    fn decides(&self, spinning: K) -> Option<(K, K)>;
}

/// Around whole keys.
struct Whole {
    low: Bound<i64>,
    high: Bound<i64>,
    limits: Option<Limits>,
}

impl Around<i64> for Whole {
    fn begins_behind(&self, stationary: i64, spinning: i64) -> bool {
        let distance = i128::from(stationary) - i128::from(spinning);
        match self.low {
            Bound::Unbounded => false,
            Bound::Included(low) => distance < i128::from(low),
            Bound::Excluded(low) => distance <= i128::from(low),
        }
    }

    fn ends_before(&self, stationary: i64, spinning: i64) -> bool {
        let distance = i128::from(stationary) - i128::from(spinning);
        match self.high {
            Bound::Unbounded => false,
            Bound::Included(high) => distance > i128::from(high),
            Bound::Excluded(high) => distance >= i128::from(high),
        }
    }

    fn decides(&self, spinning: i64) -> Option<(i64, i64)> {
        const ALL: [i128; 2] = [i64::MIN as i128, i64::MAX as i128];
        let Some(limits) = &self.limits else {
            return Some((i64::MIN, i64::MAX));
        };
        let spinning = i128::from(spinning);
        let [least, most] = limits.spinning;
        let [low, high] = limits.distance.map(|end| end.saturating_add(spinning));
        let low = low.max(limits.stationary[0]).max(ALL[0]);
        let high = high.min(limits.stationary[1]).min(ALL[1]);
        let decides = (least..=most).contains(&spinning) && low <= high;
        decides.then_some((low as i64, high as i64))
    }
}

/// Around keys of floating point.
struct Real {
    low: Bound<f64>,
    high: Bound<f64>,
    /// Whether sums are reckoned in 32 bits.
    single: bool,
    /// Whether it decides about what is no number.
    nans: bool,
}

impl Real {
    fn new(low: Bound<f64>, high: Bound<f64>) -> Self {
        let sums = |end: Bound<f64>| match end {
            Bound::Included(distance) | Bound::Excluded(distance) => distance != 0.0,
            Bound::Unbounded => false,
        };
        let end = |end: Bound<f64>| match sums(end) {
            true => closed(end),
            false => end,
        };
        Self {
            low: end(low),
            high: end(high),
            single: false,
            nans: !sums(low) && !sums(high),
        }
    }

    /// The least that a key at a distance may be, by any way to reckon it.
    fn least_at(&self, spinning: f64, distance: f64) -> f64 {
        if distance == 0.0 {
            spinning
        } else if self.single {
            let sum = spinning + f64::from((distance as f32).next_down());
            f64::from((sum as f32).next_down())
        } else {
            (spinning + distance.next_down()).next_down()
        }
    }

    /// The most that it may be.
    fn most_at(&self, spinning: f64, distance: f64) -> f64 {
        -self.least_at(-spinning, -distance)
    }
}

impl Around<f64> for Real {
    fn begins_behind(&self, stationary: f64, spinning: f64) -> bool {
        match self.low {
            Bound::Unbounded => false,
            Bound::Included(low) => stationary.order(&self.least_at(spinning, low)).is_lt(),
            // A NaN may still be less, by its bits.
            Bound::Excluded(_) => stationary.order(&spinning).is_lt() || stationary == spinning,
        }
    }

    fn ends_before(&self, stationary: f64, spinning: f64) -> bool {
        match self.high {
            Bound::Unbounded => false,
            Bound::Included(high) => stationary.order(&self.most_at(spinning, high)).is_gt(),
            Bound::Excluded(_) => stationary.order(&spinning).is_gt() || stationary == spinning,
        }
    }

    fn decides(&self, spinning: f64) -> Option<(f64, f64)> {
        match self.nans {
            true => Some((-f64::NAN, f64::NAN)),
            false => (!spinning.is_nan()).then_some((f64::NEG_INFINITY, f64::INFINITY)),
        }
    }
}

/// Rows by their key, as far as they have one.
struct Sorted<K> {
    keys: Vec<K>,
    rows: Vec<u32>,
}

impl<K: Key> Sorted<K> {
    fn new(mut rows: Vec<(K, u32)>) -> Self {
        if !rows.is_sorted_by(|a, b| a.0.order(&b.0).is_le()) {
            rows.sort_unstable_by(|a, b| a.0.order(&b.0));
        }
        let (keys, rows) = rows.into_iter().unzip();
        Self { keys, rows }
    }

    /// Parts one behind the other.
    fn concat(parts: Vec<Self>) -> Self {
        let rows = parts.iter().map(|part| part.rows.len()).sum();
        let mut all = Self {
            keys: Vec::with_capacity(rows),
            rows: Vec::with_capacity(rows),
        };
        for part in parts {
            all.keys.extend(part.keys);
            all.rows.extend(part.rows);
        }
        all
    }

    /// The rows of parts, of several together: an element of the ring ends where a batch does.
    fn orders(parts: Vec<Self>) -> Vec<Vec<u32>> {
        let several = parts.chunks(BATCH_PARTS);
        let rows = |parts: &[Self]| parts.iter().flat_map(|part| &part.rows).copied().collect();
        several.map(rows).collect()
    }
}

/// The stationary rows, sorted, and the window around a spinning key.
struct Run<K, W> {
    column: usize,
    sorted: Sorted<K>,
    window: W,
    /// How keys of a fragment are read.
    keys: Read<K>,
}

/// What merges fragments, whose keys are in the `spinning` column, with all stationary rows; and those, as it numbers them.
pub(super) async fn matcher(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    stationary: usize,
    spinning: usize,
    window: Window,
    threads: &dyn JoinThreads,
) -> Result<(RecordBatch, Box<dyn Matcher>)> {
    let columns = [stationary, spinning];
    match window {
        Window::Whole { low, high } => {
            let limits = None;
            let around = Whole { low, high, limits };
            run(schema, batches, columns, around, whole, threads).await
        }
        Window::WholeSum { low, high, limits } => {
            let limits = Some(limits);
            let around = Whole { low, high, limits };
            run(schema, batches, columns, around, whole, threads).await
        }
        Window::Real { low, high } => {
            let around = Real::new(low, high);
            run(schema, batches, columns, around, real, threads).await
        }
        Window::RealSum {
            low,
            high,
            single,
            nans_match,
        } => {
            let around = Real {
                low: closed(low),
                high: closed(high),
                single,
                nans: false,
            };
            let keys = reals(nans_match);
            run(schema, batches, columns, around, keys, threads).await
        }
    }
}

async fn run<K: Key, W: Around<K> + 'static>(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    [stationary, spinning]: [usize; 2],
    window: W,
    keys: Read<K>,
    threads: &dyn JoinThreads,
) -> Result<(RecordBatch, Box<dyn Matcher>)> {
    let (clustered, parts) = sorted(schema, batches, stationary, keys, threads).await?;
    let run = Run {
        column: spinning,
        sorted: Sorted::concat(parts),
        window,
        keys,
    };
    Ok((clustered.rows, Box::new(run)))
}

/// The end of a window, with the keys that are at it.
fn closed(end: Bound<f64>) -> Bound<f64> {
    match end {
        Bound::Excluded(distance) => Bound::Included(distance),
        _ => end,
    }
}

/// Rows in the order of their keys, once and for all hosts. Rows without a key come last.
pub(super) async fn sort(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    column: usize,
    window: Window,
    threads: &dyn JoinThreads,
) -> Result<Vec<RecordBatch>> {
    let (clustered, orders) = match window {
        Window::Whole { .. } | Window::WholeSum { .. } => {
            let (clustered, parts) = sorted(schema, batches, column, whole, threads).await?;
            (clustered, Sorted::orders(parts))
        }
        Window::Real { .. } => {
            let (clustered, parts) = sorted(schema, batches, column, real, threads).await?;
            (clustered, Sorted::orders(parts))
        }
        Window::RealSum { nans_match, .. } => {
            let keys = reals(nans_match);
            let (clustered, parts) = sorted(schema, batches, column, keys, threads).await?;
            (clustered, Sorted::orders(parts))
        }
    };
    let without = clustered.begins[clustered.begins.len() - 2]..clustered.rows.num_rows();
    let without = clustered.rows.slice(without.start, without.len());
    let rows = on_all(threads, orders, move |order| {
        Ok(take_record_batch(
            &clustered.rows,
            &UInt32Array::from(order),
        )?)
    });
    let mut rows = rows.await?;
    rows.push(without);
    Ok(rows)
}

/// Rows in parts between neighbouring keys, each of which is sorted by one thread; those without a key are the last part,
/// which is not sorted.
async fn sorted<K: Key>(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    column: usize,
    keys: Read<K>,
    threads: &dyn JoinThreads,
) -> Result<(Clustered, Vec<Sorted<K>>)> {
    let between = splitters(&batches, column, keys)?;
    let parts = between.len() + 1;
    let part_of = move |rows: &RecordBatch, places: &mut Vec<u32>| {
        let first = places.len();
        places.resize(first + rows.num_rows(), parts as u32);
        for (key, row) in keys(rows.column(column))? {
            let part = between.partition_point(|least| least.order(&key).is_le());
            places[first + row as usize] = part as u32;
        }
        Ok(())
    };
    let clustered = cluster(schema, batches, parts + 1, part_of, threads).await?;
    let ranges = clustered.begins[..=parts].windows(2);
    let ranges = ranges.map(|part| part[0]..part[1]).collect();
    let all = clustered.rows.column(column).clone();
    let sorted = on_all(threads, ranges, move |part: Range<usize>| {
        let mut sorted = Sorted::new(keys(&all.slice(part.start, part.len()))?);
        for row in &mut sorted.rows {
            *row += part.start as u32;
        }
        Ok(sorted)
    });
    let sorted = sorted.await?;
    Ok((clustered, sorted))
}

/// The least keys of all parts but the first, by a sample of them.
fn splitters<K: Key>(batches: &[RecordBatch], column: usize, keys: Read<K>) -> Result<Vec<K>> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let parts = rows.div_ceil(PART_ROWS).max(1);
    if parts == 1 {
        return Ok(Vec::new());
    }
    let mut sample = Vec::new();
    for batch in batches {
        let some = (0..batch.num_rows() as u32).step_by(SAMPLE_EACH);
        let some = take(
            batch.column(column),
            &UInt32Array::from_iter_values(some),
            None,
        )?;
        sample.extend(keys(&some)?);
    }
    let sample = Sorted::new(sample).keys;
    let at = (1..parts).filter_map(|part| sample.get(part * sample.len() / parts));
    Ok(at.copied().collect())
}

/// Whether columns of a type are merged in windows of whole numbers, or else of real ones; none where they are not.
pub fn is_whole(data_type: &DataType) -> Option<bool> {
    use DataType::{
        Date32, Date64, Decimal32, Decimal64, Duration, Float16, Float32, Float64, Int8, Int16,
        Int32, Int64, Time32, Time64, Timestamp, UInt8, UInt16, UInt32,
    };
    match data_type {
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 => Some(true),
        Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) => Some(true),
        Decimal32(..) | Decimal64(..) => Some(true),
        Float16 | Float32 | Float64 => Some(false),
        _ => None,
    }
}

fn refused(column: &ArrayRef) -> RingError {
    RingError::Unsupported(format!(
        "keys of type {} cannot be merged so",
        column.data_type()
    ))
}

/// A key, and the row that it is of.
type Keyed<K> = Vec<(K, u32)>;

/// Reads the keys of a column.
type Read<K> = fn(&ArrayRef) -> Result<Keyed<K>>;

fn whole(column: &ArrayRef) -> Result<Keyed<i64>> {
    if is_whole(column.data_type()) != Some(true) {
        return Err(refused(column));
    }
    let column = match column.data_type() {
        // As they are stored.
        DataType::Decimal32(precision, scale) => {
            cast(column, &DataType::Decimal64(*precision, *scale))?
        }
        DataType::Decimal64(..) => column.clone(),
        _ => cast(column, &DataType::Int64)?,
    };
    let values = match column.data_type() {
        DataType::Decimal64(..) => column.as_primitive::<Decimal64Type>().values(),
        _ => column.as_primitive::<Int64Type>().values(),
    };
    Ok(with_rows(values.iter().copied(), &column))
}

fn real(column: &ArrayRef) -> Result<Keyed<f64>> {
    if is_whole(column.data_type()) != Some(false) {
        return Err(refused(column));
    }
    let column = cast(column, &DataType::Float64)?;
    let values = column.as_primitive::<Float64Type>().values().iter();
    let plain = |value: &f64| {
        if value.is_nan() {
            f64::NAN.copysign(*value)
        } else {
            value + 0.0
        }
    };
    Ok(with_rows(values.map(plain), &column))
}

/// Reads keys of which one that is no number may match, or has none.
fn reals(nans_match: bool) -> Read<f64> {
    match nans_match {
        true => real,
        false => |column| {
            let mut keys = real(column)?;
            keys.retain(|(key, _)| !key.is_nan());
            Ok(keys)
        },
    }
}

fn with_rows<K>(values: impl Iterator<Item = K>, column: &ArrayRef) -> Keyed<K> {
    let rows = values.zip(0..);
    match column.nulls() {
        Some(nulls) => rows
            .filter(|(_, row)| nulls.is_valid(*row as usize))
            .collect(),
        None => rows.collect(),
    }
}

impl<K: Key, W: Around<K>> Run<K, W> {
    /// The stationary rows that the window decides about, among those that are sorted.
    fn decided(&self, spinning: K) -> Range<usize> {
        let keys = &self.sorted.keys;
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return 0..0;
        };
        let Some((least, most)) = self.window.decides(spinning) else {
            return 0..0;
        };
        // All of them, mostly.
        let begin = match first.order(&least).is_ge() {
            true => 0,
            false => keys.partition_point(|key| key.order(&least).is_lt()),
        };
        let end = match last.order(&most).is_le() {
            true => keys.len(),
            false => keys.partition_point(|key| key.order(&most).is_le()),
        };
        begin..end
    }
}

impl<K: Key, W: Around<K>> Matcher for Run<K, W> {
    fn pairs(
        &self,
        fragment: &RecordBatch,
        rows: Range<usize>,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let column = fragment.column(self.column).slice(rows.start, rows.len());
        // It was sorted at its origin: that costs a look, and is done again if it was not.
        let keys = Sorted::new((self.keys)(&column)?);
        let Sorted {
            keys: stationary,
            rows: numbers,
        } = &self.sorted;
        let mut pairs = Pairs::default();
        // Where the first window begins is looked for; from there on windows only move up.
        let mut window: Option<Range<usize>> = None;
        for (key, row) in keys.keys.iter().zip(&keys.rows) {
            let decided = self.decided(*key);
            let mut within = 0..0;
            if !decided.is_empty() {
                let begins_behind = |at: &K| self.window.begins_behind(*at, *key);
                let window = window.get_or_insert_with(|| {
                    let begin = stationary.partition_point(begins_behind);
                    begin..begin
                });
                while window.start < stationary.len() && begins_behind(&stationary[window.start]) {
                    window.start += 1;
                }
                window.end = window.end.max(window.start);
                while window.end < stationary.len()
                    && !self.window.ends_before(stationary[window.end], *key)
                {
                    window.end += 1;
                }
                let begin = window.start.clamp(decided.start, decided.end);
                within = begin..window.end.clamp(begin, decided.end);
            }
            let before = 0..decided.start;
            let behind = decided.end..stationary.len();
            for range in [before, within, behind] {
                for stationary in &numbers[range] {
                    pairs.push(rows.start as u32 + row, *stationary);
                    if pairs.len() == PAIRS {
                        found(&mut pairs)?;
                    }
                }
            }
        }
        found(&mut pairs)
    }
}

#[cfg(test)]
mod tests;
