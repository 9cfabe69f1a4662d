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
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a part: with their keys and their table, half of a second-level cache.
const PART_ROWS: usize = 1 << 14;
/// Most parts, so that a morsel has several rows of each.
const PARTS_MAX_BITS: u32 = 12;
/// Rows of the parts whose tables a thread makes before it takes the next ones.
const GROUP_ROWS: usize = 1 << 17;
/// Bytes that memory is read in.
const LINE: usize = 64;
/// Rows that are looked up side by side.
const STEPS: usize = 1 << 10;

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

    /// Reads all of it in its order, in which memory is fastest, so that later look-ups find it in the cache.
    fn fetch(&self) {
        let words = self.words.iter().step_by(LINE / size_of::<u64>());
        let numbers = self.last.iter().chain(&self.before);
        let numbers = numbers.step_by(LINE / size_of::<u32>());
        let all = words.fold(0, |all, word| all ^ word);
        black_box(numbers.fold(all, |all, number| all ^ u64::from(*number)));
    }

    fn same_bytes(&self, at: usize, keys: &Keys, row: usize) -> bool {
        match (&self.bytes, &keys.bytes) {
            (Some(own), Some(theirs)) => own.row(at).as_ref() == theirs.row(row).as_ref(),
            _ => true,
        }
    }
}

/// A row that looks for partners, and the next one that it may have, in its part.
#[derive(Clone, Copy, Default)]
struct Candidate {
    row: u32,
    part: u32,
    next: u32,
}

impl Matcher for Table {
    /// Rows go down their chains side by side, one step each. Which of them have a partner there, and which go on, is
    /// not known before. So this is done without branches, which a processor could predict wrong.
    fn pairs(
        &self,
        fragment: &RecordBatch,
        rows: Range<usize>,
        found: &mut Found<'_>,
    ) -> Result<()> {
        let fragment = fragment.slice(rows.start, rows.len());
        let keys = Keys::of(&fragment, &self.columns, self.nulls_equal)?;
        let mut pairs = Pairs::default();
        let mut steps = [Candidate::default(); STEPS];
        let (mut spinning, mut stationary) = ([0; STEPS], [0; STEPS]);
        let mut fetched = None;
        for begin in (0..keys.words.len()).step_by(STEPS) {
            let end = (begin + STEPS).min(keys.words.len());
            let part_of = |row: usize| upper(mix(keys.words[row]), self.bits);
            let part = part_of(end - 1);
            // Rows that are in no order would have parts fetched for one of them each.
            if part_of(begin) == part && fetched != Some(part) {
                self.parts[part].fetch();
                fetched = Some(part);
            }
            let mut left = 0;
            for row in begin..end {
                let hash = mix(keys.words[row]);
                let at = upper(hash, self.bits);
                let part = &self.parts[at];
                let next = part.last[upper(hash << self.bits, part.bits)];
                steps[left] = Candidate {
                    row: row as u32,
                    part: at as u32,
                    next,
                };
                left += usize::from(next != 0 && keys.is_valid(row));
            }
            while left > 0 {
                let (mut matching, mut further) = (0, 0);
                for step in 0..left {
                    let Candidate { row, part, next } = steps[step];
                    let within = &self.parts[part as usize];
                    let at = next as usize - 1;
                    let word = keys.words[row as usize];
                    let same =
                        within.words[at] == word && within.same_bytes(at, &keys, row as usize);
                    spinning[matching] = rows.start as u32 + row;
                    stationary[matching] = (within.first + at) as u32;
                    matching += usize::from(same);
                    let next = within.before[at];
                    steps[further] = Candidate { row, part, next };
                    further += usize::from(next != 0);
                }
                left = further;
                if pairs.len() + matching > PAIRS {
                    found(&mut pairs)?;
                }
                pairs.spinning.extend_from_slice(&spinning[..matching]);
                pairs.stationary.extend_from_slice(&stationary[..matching]);
            }
        }
        found(&mut pairs)
    }
}

#[cfg(test)]
mod tests;
