//! Forgets the orders that DataFusion has of the results of a window's aggregate functions.
//!
//! DataFusion takes the results of functions such as `count` and `max` for sorted, because more rows make them greater. They are not
//! sorted where a frame loses rows, or where the next partition begins, and frames without a value have NULL first. DataFusion then
//! leaves out a sort by the results.

use std::sync::Arc;

use datafusion::logical_expr::SetMonotonicity;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, WindowExpr,
};

use super::order::window;
use crate::order_only::OrderOnlyExec;
use crate::rules::{Rule, node_rule};

/// This must come before the rule that leaves out sorts.
pub(super) fn window_orders() -> Rule {
    node_rule("window_orders", |node| {
        let Some((functions, _)) = window(node) else {
            return Ok(None);
        };
        if !functions.iter().any(is_taken_for_sorted) {
            return Ok(None);
        }
        Ok(Some(Arc::new(OrderOnlyExec::new(Arc::clone(node)))))
    })
}

fn is_taken_for_sorted(function: &Arc<dyn WindowExpr>) -> bool {
    let function = function.as_any();
    let aggregate = match function.downcast_ref::<PlainAggregateWindowExpr>() {
        Some(plain) => Some(plain.get_aggregate_expr()),
        None => {
            let sliding = function.downcast_ref::<SlidingAggregateWindowExpr>();
            sliding.map(|sliding| sliding.get_aggregate_expr())
        }
    };
    aggregate.is_some_and(|a| a.set_monotonicity() != SetMonotonicity::NotMonotonic)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, physical_context, rows};

    #[tokio::test]
    async fn results_are_sorted_when_asked_for() {
        for partitions in [1, 2] {
            let config = SessionConfig::new().with_target_partitions(partitions);
            let context = physical_context(config);
            let table = "CREATE TABLE t AS SELECT value AS y, CASE WHEN value > 2 THEN value % 5 END AS x, \
                         value % 3 AS p FROM range(7)";
            rows(&context, table).await;
            answers(&context, &[
                (
                    "SELECT max(x) OVER (ORDER BY y) m FROM t ORDER BY m NULLS LAST",
                    "3 4 4 4 NULL NULL NULL",
                ),
                (
                    "SELECT min(x) OVER (ORDER BY y) m FROM t ORDER BY m DESC NULLS LAST",
                    "3 3 0 0 NULL NULL NULL",
                ),
                (
                    "SELECT count(*) OVER (PARTITION BY p ORDER BY y ROWS 1 PRECEDING) m FROM t ORDER BY m",
                    "1 1 1 2 2 2 2",
                ),
                (
                    "SELECT count(*) OVER (ORDER BY p GROUPS BETWEEN 1 PRECEDING AND 1 PRECEDING) m \
                     FROM t ORDER BY m, y",
                    "0 0 0 2 2 3 3",
                ),
                (
                    "SELECT max(y) OVER (ORDER BY y ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING) m \
                     FROM t ORDER BY m NULLS LAST LIMIT 6",
                    "0 1 2 3 4 NULL",
                ),
                (
                    "SELECT sum(x) OVER (ORDER BY y) m FROM t ORDER BY m LIMIT 3",
                    "3 7 7",
                ),
]).await;
        }
    }
}
