//! Windows around a key (section IV-C2): a sort-merge join. Equality is the window of width 0, a band one around it, and an
//! inequality one that is open at one end.

use super::cluster::{Clustered, cluster};
use super::{Found, Matcher, PAIRS, Pairs, Window};
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
    /// The least that the key at a distance may be, by any way to reckon it.
    fn least_at(self, distance: Self) -> Self;
    /// The most that it may be.
    fn most_at(self, distance: Self) -> Self;
}

impl Key for i64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn least_at(self, distance: Self) -> Self {
        self.saturating_add(distance)
    }

    fn most_at(self, distance: Self) -> Self {
        self.saturating_add(distance)
    }
}

impl Key for f64 {
    /// What is no number is equal to itself and larger than all numbers; keys have no -0.
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }

    fn least_at(self, distance: Self) -> Self {
        if distance == 0.0 {
            self
        } else {
            (self + distance.next_down()).next_down()
        }
    }

    fn most_at(self, distance: Self) -> Self {
        if distance == 0.0 {
            self
        } else {
            (self + distance.next_up()).next_up()
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
struct Run<K> {
    column: usize,
    sorted: Sorted<K>,
    low: Bound<K>,
    high: Bound<K>,
    /// How keys of a fragment are read.
    keys: fn(&ArrayRef) -> Result<Keyed<K>>,
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
    Ok(match window {
        Window::Whole { low, high } => {
            let (clustered, parts) = sorted(schema, batches, stationary, whole, threads).await?;
            let run = Run {
                column: spinning,
                sorted: Sorted::concat(parts),
                low,
                high,
                keys: whole,
            };
            (clustered.rows, Box::new(run))
        }
        Window::Real { low, high } => {
            let (clustered, parts) = sorted(schema, batches, stationary, real, threads).await?;
            let run = Run {
                column: spinning,
                sorted: Sorted::concat(parts),
                // Sums round: what may be within the window is looked at.
                low: closed(low),
                high: closed(high),
                keys: real,
            };
            (clustered.rows, Box::new(run))
        }
    })
}

/// The end of a window that depends on a sum, with the keys that are at it.
fn closed(end: Bound<f64>) -> Bound<f64> {
    match end {
        Bound::Excluded(distance) if distance != 0.0 => Bound::Included(distance),
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
        Window::Whole { .. } => {
            let (clustered, parts) = sorted(schema, batches, column, whole, threads).await?;
            (clustered, Sorted::orders(parts))
        }
        Window::Real { .. } => {
            let (clustered, parts) = sorted(schema, batches, column, real, threads).await?;
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
    keys: fn(&ArrayRef) -> Result<Keyed<K>>,
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
fn splitters<K: Key>(
    batches: &[RecordBatch],
    column: usize,
    keys: fn(&ArrayRef) -> Result<Keyed<K>>,
) -> Result<Vec<K>> {
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
            f64::NAN
        } else {
            value + 0.0
        }
    };
    Ok(with_rows(values.map(plain), &column))
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

impl<K: Key> Matcher for Run<K> {
    fn pairs(
        &self,
        fragment: &RecordBatch,
        rows: Range<usize>,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let column = fragment.column(self.column).slice(rows.start, rows.len());
        // It was sorted at its origin: that costs a look, and is done again if it was not.
        let keys = Sorted::new((self.keys)(&column)?);
        let stationary = &self.sorted;
        let is_before = |key: &K, at: usize| match &self.low {
            Bound::Unbounded => false,
            Bound::Included(distance) => {
                stationary.keys[at].order(&key.least_at(*distance)).is_lt()
            }
            Bound::Excluded(distance) => {
                stationary.keys[at].order(&key.least_at(*distance)).is_le()
            }
        };
        let is_within = |key: &K, at: usize| match &self.high {
            Bound::Unbounded => true,
            Bound::Included(distance) => stationary.keys[at].order(&key.most_at(*distance)).is_le(),
            Bound::Excluded(distance) => stationary.keys[at].order(&key.most_at(*distance)).is_lt(),
        };
        let Some(first) = keys.keys.first() else {
            return Ok(());
        };
        // Where the first window begins is looked for; from there on windows only move up.
        let (mut begin, mut beyond) = (0, stationary.keys.len());
        while begin < beyond {
            let middle = begin + (beyond - begin) / 2;
            match is_before(first, middle) {
                true => begin = middle + 1,
                false => beyond = middle,
            }
        }
        let mut end = begin;
        let mut pairs = Pairs::default();
        for (key, row) in keys.keys.iter().zip(&keys.rows) {
            while begin < stationary.keys.len() && is_before(key, begin) {
                begin += 1;
            }
            end = end.max(begin);
            while end < stationary.keys.len() && is_within(key, end) {
                end += 1;
            }
            for stationary in &stationary.rows[begin..end] {
                pairs.push(rows.start as u32 + row, *stationary);
                if pairs.len() == PAIRS {
                    found(&mut pairs)?;
                }
            }
        }
        found(&mut pairs)
    }
}

#[cfg(test)]
mod tests;
