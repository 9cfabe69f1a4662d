//! Keeps a rule of DataFusion's physical optimizer from moving something through certain nodes.
//!
//! While the rule runs, a node that nothing is moved through stands above each of them.

use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::rules::{Rule, around, replace_nodes};

/// Whether a node has a fence.
type Fenced = fn(&Arc<dyn ExecutionPlan>) -> bool;

/// The rule, which moves nothing through nodes of this kind from above.
pub(super) fn with_fences(inner: Rule, above: Fenced) -> Rule {
    around(inner, move |inner, plan, config| {
        let fenced = plan.transform_up(|node| {
            Ok(match above(&node) {
                true => Transformed::yes(Arc::new(Fence(node))),
                false => Transformed::no(node),
            })
        })?;
        let optimized = inner.optimize(fenced.data, config)?;
        if !fenced.transformed {
            return Ok(optimized);
        }
        replace_nodes(optimized, |node| {
            let fence = node.downcast_ref::<Fence>();
            Ok(fence.map(|Fence(inner)| Arc::clone(inner)))
        })
    })
}

/// It takes no filter and no order, and is gone when the plan runs.
#[derive(Debug)]
struct Fence(Arc<dyn ExecutionPlan>);

impl DisplayAs for Fence {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fence")
    }
}

impl ExecutionPlan for Fence {
    fn name(&self) -> &str {
        "Fence"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.0]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // A shuffle would come between the fence and its node, and lose the order that the fence has.
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(inner) => Ok(Arc::new(Self(inner))),
            None => internal_err!("Fence has one child"),
        }
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("Fence is gone when a plan runs")
    }
}
