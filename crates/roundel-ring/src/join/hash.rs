//! Equality by hashes (section IV-C1): a radix-partitioned hash join.
//!
//! The table of the stationary rows is one array of their keys, ordered by hash, with the beginning of each bucket beside
//! it. Whoever looks keys up in the order of their hashes, as fragments are clustered at their origin, walks through it from
//! front to back and stays within what the cache holds. It is built the same way: rows are scattered to parts first, each of
//! which fits the cache, and then within each part.

use super::keys::{Keys, mix};
use super::{Found, Matcher, PAIRS, Pairs};
use crate::error::Result;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::row::Rows;
use std::ops::Range;

/// Rows of a part: with their keys and numbers, half of a second-level cache.
const PART_ROWS: usize = 1 << 14;
/// Most parts that are scattered to at a time, each with a cache line in the first-level cache.
const PARTS_MAX_BITS: u32 = 10;

/// The hash table of the stationary rows.
pub(super) struct Table {
    columns: Vec<usize>,
    nulls_equal: bool,
    /// Of all keys, in the order of their hashes, and the rows that they are of.
    words: Vec<u64>,
    rows: Vec<u32>,
    /// Where words are hashes: the keys of all rows.
    bytes: Option<Rows>,
    /// The upper bits of a hash that name its bucket, and where each bucket begins.
    shift: u32,
    buckets: Vec<u32>,
}

impl Table {
    /// The table of all rows, by their `stationary` columns; fragments have theirs in the `spinning` ones.
    pub(super) fn new(
        rows: &RecordBatch,
        stationary: &[usize],
        spinning: &[usize],
        nulls_equal: bool,
    ) -> Result<Self> {
        let keys = Keys::of(rows, stationary, nulls_equal)?;
        let bits = bits_for(rows.num_rows(), 1).max(1);
        let (words, numbers) = ordered(&keys, bits);
        let shift = 64 - bits;
        let mut buckets = vec![0; (1 << bits) + 1];
        for word in &words {
            buckets[(mix(*word) >> shift) as usize + 1] += 1;
        }
        let mut sum = 0;
        for bucket in &mut buckets {
            sum += *bucket;
            *bucket = sum;
        }
        Ok(Self {
            columns: spinning.to_vec(),
            nulls_equal,
            words,
            rows: numbers,
            bytes: keys.bytes,
            shift,
            buckets,
        })
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
            let bucket = (mix(*word) >> self.shift) as usize;
            let bucket = self.buckets[bucket] as usize..self.buckets[bucket + 1] as usize;
            if bucket.is_empty() || !keys.is_valid(row) {
                continue;
            }
            for at in bucket {
                if self.words[at] != *word || !self.same_bytes(&keys, row, at) {
                    continue;
                }
                pairs.push((rows.start + row) as u32, self.rows[at]);
                if pairs.len() == PAIRS {
                    found(&mut pairs)?;
                }
            }
        }
        found(&mut pairs)
    }
}

impl Table {
    fn same_bytes(&self, keys: &Keys, row: usize, at: usize) -> bool {
        match (&self.bytes, &keys.bytes) {
            (Some(own), Some(theirs)) => {
                own.row(self.rows[at] as usize).as_ref() == theirs.row(row).as_ref()
            }
            _ => true,
        }
    }
}

/// Bits that name buckets of about so many rows each.
fn bits_for(rows: usize, each: usize) -> u32 {
    rows.div_ceil(each)
        .next_power_of_two()
        .trailing_zeros()
        .min(31)
}

/// The valid keys ordered by the upper `bits` of their hashes, and the rows that they are of.
fn ordered(keys: &Keys, bits: u32) -> (Vec<u64>, Vec<u32>) {
    let part_bits = bits_for(keys.words.len(), PART_ROWS).min(bits);
    let all = 0..keys.words.len() as u32;
    let valid = all.filter(|row| keys.is_valid(*row as usize));
    let pairs: Vec<(u64, u32)> = valid.map(|row| (keys.words[row as usize], row)).collect();
    let mut scattered = vec![(0, 0); pairs.len()];
    let mut within = vec![(0, 0); pairs.len()];
    // Few parts at a time; the upper ones first, each of which is scattered again.
    let first = part_bits.min(PARTS_MAX_BITS);
    let parts = scatter(&pairs, &mut scattered, 0, first);
    for part in parts.windows(2) {
        let range = part[0] as usize..part[1] as usize;
        finish(
            &mut scattered[range.clone()],
            &mut within[range],
            first,
            bits,
        );
    }
    scattered.into_iter().unzip()
}

/// Orders pairs by the bits of their hashes from `done` to `bits`.
fn finish(pairs: &mut [(u64, u32)], other: &mut [(u64, u32)], done: u32, bits: u32) {
    if done >= bits || pairs.len() < 2 {
        return;
    }
    let now = (bits - done).min(bits_for(pairs.len(), 1).clamp(1, PARTS_MAX_BITS));
    let parts = scatter(pairs, other, done, now);
    pairs.copy_from_slice(other);
    if done + now < bits {
        for part in parts.windows(2) {
            let range = part[0] as usize..part[1] as usize;
            finish(
                &mut pairs[range.clone()],
                &mut other[range],
                done + now,
                bits,
            );
        }
    }
}

/// Scatters pairs by so many bits of their hashes, after those that are `done`; returns where each part begins, and the
/// end.
fn scatter(from: &[(u64, u32)], to: &mut [(u64, u32)], done: u32, bits: u32) -> Vec<u32> {
    let parts = 1usize << bits;
    let part = |word: u64| match bits {
        0 => 0,
        _ => (mix(word) << done >> (64 - bits)) as usize,
    };
    let mut begins = vec![0u32; parts + 1];
    for (word, _) in from {
        begins[part(*word) + 1] += 1;
    }
    for at in 0..parts {
        begins[at + 1] += begins[at];
    }
    let mut next = begins.clone();
    for pair in from {
        let at = &mut next[part(pair.0)];
        to[*at as usize] = *pair;
        *at += 1;
    }
    begins
}

/// The rows of a host in the order in which they are looked up best, once and for all hosts. Rows that match nothing come
/// last.
pub(super) fn cluster(
    rows: RecordBatch,
    columns: &[usize],
    nulls_equal: bool,
) -> Result<Vec<RecordBatch>> {
    let keys = Keys::of(&rows, columns, nulls_equal)?;
    let parts = bits_for(rows.num_rows(), PART_ROWS);
    if parts == 0 {
        return Ok(vec![rows]);
    }
    let (_, mut order) = ordered(&keys, parts);
    let all = 0..rows.num_rows() as u32;
    order.extend(all.filter(|row| !keys.is_valid(*row as usize)));
    Ok(vec![take_record_batch(&rows, &UInt32Array::from(order))?])
}
