//! Which partition a row goes to, by the hash of its keys.

use crate::key_hashes::KeyHashes;
use datafusion::arrow::array::RecordBatch;
use datafusion::physical_plan::metrics::Count;
use roundel_exchange::Partitioner;
use roundel_exchange::skew::{Routed, Router};

/// Partitions by the hash of some expressions; rows of heavy keys may go elsewhere.
pub(super) struct ByHash {
    keys: KeyHashes,
    router: Router,
    heavy: Option<HeavyCounts>,
}

/// How many rows of heavy keys there were.
pub(super) struct HeavyCounts {
    pub spread: Count,
    pub to_all: Count,
}

impl ByHash {
    /// Partitions as `router` says. Rows of heavy keys are counted in `heavy`, if it is given.
    pub(super) fn new(keys: KeyHashes, router: Router, heavy: Option<HeavyCounts>) -> Self {
        Self {
            keys,
            router,
            heavy,
        }
    }
}

impl Partitioner for ByHash {
    fn partitions(&self) -> usize {
        self.router.partitions()
    }

    fn has_rows_for_all(&self) -> bool {
        self.router.has_rows_for_all()
    }

    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String> {
        let hashes = self.keys.of(batch).map_err(|error| error.to_string())?;
        let Routed { spread, to_all } = self.router.route(hashes, targets);
        if let Some(counts) = &self.heavy {
            counts.spread.add(spread);
            counts.to_all.add(to_all);
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
    use roundel_exchange::skew::Routes;
    use std::sync::Arc;

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
            ByHash::new(
                KeyHashes::new(&keys),
                Router::new(partitions, None, 0),
                None,
            )
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
                ByHash::new(
                    KeyHashes::new(&keys),
                    Router::new(partitions, None, 0),
                    None,
                )
                .partition(&rows, &mut again)
                .unwrap();
                assert!(again.iter().all(|target| *target as usize == partition));
            }
        }
    }

    #[test]
    fn rows_of_heavy_keys_are_counted() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..600).map(|row| row % 3)));
        let batch = RecordBatch::try_from_iter([("a", numbers)]).unwrap();
        let keys = [col("a", &batch.schema()).unwrap()];
        let mut hashes = KeyHashes::new(&keys);
        let all = hashes.of(&batch).unwrap();
        let routes = Routes::new(&all[..1], &all[1..2]);
        let (spread, to_all) = (Count::new(), Count::new());
        let counts = HeavyCounts {
            spread: spread.clone(),
            to_all: to_all.clone(),
        };
        let mut partitioner = ByHash::new(hashes, Router::new(4, Some(routes), 0), Some(counts));
        assert!(partitioner.has_rows_for_all());
        let mut targets = Vec::new();
        partitioner.partition(&batch, &mut targets).unwrap();
        assert!(targets.iter().skip(1).step_by(3).all(|target| *target == 4));
        assert_eq!((spread.value(), to_all.value()), (200, 200));
    }
}
