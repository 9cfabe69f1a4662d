//! Which partition a row goes to: DataFusion's own hash of its keys, so that rows that another stage
//! repartitioned by the same keys meet those that were scattered.

use crate::exchange::skew::Routes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::hash_utils::create_hashes;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::metrics::Count;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;
use roundel_exchange::Partitioner;
use std::sync::Arc;
use strength_reduce::StrengthReducedU64;

/// The hashes of the keys of a batch's rows.
pub(in crate::exchange) struct KeyHashes {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    hashes: Vec<u64>,
}

impl KeyHashes {
    pub(in crate::exchange) fn new(keys: &[Arc<dyn PhysicalExpr>]) -> Self {
        Self {
            keys: keys.to_vec(),
            hashes: Vec::new(),
        }
    }

    /// One of each row.
    pub(in crate::exchange) fn of(
        &mut self,
        batch: &RecordBatch,
    ) -> Result<&[u64], DataFusionError> {
        let keys = evaluate_expressions_to_arrays(&self.keys, batch)?;
        self.hashes.clear();
        self.hashes.resize(batch.num_rows(), 0);
        create_hashes(
            &keys,
            REPARTITION_RANDOM_STATE.random_state(),
            &mut self.hashes,
        )
        .map(|hashes| &*hashes)
    }
}

/// Partitions by the hash of some expressions; rows of heavy keys may go elsewhere.
pub(super) struct ByHash {
    keys: KeyHashes,
    partitions: StrengthReducedU64,
    heavy: Option<HeavyRows>,
}

/// What is done with rows of heavy keys, and how many there were.
pub(super) struct HeavyRows {
    pub routes: Routes,
    /// Where the next row that is spread goes.
    pub next: u32,
    pub spread: Count,
    pub to_all: Count,
}

impl ByHash {
    /// Of at least one partition.
    pub(super) fn new(keys: KeyHashes, partitions: usize, heavy: Option<HeavyRows>) -> Self {
        Self {
            keys,
            partitions: StrengthReducedU64::new(partitions.max(1) as u64),
            heavy,
        }
    }
}

impl HeavyRows {
    /// The partition of each row; one more than there are for all of them.
    fn route(&mut self, hashes: &[u64], partitions: StrengthReducedU64, targets: &mut Vec<u32>) {
        let count = partitions.get() as u32;
        let (mut spread, mut to_all) = (0, 0);
        targets.extend(hashes.iter().map(|hash| {
            // No branches: a key with half of the rows defies prediction.
            let is_spread = self.routes.spread.contains(*hash);
            let is_for_all = self.routes.to_all.contains(*hash);
            let next = if self.next + 1 < count {
                self.next + 1
            } else {
                0
            };
            self.next = if is_spread { next } else { self.next };
            spread += usize::from(is_spread);
            to_all += usize::from(is_for_all);
            let of_hash = (*hash % partitions) as u32;
            let target = if is_spread { next } else { of_hash };
            if is_for_all { count } else { target }
        }));
        self.spread.add(spread);
        self.to_all.add(to_all);
    }
}

impl Partitioner for ByHash {
    fn partitions(&self) -> usize {
        self.partitions.get() as usize
    }

    fn has_rows_for_all(&self) -> bool {
        let heavy = self.heavy.as_ref();
        heavy.is_some_and(|heavy| !heavy.routes.to_all.is_empty())
    }

    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String> {
        let hashes = self.keys.of(batch).map_err(|error| error.to_string())?;
        let partitions = self.partitions;
        match &mut self.heavy {
            Some(heavy) => heavy.route(hashes, partitions, targets),
            None => targets.extend(hashes.iter().map(|hash| (*hash % partitions) as u32)),
        }
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
            ByHash::new(KeyHashes::new(&keys), partitions, None)
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
                ByHash::new(KeyHashes::new(&keys), partitions, None)
                    .partition(&rows, &mut again)
                    .unwrap();
                assert!(again.iter().all(|target| *target as usize == partition));
            }
        }
    }

    #[test]
    fn rows_of_heavy_keys_go_everywhere() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..600).map(|row| row % 3)));
        let batch = RecordBatch::try_from_iter([("a", numbers)]).unwrap();
        let keys = [col("a", &batch.schema()).unwrap()];
        let mut hashes = KeyHashes::new(&keys);
        let all = hashes.of(&batch).unwrap();
        let (spread, to_all) = (all[0], all[1]);
        let heavy = HeavyRows {
            routes: Routes::new(&[spread], &[to_all]),
            next: 0,
            spread: Count::new(),
            to_all: Count::new(),
        };
        let counts = (heavy.spread.clone(), heavy.to_all.clone());
        let mut partitioner = ByHash::new(hashes, 4, Some(heavy));
        assert!(partitioner.has_rows_for_all());
        let mut targets = Vec::new();
        partitioner.partition(&batch, &mut targets).unwrap();
        let of_key = |key: usize| targets.iter().skip(key).step_by(3);
        for partition in 0..4 {
            assert_eq!(of_key(0).filter(|target| **target == partition).count(), 50);
        }
        assert!(of_key(1).all(|target| *target == 4));
        assert!(of_key(2).all(|target| *target == targets[2] && *target < 4));
        assert_eq!((counts.0.value(), counts.1.value()), (200, 200));
    }
}
