//! Forgets what is known of the rows of an aggregate with GROUPING SETS from those below it.
//!
//! Above `GROUP BY CUBE (a, b)` both are NULL in some rows. DataFusion takes them for equal where they are below, as of `a JOIN b ON a.k =
//! b.k`; for the same in all rows, as with `WHERE a = 9` or a literal; and for sorted, where the rows below are. It leaves out a sort by
//! one of them. So the rows pass a node that knows nothing of them, and travels to workers.

use std::sync::Arc;

use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;

use crate::order_only::{OrderOnlyExec, has_grouping_sets};
use crate::rules::{Rule, node_rule};

/// This must come before the rule that leaves out sorts.
pub(super) fn grouping_sets() -> Rule {
    node_rule("grouping_sets", |node: &Arc<dyn ExecutionPlan>| {
        Ok(match has_grouping_sets(node) {
            true => Some(Arc::new(OrderOnlyExec::new(Arc::clone(node)))),
            false => None,
        })
    })
}

/// Whether a node groups rows by several sets of keys.
pub(super) fn groups_by_sets(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Aggregate(aggregate) => {
            let mut keys = aggregate.group_expr.iter();
            keys.any(|key| matches!(key, Expr::GroupingSet(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, physical_context, rows};

    #[tokio::test]
    async fn columns_are_neither_equal_nor_the_same_where_some_are_null() {
        for partitions in [1, 2] {
            let config = SessionConfig::new().with_target_partitions(partitions);
            let context = physical_context(config);
            for table in [
                "CREATE TABLE a AS SELECT value AS k, value % 2 AS m FROM range(4)",
                "CREATE TABLE b AS SELECT value AS n FROM range(2)",
            ] {
                rows(&context, table).await;
            }
            answers(&context, &[
                (
                    "SELECT n, k FROM a JOIN b ON k = n GROUP BY CUBE (k, n) ORDER BY n DESC NULLS FIRST, k DESC NULLS LAST",
                    "NULL 1 NULL 0 NULL NULL 1 1 1 NULL 0 0 0 NULL",
                ),
                (
                    "SELECT m, k FROM a WHERE m = 1 GROUP BY ROLLUP (m, k) ORDER BY m NULLS FIRST, k",
                    "NULL NULL 1 1 1 3 1 NULL",
                ),
                (
                    "SELECT k, count(*) OVER (ORDER BY k, m ROWS UNBOUNDED PRECEDING) AS n FROM a \
                     WHERE k = m GROUP BY GROUPING SETS ((k), (m)) ORDER BY n",
                    "0 1 1 2 NULL 3 NULL 4",
                ),
                (
                    "SELECT 'x' AS a, k FROM a WHERE k < 2 GROUP BY ROLLUP ('x', k) ORDER BY a NULLS FIRST, k",
                    "NULL NULL x 0 x 1 x NULL",
                ),
                (
                    "SELECT k FROM (SELECT k FROM a ORDER BY k LIMIT 2) GROUP BY ROLLUP (k) ORDER BY k",
                    "0 1 NULL",
                ),
                (
                    "SELECT nth_value(k, 1 ORDER BY m, k), nth_value(k, 2 ORDER BY k DESC) FROM a WHERE m = 1 GROUP BY ROLLUP (m)",
                    "1 1 1 1",
                ),
]).await;
        }
    }
}
