//! Keeps a limit that only skips rows right above its sort.
//!
//! DataFusion puts projections between them. Where these leave out what the rows are sorted by, it takes the sort for useless
//! and drops it, and other rows are skipped (its issue #23534). So such a projection goes above the limit.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Limit, LogicalPlan, Projection};

use super::plan_rule::{PlanRule, plan_rule};

/// This must come after the rules that move projections.
pub(super) fn offset_on_sort() -> PlanRule {
    plan_rule("offset_on_sort", below_projection)
}

fn below_projection(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
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
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{logical_context, rows};

    #[tokio::test]
    async fn rows_are_skipped_in_an_order_of_columns_that_are_left_out() {
        let context = logical_context(SessionConfig::new());
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
