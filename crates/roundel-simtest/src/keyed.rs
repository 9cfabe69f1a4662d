//! Rows whose first column is a number, their key: by which they are scattered.

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use roundel_exchange::Partitioner;
use roundel_exchange::operator::Group;
use roundel_exchange::skew::Router;

/// A column of numbers; nothing where it is another one.
pub fn numbers(batch: &RecordBatch, column: usize) -> &[i64] {
    let column = batch.columns().get(column);
    let numbers = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    numbers
        .map(|numbers| &numbers.values()[..])
        .unwrap_or_default()
}

/// What stands for the key of each row.
pub fn hashes(batch: &RecordBatch) -> Vec<u64> {
    let hash = |key: &i64| (*key as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    numbers(batch, 0).iter().map(hash).collect()
}

/// Has a router say where rows go.
pub struct ByKey(
    /// The router.
    pub Router,
);

impl Partitioner for ByKey {
    fn partitions(&self) -> usize {
        self.0.partitions()
    }

    fn has_rows_for_all(&self) -> bool {
        self.0.has_rows_for_all()
    }

    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String> {
        self.0.route(&hashes(batch), targets);
        Ok(())
    }
}

/// The group of each partition, of groups that have so many each.
pub fn by_partition(groups: &[Group], each: usize) -> Vec<Group> {
    let repeated = groups
        .iter()
        .map(|group| std::iter::repeat_n(group.clone(), each));
    repeated.flatten().collect()
}
