//! Keeps filters from being put below nodes that have two columns of one name.
//!
//! DataFusion's physical rule looks for a filter's columns in the node below by their names, and takes the first. Above a join
//! of two tables with a column `id` each, a filter of one came to the other (cousins: apache/datafusion#20213, #25262). So
//! nothing is put below such a node while that rule runs; filters that nodes below it make by themselves are.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use super::fence::with_fences;
use crate::rules::Rule;

/// DataFusion's physical rules that put filters below other nodes.
pub(super) const PUTS_FILTERS: [&str; 2] = ["FilterPushdown", "FilterPushdown(Post)"];

/// The rule, kept right if it puts filters below other nodes.
pub(super) fn unambiguous(rule: Rule) -> Rule {
    match PUTS_FILTERS.contains(&rule.name()) {
        true => with_fences(rule, has_name_twice),
        false => rule,
    }
}

fn has_name_twice(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut names = HashSet::new();
    let schema = node.schema();
    let mut fields = schema.fields().iter();
    fields.any(|field| !names.insert(field.name()))
}

#[cfg(test)]
mod tests {
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionConfig;

    use super::unambiguous;
    use crate::planner::tests::{context, rows};

    #[tokio::test]
    async fn a_filter_is_of_its_own_side() {
        let config = SessionConfig::new().with_target_partitions(2);
        let rules = PhysicalOptimizer::new().rules.into_iter();
        let context = context(config, rules.map(unambiguous).collect());
        for table in [
            "CREATE TABLE small(id INT, k INT) AS VALUES (1, 1), (2, 2)",
            "CREATE TABLE large(id INT, k INT) AS SELECT x + 1000, x FROM generate_series(1, 5000) g(x)",
        ] {
            rows(&context, table).await;
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
