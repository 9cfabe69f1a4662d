//! The keys of the first rows of a task, counted.

use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Rows that a task looks at. At the threshold of a join with 8 partitions that are 256 rows of a key for each task,
/// which chance makes 6 % more or fewer; with 128 partitions they are 16, and there are more tasks.
pub const SAMPLE_ROWS: u64 = 16 << 10;
/// Bytes of batches that wait until the sample is complete, but for one batch of each partition.
pub const SAMPLE_BYTES: usize = 8 << 20;
/// Keys of a sample that are told: no more can be heavy in a join of 128 partitions.
pub const CANDIDATES_MAX: usize = 1024;
/// A key is heavy when it has more than one in so many of the rows, times the partitions of the join. A partition's fair
/// share is one in as many as there are partitions: keys that are not heavy add at most an eighth of it each, and the
/// chance that many of them meet in one partition is small. Twice as many would gain little and have more rows sent to
/// all.
pub(super) const HEAVY_SHARE: u64 = 8;
/// A key may be rarer in one task than in all together: those are told that are heavy by a quarter here.
const CANDIDATE_SHARE: u64 = 4 * HEAVY_SHARE;

/// The sample of a task. Exact, as it is small.
#[derive(Debug, Default)]
pub struct Sample {
    rows: u64,
    bytes: usize,
    counts: HashMap<u64, u32, RandomState>,
}

impl Sample {
    /// Looks at a batch by the hashes of its keys. Nulls are a key as any other: an outer join has as much to do with
    /// their rows. Returns whether the sample is complete.
    pub fn add(&mut self, hashes: &[u64], bytes: usize) -> bool {
        let left = SAMPLE_ROWS.saturating_sub(self.rows);
        let hashes = &hashes[..hashes.len().min(left as usize)];
        for hash in hashes {
            *self.counts.entry(*hash).or_default() += 1;
        }
        self.rows += hashes.len() as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        self.rows >= SAMPLE_ROWS || self.bytes >= SAMPLE_BYTES
    }

    /// How many rows were looked at.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The hashes that may be heavy in a join with so many partitions, with how often they came, the most frequent first.
    pub fn candidates(&self, partitions: u64) -> Vec<(u64, u32)> {
        let least = self.rows / CANDIDATE_SHARE.saturating_mul(partitions.max(1));
        let counts = self.counts.iter().map(|(hash, count)| (*hash, *count));
        let mut candidates: Vec<_> = counts
            .filter(|(_, count)| *count > 1 && u64::from(*count) >= least)
            .collect();
        candidates.sort_unstable_by_key(|(hash, count)| (std::cmp::Reverse(*count), *hash));
        candidates.truncate(CANDIDATES_MAX);
        candidates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_keys_are_told_with_how_often_they_came() {
        let mut sample = Sample::default();
        let hashes: Vec<u64> = (0..1000_u64)
            .map(|row| if row % 4 == 0 { 7 } else { 1000 + row })
            .collect();
        for _ in 0..2 {
            assert!(!sample.add(&hashes, 8000));
        }
        // Each other key came twice, which is less than a quarter of what is heavy with one partition.
        assert_eq!(sample.candidates(1), [(7, 500)]);
        assert_eq!(sample.candidates(1000).len(), 751);
        assert_eq!(sample.rows(), 2000);
    }

    #[test]
    fn a_sample_ends() {
        let mut sample = Sample::default();
        let hashes = vec![1; 10_000];
        assert!(!sample.add(&hashes, 1));
        assert!(sample.add(&hashes, 1));
        assert_eq!(sample.candidates(8), [(1, SAMPLE_ROWS as u32)]);
        assert_eq!(sample.rows(), SAMPLE_ROWS);
        assert!(Sample::default().add(&[1], SAMPLE_BYTES));
    }
}
