//! A rule of the logical optimizer that replaces nodes of a plan one by one, the uppermost first.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule as optimizers hold it.
pub(super) type PlanRule = Arc<dyn OptimizerRule + Send + Sync>;

/// Gives the node that stands in a node's place.
type Replace = fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>;

/// The rule of this name that puts replacements in the places of nodes.
pub(super) fn plan_rule(name: &'static str, replace: Replace) -> PlanRule {
    Arc::new(TopDown { name, replace })
}

struct TopDown {
    name: &'static str,
    replace: Replace,
}

impl fmt::Debug for TopDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl OptimizerRule for TopDown {
    fn name(&self) -> &str {
        self.name
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        (self.replace)(plan)
    }
}
