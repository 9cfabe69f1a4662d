//! The rows of a batch, put in the order of their partitions.

#[cfg(target_arch = "x86_64")]
use super::compress;

/// Row numbers, those of one partition next to each other, in the order of the batch.
#[derive(Debug, Default)]
pub struct RowsByPartition {
    rows: Vec<u32>,
    /// Where the rows of each partition begin, and how many there are.
    starts: Vec<u32>,
    counts: Vec<u32>,
}

impl RowsByPartition {
    /// Sorts the rows with these partitions.
    ///
    /// # Errors
    /// A partition that is not below `partitions`.
    pub fn sort(&mut self, targets: &[u32], partitions: usize) -> Result<(), u32> {
        let highest = targets
            .iter()
            .fold(0, |highest, target| highest.max(*target));
        if highest as usize >= partitions && !targets.is_empty() {
            return Err(highest);
        }
        self.counts.clear();
        self.counts.resize(partitions, 0);
        #[cfg(target_arch = "x86_64")]
        if partitions <= compress::PARTITIONS_MAX && compress::is_available() {
            self.sort_compressing(targets);
            return Ok(());
        }
        self.sort_scalar(targets);
        Ok(())
    }

    /// In two passes, of which the first counts.
    fn sort_scalar(&mut self, targets: &[u32]) {
        for target in targets {
            self.counts[*target as usize] += 1;
        }
        self.starts.clear();
        self.starts.extend(self.counts.iter().scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start)
        }));
        if self.rows.len() < targets.len() {
            self.rows.resize(targets.len(), 0);
        }
        self.counts.fill(0);
        for (row, target) in targets.iter().enumerate() {
            let target = *target as usize;
            let at = self.starts[target] + self.counts[target];
            self.rows[at as usize] = row as u32;
            self.counts[target] += 1;
        }
    }

    /// In one pass, to places with room for all rows each.
    #[cfg(target_arch = "x86_64")]
    fn sort_compressing(&mut self, targets: &[u32]) {
        let stride = targets.len() + compress::LANES;
        let partitions = self.counts.len();
        if self.rows.len() < stride * partitions {
            self.rows.resize(stride * partitions, 0);
        }
        self.starts.clear();
        self.starts
            .extend((0..partitions).map(|partition| (partition * stride) as u32));
        let done = compress::group(targets, stride, &mut self.rows, &mut self.counts);
        for (row, target) in targets.iter().enumerate().skip(done) {
            let target = *target as usize;
            let at = self.starts[target] + self.counts[target];
            self.rows[at as usize] = row as u32;
            self.counts[target] += 1;
        }
    }

    /// The rows of a partition.
    pub fn of(&self, partition: usize) -> &[u32] {
        let (start, count) = (self.starts[partition], self.counts[partition]);
        &self.rows[start as usize..][..count as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::RowsByPartition;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_partition_has_its_rows_in_order(
            partitions in prop_oneof![1usize..10, 10usize..40],
            picks in prop::collection::vec(any::<u32>(), 0..3000),
            fewer in 0usize..50,
        ) {
            let targets: Vec<u32> = picks.iter().map(|pick| pick % partitions as u32).collect();
            let (mut sorted, mut scalar) = (RowsByPartition::default(), RowsByPartition::default());
            // What another batch left behind is of no account.
            for targets in [&targets[..], &targets[..targets.len().min(fewer)]] {
                sorted.sort(targets, partitions).unwrap();
                scalar.counts = vec![0; partitions];
                scalar.sort_scalar(targets);
                for partition in 0..partitions {
                    let expected: Vec<u32> = (0..targets.len() as u32)
                        .filter(|row| targets[*row as usize] as usize == partition)
                        .collect();
                    prop_assert_eq!(sorted.of(partition), &expected);
                    prop_assert_eq!(scalar.of(partition), &expected);
                }
            }
        }
    }

    #[test]
    fn a_partition_that_is_not_there_is_told() {
        assert_eq!(RowsByPartition::default().sort(&[0, 3, 1], 3), Err(3));
    }
}
