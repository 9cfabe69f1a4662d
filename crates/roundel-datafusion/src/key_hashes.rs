//! The hashes of rows' keys: DataFusion's own, so that rows that another stage repartitioned by the same keys meet those
//! that were scattered.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::hash_utils::create_hashes;
use datafusion::error::DataFusionError;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;
use std::sync::Arc;

/// The hashes of the keys of a batch's rows.
pub(super) struct KeyHashes {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    hashes: Vec<u64>,
}

impl KeyHashes {
    pub(super) fn new(keys: &[Arc<dyn PhysicalExpr>]) -> Self {
        Self {
            keys: keys.to_vec(),
            hashes: Vec::new(),
        }
    }

    /// One of each row.
    pub(super) fn of(&mut self, batch: &RecordBatch) -> Result<&[u64], DataFusionError> {
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
