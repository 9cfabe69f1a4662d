//! The rows of a batch, put in the order of their partitions.

/// Row numbers, those of one partition after those of another, each in the order of the batch.
#[derive(Debug, Default)]
pub(super) struct RowsByPartition {
    rows: Vec<u32>,
    /// Where the rows of each partition begin, and the end.
    starts: Vec<u32>,
    next: Vec<u32>,
}

impl RowsByPartition {
    /// Sorts the rows with these partitions.
    ///
    /// # Errors
    /// A partition that is not below `partitions`.
    pub(super) fn sort(&mut self, targets: &[u32], partitions: usize) -> Result<(), u32> {
        if let Some(wrong) = targets
            .iter()
            .find(|target| **target as usize >= partitions)
        {
            return Err(*wrong);
        }
        self.starts.clear();
        self.starts.resize(partitions + 1, 0);
        for target in targets {
            self.starts[*target as usize + 1] += 1;
        }
        for partition in 0..partitions {
            self.starts[partition + 1] += self.starts[partition];
        }
        self.next.clear();
        self.next.extend_from_slice(&self.starts);
        self.rows.clear();
        self.rows.resize(targets.len(), 0);
        for (row, target) in targets.iter().enumerate() {
            let next = &mut self.next[*target as usize];
            self.rows[*next as usize] = row as u32;
            *next += 1;
        }
        Ok(())
    }

    /// The rows of a partition.
    pub(super) fn of(&self, partition: usize) -> &[u32] {
        let (start, end) = (self.starts[partition], self.starts[partition + 1]);
        &self.rows[start as usize..end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::RowsByPartition;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_partition_has_its_rows_in_order(
            partitions in 1usize..40,
            picks in prop::collection::vec(any::<u32>(), 0..3000),
        ) {
            let targets: Vec<u32> = picks.iter().map(|pick| pick % partitions as u32).collect();
            let mut sorted = RowsByPartition::default();
            sorted.sort(&targets, partitions).unwrap();
            for partition in 0..partitions {
                let expected: Vec<u32> = (0..targets.len() as u32)
                    .filter(|row| targets[*row as usize] as usize == partition)
                    .collect();
                prop_assert_eq!(sorted.of(partition), expected);
            }
        }
    }

    #[test]
    fn a_partition_that_is_not_there_is_told() {
        assert_eq!(RowsByPartition::default().sort(&[0, 3, 1], 3), Err(3));
    }
}
