//! Equality by hashes (section IV-C1): a radix-partitioned hash join.
//!
//! Both relations are clustered by the upper bits of their hashes, once. Each part of the stationary rows has a table of
//! its own, which fits the cache together with the part's rows, and who looks up rows in the order of their hashes stays
//! within one table after another.

use super::cluster::{Clustered, groups};
use super::keys::{Keys, mix};
use super::{Found, Matcher, PAIRS, Pairs};
use crate::error::Result;
use crate::threads::{JoinThreads, on_all};
use arrow::array::RecordBatch;
use arrow::buffer::ScalarBuffer;
use arrow::row::Rows;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a part: with their keys and their table, half of a second-level cache.
const PART_ROWS: usize = 1 << 14;
/// Most parts, so that a morsel has several rows of each.
const PARTS_MAX_BITS: u32 = 12;
/// Rows of the parts whose tables a thread makes before it takes the next ones.
const GROUP_ROWS: usize = 1 << 17;

/// How rows are clustered: by so many upper bits of the hashes of their keys.
#[derive(Clone, Debug)]
pub(super) struct ByHash {
    pub columns: Vec<usize>,
    pub nulls_equal: bool,
    pub bits: u32,
}

/// Bits that name parts of so many rows.
fn bits_for(rows: usize) -> u32 {
    bits_of(rows.div_ceil(PART_ROWS)).min(PARTS_MAX_BITS)
}

/// Bits that name so many things.
fn bits_of(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

/// The upper bits of a hash, of which there may be none.
fn upper(hash: u64, bits: u32) -> usize {
    (hash >> 1 >> (63 - bits)) as usize
}

impl ByHash {
    /// By these columns, where the larger side has so many rows.
    pub(super) fn new(columns: &[usize], nulls_equal: bool, rows: usize) -> Self {
        Self {
            columns: columns.to_vec(),
            nulls_equal,
            bits: bits_for(rows),
        }
    }

    /// [`part_of`](Self::part_of), to be called on any thread.
    pub(super) fn to_part_of(
        &self,
    ) -> impl Fn(&RecordBatch, &mut Vec<u32>) -> Result<()> + Send + Sync + 'static {
        let by = self.clone();
        move |rows, parts| by.part_of(rows, parts)
    }

    /// How many parts there are: rows that match nothing have the last one.
    pub(super) fn parts(&self) -> usize {
        (1 << self.bits) + 1
    }

    /// The part of each row of a batch.
    pub(super) fn part_of(&self, rows: &RecordBatch, parts: &mut Vec<u32>) -> Result<()> {
        let keys = Keys::of(rows, &self.columns, self.nulls_equal)?;
        let first = parts.len();
        let hashes = keys.words.iter().map(|word| mix(*word));
        parts.extend(hashes.map(|hash| upper(hash, self.bits) as u32));
        if keys.valid.is_some() {
            for (row, part) in parts[first..].iter_mut().enumerate() {
                if !keys.is_valid(row) {
                    *part = 1 << self.bits;
                }
            }
        }
        Ok(())
    }
}

/// The hash tables of the stationary rows.
pub(super) struct Table {
    /// Of a fragment.
    columns: Vec<usize>,
    nulls_equal: bool,
    bits: u32,
    parts: Vec<Part>,
}

/// The table of one part. Rows are numbered within it, from 1 on: 0 is none.
struct Part {
    /// The number of its first row among all.
    first: usize,
    words: ScalarBuffer<u64>,
    /// Where words are hashes: the keys.
    bytes: Option<Rows>,
    /// The bits of a hash that name its bucket, after those that name the part.
    bits: u32,
    /// The last row of each bucket, and the one before each row.
    last: Vec<u32>,
    before: Vec<u32>,
}

impl Table {
    /// The tables of rows that were clustered so; fragments have their keys in the `spinning` columns.
    pub(super) async fn new(
        clustered: &Clustered,
        stationary: &ByHash,
        spinning: &[usize],
        threads: &dyn JoinThreads,
    ) -> Result<Self> {
        let matching = Arc::<[usize]>::from(&clustered.begins[..stationary.parts()]);
        let (rows, by) = (clustered.rows.clone(), stationary.clone());
        let groups = groups(&matching, GROUP_ROWS);
        let parts = on_all(threads, groups, move |group| {
            let parts = group.map(|part| Part::new(&rows, matching[part]..matching[part + 1], &by));
            parts.collect::<Result<Vec<_>>>()
        });
        Ok(Self {
            columns: spinning.to_vec(),
            nulls_equal: stationary.nulls_equal,
            bits: stationary.bits,
            parts: parts.await?.into_iter().flatten().collect(),
        })
    }
}

impl Part {
    fn new(rows: &RecordBatch, range: Range<usize>, by: &ByHash) -> Result<Self> {
        let keys = rows.slice(range.start, range.len());
        let keys = Keys::of(&keys, &by.columns, by.nulls_equal)?;
        let bits = bits_of(range.len());
        let mut last = vec![0; 1 << bits];
        let rows = keys.words.iter().zip(1..);
        let before = rows.map(|(word, row)| {
            let bucket = upper(mix(*word) << by.bits, bits);
            std::mem::replace(&mut last[bucket], row)
        });
        Ok(Self {
            first: range.start,
            before: before.collect(),
            words: keys.words,
            bytes: keys.bytes,
            bits,
            last,
        })
    }

    fn same_bytes(&self, at: usize, keys: &Keys, row: usize) -> bool {
        match (&self.bytes, &keys.bytes) {
            (Some(own), Some(theirs)) => own.row(at).as_ref() == theirs.row(row).as_ref(),
            _ => true,
        }
    }
}

impl Matcher for Table {
    fn pairs(
        &self,
        fragment: &RecordBatch,
        rows: Range<usize>,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let fragment = fragment.slice(rows.start, rows.len());
        let keys = Keys::of(&fragment, &self.columns, self.nulls_equal)?;
        let mut pairs = Pairs::default();
        for (row, word) in keys.words.iter().enumerate() {
            let hash = mix(*word);
            let part = &self.parts[upper(hash, self.bits)];
            let mut next = part.last[upper(hash << self.bits, part.bits)];
            if next == 0 || !keys.is_valid(row) {
                continue;
            }
            while next != 0 {
                let at = next as usize - 1;
                if part.words[at] == *word && part.same_bytes(at, &keys, row) {
                    pairs.push((rows.start + row) as u32, (part.first + at) as u32);
                    if pairs.len() == PAIRS {
                        found(&mut pairs)?;
                    }
                }
                next = part.before[at];
            }
        }
        found(&mut pairs)
    }
}

#[cfg(test)]
mod tests;
