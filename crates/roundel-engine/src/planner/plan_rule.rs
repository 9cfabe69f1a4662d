//! A rule of the logical optimizer that replaces nodes of a plan one by one.

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

/// The rule of this name that puts replacements in the places of nodes, the uppermost first.
pub(super) fn plan_rule(name: &'static str, replace: Replace) -> PlanRule {
    Arc::new(NodeByNode {
        name,
        order: ApplyOrder::TopDown,
        replace,
    })
}

/// The same, leaves first.
pub(super) fn plan_rule_upwards(name: &'static str, replace: Replace) -> PlanRule {
    Arc::new(NodeByNode {
        name,
        order: ApplyOrder::BottomUp,
        replace,
    })
}

struct NodeByNode {
    name: &'static str,
    order: ApplyOrder,
    replace: Replace,
}

impl fmt::Debug for NodeByNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl OptimizerRule for NodeByNode {
    fn name(&self) -> &str {
        self.name
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(self.order)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        (self.replace)(plan)
    }
}
