//! Sorts the rows of a shuffle of one input where a node above relies on their order.
//!
//! Such a shuffle keeps the order of its input, and a network shuffle of one task does, too. But the worker is not told so: there, an
//! outer join that keeps the order of rows which it knows to be sorted gives those without a partner last, and an
//! aggregate gives its groups in any order.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::{LexOrdering, Partitioning};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use super::order::sort;
use crate::rules::{Rule, above, node_rule};

/// This must come after the rules that move sorts.
pub(super) fn order_of_one_input() -> Rule {
    node_rule("order_of_one_input", |node| {
        let mut changed = false;
        let required = node.required_input_ordering();
        let inputs = node.children().into_iter().zip(required);
        let inputs = inputs.map(|(input, required)| {
            if required.is_none() {
                return Ok(Arc::clone(input));
            }
            let sorted = Arc::clone(input).transform_down(sorted)?;
            changed |= sorted.transformed;
            Ok(sorted.data)
        });
        let inputs = inputs.collect::<Result<_>>()?;
        changed.then(|| above(inputs, node)).transpose()
    })
}

/// The first shuffle below of one input whose order its rows have, with a sort above it.
fn sorted(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(order) = kept_order(&node) {
        let sorted = sort(node, order);
        return Ok(Transformed::new(sorted, true, TreeNodeRecursion::Jump));
    }
    let keeps = node.maintains_input_order().contains(&true) && node.output_ordering().is_some();
    Ok(Transformed::new(
        node,
        false,
        match keeps {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Jump,
        },
    ))
}

/// The order that a shuffle keeps because it has one input.
fn kept_order(node: &Arc<dyn ExecutionPlan>) -> Option<LexOrdering> {
    let shuffle = node.downcast_ref::<RepartitionExec>()?;
    let by_keys = matches!(shuffle.partitioning(), Partitioning::Hash(..));
    let order = node.output_ordering().filter(|_| by_keys);
    order.cloned()
}
