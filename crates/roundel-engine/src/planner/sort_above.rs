//! Keeps a sort above a limit that only skips rows, and above DISTINCT.
//!
//! DataFusion puts a sort below such a limit, which then skips other rows (its issue #23534 is of the same kind). A limit that also has an end
//! is spared by its rule. A sort that gives so many rows, put below DISTINCT, gives fewer that are distinct (#24927).

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::limit::GlobalLimitExec;

use super::SORTS;
use super::fence::with_fences;
use crate::order_only::has_grouping_sets;
use crate::rules::Rule;

/// The rule, kept right if it moves sorts.
pub(super) fn with_sorts_above(rule: Rule) -> Rule {
    match rule.name() == SORTS {
        true => with_fences(rule, |node| only_skips(node) || is_distinct(node)),
        false => rule,
    }
}

fn only_skips(node: &Arc<dyn ExecutionPlan>) -> bool {
    let limit = node.downcast_ref::<GlobalLimitExec>();
    limit.is_some_and(|limit| limit.skip() > 0 && limit.fetch().is_none())
}

/// The rows of one with grouping sets are in no order.
fn is_distinct(node: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = node.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| aggregate.aggr_expr().is_empty()) && !has_grouping_sets(node)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionConfig;

    use super::with_sorts_above;
    use crate::planner::tests::{context, rows};

    #[tokio::test]
    async fn a_limit_has_the_rows_of_its_own_order() {
        for partitions in [1, 3] {
            let rules = PhysicalOptimizer::new().rules.into_iter();
            let rules = rules.map(with_sorts_above).collect();
            // Batches so small that it is worth to shuffle them.
            let config = SessionConfig::new()
                .with_target_partitions(partitions)
                .with_batch_size(2);
            let context = context(config, rules);
            let table = "CREATE TABLE t AS SELECT value AS k FROM range(10)";
            rows(&context, table).await;
            let skipped = "(SELECT k FROM t ORDER BY k OFFSET 7)";
            let three = "SELECT k FROM (SELECT k FROM t ORDER BY k LIMIT 3)";
            for (sql, right) in [
                (
                    "SELECT k FROM t ORDER BY k DESC OFFSET 4".to_owned(),
                    "5 4 3 2 1 0",
                ),
                (format!("SELECT k FROM {skipped} ORDER BY k DESC"), "9 8 7"),
                (
                    format!(
                        "SELECT DISTINCT k FROM ({three} UNION ALL {three} UNION ALL {three}) ORDER BY k LIMIT 3"
                    ),
                    "0 1 2",
                ),
                (
                    format!("SELECT 5 AS k UNION ALL {skipped} ORDER BY k DESC"),
                    "9 8 7 5",
                ),
                (
                    format!("SELECT k FROM {skipped} ORDER BY k % 3, k"),
                    "9 7 8",
                ),
                (
                    format!("SELECT max(k) OVER (ORDER BY k DESC) AS k FROM {skipped}"),
                    "9 9 9",
                ),
            ] {
                let rows = rows(&context, &sql).await;
                let text = pretty_format_batches(&rows).expect("text").to_string();
                let rows: Vec<&str> = text.split_whitespace().collect();
                let rows = rows.into_iter().filter(|word| word.parse::<i64>().is_ok());
                assert_eq!(rows.collect::<Vec<_>>().join(" "), right, "{sql}");
            }
        }
    }
}
