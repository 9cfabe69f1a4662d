//! Which partition a row goes to: DataFusion's own hash of its keys, so that rows that another stage
//! repartitioned by the same keys meet those that were scattered.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::hash_utils::create_hashes;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;
use roundel_exchange::Partitioner;
use std::sync::Arc;
use strength_reduce::StrengthReducedU64;

/// Partitions by the hash of some expressions.
pub(super) struct ByHash {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    partitions: StrengthReducedU64,
    hashes: Vec<u64>,
}

impl ByHash {
    /// Of at least one partition.
    pub(super) fn new(keys: &[Arc<dyn PhysicalExpr>], partitions: usize) -> Self {
        Self {
            keys: keys.to_vec(),
            partitions: StrengthReducedU64::new(partitions.max(1) as u64),
            hashes: Vec::new(),
        }
    }

    fn hash(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let keys = evaluate_expressions_to_arrays(&self.keys, batch)?;
        self.hashes.clear();
        self.hashes.resize(batch.num_rows(), 0);
        create_hashes(
            &keys,
            REPARTITION_RANDOM_STATE.random_state(),
            &mut self.hashes,
        )?;
        Ok(())
    }
}

impl Partitioner for ByHash {
    fn partitions(&self) -> usize {
        self.partitions.get() as usize
    }

    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String> {
        self.hash(batch).map_err(|error| error.to_string())?;
        let partitions = self.partitions;
        targets.extend(self.hashes.iter().map(|hash| (*hash % partitions) as u32));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::metrics::Time;
    use datafusion::physical_plan::repartition::BatchPartitioner;

    #[test]
    fn rows_go_where_datafusion_sends_them() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter(
            (0..5000).map(|row| (row % 7 != 3).then_some(row * row)),
        ));
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(
            (0..5000).map(|row| format!("name {}", row % 100)),
        ));
        let batch = RecordBatch::try_from_iter([("a", numbers), ("b", names)]).unwrap();
        let schema = batch.schema();
        let keys = vec![col("b", &schema).unwrap(), col("a", &schema).unwrap()];
        for partitions in [1, 2, 3, 6, 8, 13] {
            let mut targets = Vec::new();
            ByHash::new(&keys, partitions)
                .partition(&batch, &mut targets)
                .unwrap();
            let mut theirs =
                BatchPartitioner::new_hash_partitioner(keys.clone(), partitions, Time::new())
                    .unwrap();
            for part in theirs.partition_iter(batch.clone()).unwrap() {
                let (partition, rows) = part.unwrap();
                let ours = targets
                    .iter()
                    .filter(|target| **target as usize == partition);
                assert_eq!(
                    ours.count(),
                    rows.num_rows(),
                    "partition {partition} of {partitions}"
                );
                let mut again = Vec::new();
                ByHash::new(&keys, partitions)
                    .partition(&rows, &mut again)
                    .unwrap();
                assert!(again.iter().all(|target| *target as usize == partition));
            }
        }
    }
}
