//! Windows around a key (section IV-C2): a sort-merge join. Equality is the window of width 0, a band one around it, and an
//! inequality one that is open at one end.

use super::{Found, Matcher, PAIRS, Pairs, Window};
use crate::error::{Result, RingError};
use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Decimal64Type, Float64Type, Int64Type};
use std::cmp::Ordering;
use std::ops::{Bound, Range};

/// A key that windows can be laid around.
trait Key: Copy + Send + Sync {
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

/// What merges fragments with all stationary rows.
pub(super) fn matcher(
    rows: &RecordBatch,
    stationary: usize,
    spinning: usize,
    window: Window,
) -> Result<Box<dyn Matcher>> {
    let column = rows.column(stationary);
    Ok(match window {
        Window::Whole { low, high } => {
            let sorted = Sorted::new(whole(column)?);
            Box::new(Run {
                column: spinning,
                sorted,
                low,
                high,
                keys: whole,
            })
        }
        Window::Real { low, high } => {
            let sorted = Sorted::new(real(column)?);
            // Sums round: what may be within the window is looked at.
            let (low, high) = (closed(low), closed(high));
            Box::new(Run {
                column: spinning,
                sorted,
                low,
                high,
                keys: real,
            })
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
pub(super) fn sort(rows: RecordBatch, column: usize, window: Window) -> Result<Vec<RecordBatch>> {
    let keys = rows.column(column);
    let mut order = match window {
        Window::Whole { .. } => Sorted::new(whole(keys)?).rows,
        Window::Real { .. } => Sorted::new(real(keys)?).rows,
    };
    if let Some(nulls) = keys.logical_nulls() {
        let all = 0..rows.num_rows() as u32;
        order.extend(all.filter(|row| nulls.is_null(*row as usize)));
    }
    Ok(vec![take_record_batch(&rows, &UInt32Array::from(order))?])
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
