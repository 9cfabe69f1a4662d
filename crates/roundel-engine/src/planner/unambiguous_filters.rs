//! Keeps filters from being put below nodes that have two columns of one name.
//!
//! DataFusion's physical rule looks for a filter's columns in the node below by their names, and takes the first. Above a join
//! of two tables with a column `id` each, a filter of one came to the other (cousins: apache/datafusion#20213, #25262). So
//! nothing is put below such a node while that rule runs; filters that nodes below it make by themselves are.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::node_rule::Rule;

/// DataFusion's physical rules that put filters below other nodes.
const PUTS_FILTERS: [&str; 2] = ["FilterPushdown", "FilterPushdown(Post)"];

/// The rule, kept right if it puts filters below other nodes.
pub(super) fn unambiguous(rule: Rule) -> Rule {
    match PUTS_FILTERS.contains(&rule.name()) {
        true => Arc::new(UnambiguousFilters(rule)),
        false => rule,
    }
}

/// One of DataFusion's rules that put filters below other nodes.
#[derive(Debug)]
struct UnambiguousFilters(Rule);

impl PhysicalOptimizerRule for UnambiguousFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !plan.exists(|node| Ok(has_name_twice(node)))? {
            return self.0.optimize(plan, config);
        }
        let fenced = plan
            .transform_up(|node| {
                Ok(match has_name_twice(&node) {
                    true => Transformed::yes(Arc::new(Fence(node))),
                    false => Transformed::no(node),
                })
            })
            .data()?;
        let pushed = self.0.optimize(fenced, config)?;
        pushed
            .transform_up(|node| {
                Ok(match node.downcast_ref::<Fence>() {
                    Some(Fence(inner)) => Transformed::yes(Arc::clone(inner)),
                    None => Transformed::no(node),
                })
            })
            .data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn has_name_twice(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut names = HashSet::new();
    let schema = node.schema();
    let mut fields = schema.fields().iter();
    fields.any(|field| !names.insert(field.name()))
}

/// Stands above a node while filters are put down. It takes none, and is gone when the plan runs.
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

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::unambiguous;

    #[tokio::test]
    async fn a_filter_is_of_its_own_side() {
        let config = SessionConfig::new().with_target_partitions(2);
        let rules = PhysicalOptimizer::new().rules.into_iter();
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_physical_optimizer_rules(rules.map(unambiguous).collect())
            .build();
        let context = SessionContext::from(state);
        for table in [
            "CREATE TABLE small(id INT, k INT) AS VALUES (1, 1), (2, 2)",
            "CREATE TABLE large(id INT, k INT) AS SELECT x + 1000, x FROM generate_series(1, 5000) g(x)",
        ] {
            let made = context.sql(table).await.expect("plans");
            made.collect().await.expect("a table");
        }
        for (sql, count) in [
            // The sides are swapped, and the filter is above a projection that puts them back.
            (
                "SELECT s.id, l.id FROM large l LEFT JOIN small s ON l.k = s.k WHERE s.id IS NULL",
                4998,
            ),
            (
                "SELECT s.id, l.id FROM large l FULL JOIN small s ON l.k = s.k \
                 WHERE s.id IN (SELECT id FROM small)",
                2,
            ),
        ] {
            let frame = context.sql(sql).await.expect("plans");
            let plan = frame.clone().create_physical_plan().await.expect("plans");
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            assert!(!shown.contains("Fence"), "{shown}");
            assert_eq!(frame.count().await.expect("runs"), count, "{sql}\n{shown}");
        }
    }
}
