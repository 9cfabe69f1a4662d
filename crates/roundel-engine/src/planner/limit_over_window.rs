//! Keeps a limit above the windows that it is above.
//!
//! DataFusion takes away a sort whose order its input has by itself, and puts the sort's limit where that order begins: also
//! below a window, which then sees fewer rows. A limit that is no part of the sort stays where it is. DataFusion gives it
//! back to a sort that remains.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Limit, LogicalPlan, Sort, lit};
use std::sync::Arc;

use super::plan_rule::{PlanRule, plan_rule};

/// Takes the limit out of a sort above a window. This must be the last rule: others put it into the sort.
pub(super) fn limit_over_window() -> PlanRule {
    plan_rule("limit_over_window", limit_above)
}

fn limit_above(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Sort(Sort {
            expr,
            input,
            fetch: Some(fetch),
        }) if is_of_window(&input) => {
            let sort = LogicalPlan::Sort(Sort {
                expr,
                input,
                fetch: None,
            });
            Transformed::yes(LogicalPlan::Limit(Limit {
                skip: None,
                fetch: Some(Box::new(lit(i64::try_from(fetch).unwrap_or(i64::MAX)))),
                input: Arc::new(sort),
            }))
        }
        other => Transformed::no(other),
    })
}

/// Whether rows come from a window, through nodes that a sort is moved through.
fn is_of_window(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Window(_) => true,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) => {
            plan.inputs().into_iter().any(is_of_window)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn a_window_sees_all_rows_and_a_sort_knows_its_limit() {
        let context = SessionContext::new();
        context.add_optimizer_rule(limit_over_window());
        for (order, kept) in [
            ("c3, c2", ["| 1  | 295 |", "| 8  | 295 |"]),
            ("c2 DESC", ["| 295 | 295 |", "| 288 | 295 |"]),
        ] {
            let sql = format!(
                "SELECT x AS c2, max(x) OVER () AS c3 FROM generate_series(0, 300) AS a(x) \
                 WHERE x % 7 = 1 ORDER BY {order} LIMIT 2"
            );
            let frame = context.sql(&sql).await.expect("plans");
            let rows = frame.collect().await.expect("runs");
            let rows = pretty_format_batches(&rows).expect("text").to_string();
            let rows: Vec<&str> = rows.lines().skip(3).take(2).collect();
            assert_eq!(rows, kept, "{sql}");
        }
        let sql = "SELECT sum(v) OVER (PARTITION BY v) AS s FROM (VALUES (2), (1), (3)) AS t(v) \
                   ORDER BY s LIMIT 2";
        let frame = context.sql(sql).await.expect("plans");
        let plan = frame.create_physical_plan().await.expect("plans");
        let plan = datafusion::physical_plan::displayable(plan.as_ref());
        let plan = plan.indent(false).to_string();
        assert!(plan.contains("TopK(fetch=2)"), "{plan}");
    }
}
