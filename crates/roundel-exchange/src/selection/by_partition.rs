//! The rows of a batch by their partitions.

#[cfg(target_arch = "x86_64")]
use super::group;
use super::{RowBits, Rows, Selection, WORD_ROWS};
#[cfg(target_arch = "x86_64")]
use super::{SPREAD_MAX, are_compressed};

/// The rows of each partition of a batch, in the order of the batch.
#[derive(Debug, Default)]
pub struct RowsByPartition {
    /// Rows of the batch.
    rows: usize,
    counts: Vec<u32>,
    /// Words of bits, those of a partition next to each other; none where rows are only listed.
    bits: Vec<u16>,
    /// Row numbers, those of a partition next to each other; none where bits are enough.
    numbers: Vec<u32>,
    /// Where the numbers of each partition begin.
    starts: Vec<u32>,
}

impl RowsByPartition {
    /// Sorts the rows with these partitions. With `numbers`, all are listed, for whom bits are not enough.
    ///
    /// # Errors
    /// A partition that is not below `partitions`.
    pub fn sort(&mut self, targets: &[u32], partitions: usize, numbers: bool) -> Result<(), u32> {
        self.rows = targets.len();
        self.counts.clear();
        self.counts.resize(partitions, 0);
        self.bits.clear();
        self.numbers.clear();
        #[cfg(target_arch = "x86_64")]
        if partitions <= group::PARTITIONS_MAX && are_compressed() {
            let words = targets.len().div_ceil(WORD_ROWS);
            self.bits.resize(words * partitions, 0);
            let found = group::bits(targets, &mut self.bits, &mut self.counts);
            if found < targets.len() {
                return Err(highest(targets));
            }
            if numbers || partitions > SPREAD_MAX {
                self.list();
            }
            return Ok(());
        }
        let highest = highest(targets);
        if highest as usize >= partitions && !targets.is_empty() {
            return Err(highest);
        }
        self.list_scalar(targets);
        Ok(())
    }

    /// Lists the rows in two passes, of which the first counts.
    fn list_scalar(&mut self, targets: &[u32]) {
        for target in targets {
            self.counts[*target as usize] += 1;
        }
        self.set_starts();
        let mut ends = self.starts.clone();
        self.numbers.resize(targets.len(), 0);
        for (row, target) in targets.iter().enumerate() {
            let end = &mut ends[*target as usize];
            self.numbers[*end as usize] = row as u32;
            *end += 1;
        }
    }

    /// Lists what there are bits for.
    #[cfg(target_arch = "x86_64")]
    fn list(&mut self) {
        self.set_starts();
        // A register is written for each word, whatever it has.
        self.numbers.resize(self.rows + WORD_ROWS, 0);
        let words = self.rows.div_ceil(WORD_ROWS);
        for (bits, start) in self.bits.chunks_exact(words.max(1)).zip(&self.starts) {
            group::list(bits, &mut self.numbers[*start as usize..]);
        }
    }

    fn set_starts(&mut self) {
        self.starts.clear();
        self.starts.extend(self.counts.iter().scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start)
        }));
    }

    /// The rows of a partition.
    pub fn of(&self, partition: usize) -> Selection<'_> {
        let count = self.counts[partition] as usize;
        let numbers = (!self.numbers.is_empty()).then(|| {
            let start = self.starts[partition] as usize;
            &self.numbers[start..start + count]
        });
        let words = self.rows.div_ceil(WORD_ROWS);
        let rows = match numbers {
            Some(numbers) if self.bits.is_empty() => Rows::Numbers(numbers),
            numbers => {
                let bits = RowBits {
                    words: &self.bits[partition * words..(partition + 1) * words],
                    start: 0,
                    end: self.rows,
                };
                Rows::Bits(bits, numbers)
            }
        };
        Selection {
            rows,
            count,
            below: self.rows,
        }
    }
}

/// Without a branch for each of them.
fn highest(targets: &[u32]) -> u32 {
    targets
        .iter()
        .fold(0, |highest, target| highest.max(*target))
}

#[cfg(test)]
mod tests {
    use super::RowsByPartition;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_partition_has_its_rows_in_order(
            partitions in prop_oneof![1usize..10, 10usize..40],
            picks in prop::collection::vec(any::<u32>(), 0..if cfg!(miri) { 300 } else { 3000 }),
            fewer in 0usize..50,
            numbers in any::<bool>(),
        ) {
            let targets: Vec<u32> = picks.iter().map(|pick| pick % partitions as u32).collect();
            let (mut sorted, mut scalar) = (RowsByPartition::default(), RowsByPartition::default());
            // What another batch left behind is of no account.
            for targets in [&targets[..], &targets[..targets.len().min(fewer)]] {
                sorted.sort(targets, partitions, numbers).unwrap();
                scalar.rows = targets.len();
                scalar.counts = vec![0; partitions];
                scalar.list_scalar(targets);
                for partition in 0..partitions {
                    let expected: Vec<u32> = (0..targets.len() as u32)
                        .filter(|row| targets[*row as usize] as usize == partition)
                        .collect();
                    for rows in [sorted.of(partition), scalar.of(partition)] {
                        prop_assert_eq!(rows.len(), expected.len());
                        prop_assert_eq!(&*rows.numbers(), &expected[..]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_partition_that_is_not_there_is_told() {
        let mut rows = RowsByPartition::default();
        assert_eq!(rows.sort(&[0, 3, 1], 3, false), Err(3));
        assert_eq!(rows.sort(&[0, 30, 1], 30, true), Err(30));
    }
}
