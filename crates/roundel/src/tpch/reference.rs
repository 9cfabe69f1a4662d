//! What a query must return, from single-process DataFusion. It knows nothing of clusters.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use crate::verify::Expected;

/// Runs a query without its outermost OFFSET and LIMIT, so that every row that the cut could have
/// let through is known.
pub async fn expected(context: &SessionContext, sql: &str) -> Result<Expected> {
    let plan = context.state().create_logical_plan(sql).await?;
    let (plan, skip, fetch) = without_limit(plan)?;
    let sort_columns = sort_columns(&plan);
    let stream = stream(context, plan).await?;
    let schema = stream.schema();
    let batches = stream.try_collect().await?;
    Ok(Expected {
        schema,
        batches,
        sort_columns,
        skip,
        fetch,
    })
}

/// Runs a query to its end and drops the rows, to see how long it takes.
pub async fn run(context: &SessionContext, sql: &str) -> Result<()> {
    let plan = context.state().create_logical_plan(sql).await?;
    let rows = stream(context, plan).await?;
    rows.try_for_each(|_| async { Ok(()) }).await
}

async fn stream(context: &SessionContext, plan: LogicalPlan) -> Result<SendableRecordBatchStream> {
    let plan = context.state().create_physical_plan(&plan).await?;
    execute_stream(plan, context.task_ctx())
}

fn without_limit(plan: LogicalPlan) -> Result<(LogicalPlan, usize, Option<usize>)> {
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
/// column of the result: what comes after that key can not be seen in the rows.
fn sort_columns(plan: &LogicalPlan) -> Vec<usize> {
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

/// The error of a reference that did not even run.
pub fn failure(query: usize, error: &DataFusionError) -> String {
    crate::failure::one_line(&format!(
        "query {query}: the reference run in single-process DataFusion failed: {}",
        error.strip_backtrace()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn order_of(sql: &str) -> (Vec<usize>, usize, Option<usize>, usize) {
        let context = SessionContext::new();
        context
            .sql("CREATE TABLE t AS VALUES (1, 'b', 1.5), (2, 'a', 0.5), (3, 'c', 2.5)")
            .await
            .unwrap();
        let expected = expected(&context, sql).await.unwrap();
        let rows = expected.batches.iter().map(|batch| batch.num_rows()).sum();
        (expected.sort_columns, expected.skip, expected.fetch, rows)
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
