//! Keeps a limit that only skips rows right above its sort.
//!
//! DataFusion puts projections between them. Where these leave out what the rows are sorted by, it takes the sort for useless
//! and drops it, and other rows are skipped (its issue #23534). So such a projection goes above the limit.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Limit, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// This must come after the rules that move projections.
#[derive(Debug)]
pub(crate) struct OffsetOnSort;

impl OptimizerRule for OffsetOnSort {
    fn name(&self) -> &str {
        "offset_on_sort"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Limit(limit) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let LogicalPlan::Projection(projection) = limit.input.as_ref() else {
            return Ok(Transformed::no(plan));
        };
        if limit.fetch.is_some() || !is_of_sort(&projection.input) {
            return Ok(Transformed::no(plan));
        }
        let below = LogicalPlan::Limit(Limit {
            skip: limit.skip.clone(),
            fetch: None,
            input: Arc::clone(&projection.input),
        });
        Ok(Transformed::yes(LogicalPlan::Projection(
            Projection::try_new_with_schema(
                projection.expr.clone(),
                Arc::new(below),
                Arc::clone(&projection.schema),
            )?,
        )))
    }
}

/// Whether rows come from a sort, through projections.
fn is_of_sort(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_of_sort(&projection.input),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;

    use crate::planner::logical_rules;
    use crate::planner::tests::rows;

    #[tokio::test]
    async fn rows_are_skipped_in_an_order_of_columns_that_are_left_out() {
        let context = SessionContext::new().into_state_builder();
        let context = SessionContext::from(context.with_optimizer_rules(logical_rules()).build());
        let table = "CREATE TABLE t AS SELECT value AS a, 9 - value AS b FROM range(10)";
        rows(&context, table).await;
        for (sql, right) in [
            (
                "SELECT sum(a) FROM (SELECT a, b FROM t ORDER BY b OFFSET 7)",
                3,
            ),
            (
                "SELECT sum(c) FROM (SELECT a + 1 AS c, lag(a) OVER (ORDER BY a) AS p FROM t ORDER BY b, p OFFSET 8)",
                3,
            ),
        ] {
            let rows = rows(&context, sql).await;
            let text = pretty_format_batches(&rows).expect("text").to_string();
            assert!(text.contains(&format!("| {right} ")), "{sql}\n{text}");
        }
    }
}
