//! Makes joins yield to the runtime, so that a busy worker still answers and can be cancelled.
//!
//! DataFusion makes the leaves of a plan yield from time to time. A join can turn one batch of its
//! inputs into millions of rows without asking a leaf for more, and an aggregation above it would
//! consume them all in one go: on a worker with one thread nothing else would run, and a cancelled
//! query would not end.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};

/// Wraps the joins that multiply rows, so that they take part in cooperative scheduling.
#[derive(Debug)]
pub(crate) struct YieldingJoins;

impl PhysicalOptimizerRule for YieldingJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>() {
                return Ok(Transformed::yes(Arc::new(CooperativeExec::new(node))));
            }
            Ok(Transformed::no(node))
        })
        .data()
    }

    fn name(&self) -> &str {
        "YieldingJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
