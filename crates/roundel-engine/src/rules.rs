//! Rules of the physical optimizer, of a whole plan or of its nodes one by one, leaves first.

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
    rule(name, move |plan, _| replace_nodes(plan, &replace))
}

/// The rule of this name that makes one plan of another.
pub(crate) fn rule(
    name: &'static str,
    optimize: impl Fn(Arc<dyn ExecutionPlan>, &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>>
    + Send
    + Sync
    + 'static,
) -> Rule {
    Arc::new(WholePlan {
        name: name.to_owned(),
        schema_check: true,
        optimize,
    })
}

/// A rule in another's place, with its name and its check of the schema. `optimize` gets the other.
pub(crate) fn around(
    inner: Rule,
    optimize: impl Fn(&Rule, Arc<dyn ExecutionPlan>, &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>>
    + Send
    + Sync
    + 'static,
) -> Rule {
    Arc::new(WholePlan {
        name: inner.name().to_owned(),
        schema_check: inner.schema_check(),
        optimize: move |plan, config: &ConfigOptions| optimize(&inner, plan, config),
    })
}

/// Puts replacements in the places of a plan's nodes.
pub(crate) fn replace_nodes(
    plan: Arc<dyn ExecutionPlan>,
    replace: impl Fn(&Arc<dyn ExecutionPlan>) -> Replacement,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        Ok(match replace(&node)? {
            Some(replacement) => Transformed::yes(replacement),
            None => Transformed::no(node),
        })
    })
    .data()
}

/// Puts a node above other inputs, and finds out anew what is known of its rows.
pub(crate) fn above(
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    node: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(inputs, options)
}

struct WholePlan<F> {
    name: String,
    schema_check: bool,
    optimize: F,
}

impl<F> fmt::Debug for WholePlan<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<F> PhysicalOptimizerRule for WholePlan<F>
where
    F: Fn(Arc<dyn ExecutionPlan>, &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>>
        + Send
        + Sync
        + 'static,
{
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        (self.optimize)(plan, config)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn schema_check(&self) -> bool {
        self.schema_check
    }
}
