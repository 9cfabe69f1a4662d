//! A rule of the physical optimizer that replaces nodes of a plan one by one, leaves first.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

/// A rule as optimizers hold it.
pub(crate) type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// What stands in a node's place; none if the node stays. Its schema is the node's.
pub(crate) type Replacement = Result<Option<Arc<dyn ExecutionPlan>>>;

/// The rule of this name that puts replacements in the places of nodes.
pub(crate) fn node_rule(
    name: &'static str,
    replace: impl Fn(&Arc<dyn ExecutionPlan>) -> Replacement + Send + Sync + 'static,
) -> Rule {
    Arc::new(NodeRule { name, replace })
}

/// Puts a node above other inputs, and finds out anew what is known of its rows.
pub(crate) fn above(
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    node: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(inputs, options)
}

struct NodeRule<F> {
    name: &'static str,
    replace: F,
}

impl<F> fmt::Debug for NodeRule<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<F> PhysicalOptimizerRule for NodeRule<F>
where
    F: Fn(&Arc<dyn ExecutionPlan>) -> Replacement + Send + Sync + 'static,
{
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match (self.replace)(&node)? {
                Some(replacement) => Transformed::yes(replacement),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}
