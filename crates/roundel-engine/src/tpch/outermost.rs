//! The outermost ORDER BY, OFFSET and LIMIT of a query: among rows that they leave open any will do.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// A plan without its outermost OFFSET and LIMIT, and those.
pub(super) fn without_limit(plan: LogicalPlan) -> Result<(LogicalPlan, usize, Option<usize>)> {
    let LogicalPlan::Limit(limit) = plan else {
        return Ok((plan, 0, None));
    };
    match (limit.get_skip_type()?, limit.get_fetch_type()?) {
        (SkipType::Literal(skip), FetchType::Literal(fetch)) => {
            Ok((Arc::unwrap_or_clone(limit.input), skip, fetch))
        }
        _ => plan_err!("the OFFSET and LIMIT of a query to verify must be numbers"),
    }
}

/// Columns of the result that the outermost ORDER BY names, up to the first key that is not a
/// column of the result. Keys after that one cannot be seen in the rows.
pub(super) fn sort_columns(plan: &LogicalPlan) -> Vec<usize> {
    // A key that is not selected makes the planner put a projection above the sort.
    let (sort, projection) = match plan {
        LogicalPlan::Sort(sort) => (sort, None),
        LogicalPlan::Projection(projection) => match projection.input.as_ref() {
            LogicalPlan::Sort(sort) => (sort, Some(&projection.expr)),
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let mut columns = Vec::new();
    for key in &sort.expr {
        let Expr::Column(column) = key.expr.clone().unalias() else {
            break;
        };
        let index = match projection {
            None => sort.input.schema().maybe_index_of_column(&column),
            Some(projected) => projected
                .iter()
                .position(|e| matches!(e.clone().unalias(), Expr::Column(c) if c == column)),
        };
        match index {
            Some(index) => columns.push(index),
            None => break,
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::super::single_process::SingleProcess;
    use arrow::array::RecordBatch;
    use datafusion::prelude::SessionContext;
    use futures::TryStreamExt as _;

    async fn order_of(sql: &str) -> (Vec<usize>, usize, Option<usize>, usize) {
        let context = SessionContext::new();
        context
            .sql("CREATE TABLE t AS VALUES (1, 'b', 1.5), (2, 'a', 0.5), (3, 'c', 2.5)")
            .await
            .unwrap();
        let all = SingleProcess { context }.query_uncut(sql).await.unwrap();
        let batches: Vec<RecordBatch> = all.rows.try_collect().await.unwrap();
        let rows = batches.iter().map(|batch| batch.num_rows()).sum();
        (all.sort_columns, all.skip, all.fetch, rows)
    }

    #[tokio::test]
    async fn the_outermost_order_and_limit_are_found() {
        assert_eq!(order_of("SELECT * FROM t").await, (vec![], 0, None, 3));
        assert_eq!(
            order_of("SELECT column2 AS b, column1 AS a FROM t ORDER BY a DESC, b LIMIT 2").await,
            (vec![1, 0], 0, Some(2), 3)
        );
        assert_eq!(
            order_of(
                "SELECT sum(column1) AS s FROM t GROUP BY column2 ORDER BY s LIMIT 5 OFFSET 1"
            )
            .await,
            (vec![0], 1, Some(5), 3)
        );
        assert_eq!(
            order_of("SELECT count(*) FROM t GROUP BY column2 ORDER BY count(*)").await,
            (vec![0], 0, None, 3)
        );
    }

    #[tokio::test]
    async fn keys_behind_one_that_is_not_selected_are_not_asserted() {
        assert_eq!(
            order_of("SELECT column1 FROM t ORDER BY column2, column1").await,
            (vec![], 0, None, 3)
        );
        assert_eq!(
            order_of("SELECT column1 FROM t ORDER BY column1, column2").await,
            (vec![0], 0, None, 3)
        );
        assert_eq!(
            order_of("SELECT column1 FROM t ORDER BY column1 + 1")
                .await
                .0,
            [0; 0]
        );
    }
}
