//! Rules of the logical optimizer, made of functions: of a whole plan, of its nodes one by one, or in the place of another rule.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule as optimizers hold it.
pub(super) type PlanRule = Arc<dyn OptimizerRule + Send + Sync>;

/// What stands in a plan's place.
pub(super) type Rewritten = Result<Transformed<LogicalPlan>>;

/// Gives the node that stands in a node's place.
type Replace = fn(LogicalPlan) -> Rewritten;

/// The rule of this name that puts replacements in the places of nodes, the uppermost first.
pub(super) fn plan_rule(name: &str, replace: Replace) -> PlanRule {
    rule(name, Some(ApplyOrder::TopDown), move |plan, _| {
        replace(plan)
    })
}

/// The same, leaves first.
pub(super) fn plan_rule_upwards(name: &str, replace: Replace) -> PlanRule {
    rule(name, Some(ApplyOrder::BottomUp), move |plan, _| {
        replace(plan)
    })
}

/// The rule of this name that gets nodes in an order, or without one the whole plan.
pub(super) fn rule(
    name: &str,
    order: Option<ApplyOrder>,
    rewrite: impl Fn(LogicalPlan, &dyn OptimizerConfig) -> Rewritten + Send + Sync + 'static,
) -> PlanRule {
    Arc::new(Rewrites {
        name: name.to_owned(),
        order,
        rewrite,
    })
}

/// A rule in another's place, with its name and order. `rewrite` gets the other.
pub(super) fn around(
    inner: PlanRule,
    rewrite: impl Fn(&PlanRule, LogicalPlan, &dyn OptimizerConfig) -> Rewritten + Send + Sync + 'static,
) -> PlanRule {
    Arc::new(Rewrites {
        name: inner.name().to_owned(),
        order: inner.apply_order(),
        rewrite: move |plan, config: &dyn OptimizerConfig| rewrite(&inner, plan, config),
    })
}

struct Rewrites<F> {
    name: String,
    order: Option<ApplyOrder>,
    rewrite: F,
}

impl<F> fmt::Debug for Rewrites<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<F> OptimizerRule for Rewrites<F>
where
    F: Fn(LogicalPlan, &dyn OptimizerConfig) -> Rewritten + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.order
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Rewritten {
        (self.rewrite)(plan, config)
    }
}
