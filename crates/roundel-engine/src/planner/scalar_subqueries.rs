//! Runs the scalar subqueries of a statement that depend on no outer row, and puts their values in their places.
//!
//! A stage on a worker cannot ask another plan for a value, and a join in the place of a subquery, which
//! datafusion-distributed would have, multiplies rows where the subquery has several, and exists in few places. So
//! each subquery is a query of its own, which is distributed as any other, and runs once.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use futures::future::BoxFuture;

/// Runs a plan of one column, and gives its first rows, two at most.
pub(crate) trait RunSubquery: Sync {
    /// The first two values of the plan's only column, or fewer.
    fn run(&self, plan: LogicalPlan) -> BoxFuture<'_, Result<Vec<ScalarValue>>>;
}

/// A plan in which values stand for the scalar subqueries that depend on no outer row.
///
/// # Errors
/// When a subquery fails, or has more than one row.
pub(crate) fn with_values<'a>(
    plan: LogicalPlan,
    runs: &'a dyn RunSubquery,
) -> BoxFuture<'a, Result<LogicalPlan>> {
    Box::pin(async move {
        let mut plan = plan;
        while let Some(subquery) = innermost(&plan)? {
            let value = value(Arc::unwrap_or_clone(Arc::clone(&subquery)), runs).await?;
            plan = replaced(plan, &subquery, &value)?;
        }
        Ok(plan)
    })
}

/// The value of a scalar subquery: null if it has no row.
async fn value(plan: LogicalPlan, runs: &dyn RunSubquery) -> Result<ScalarValue> {
    let data_type = plan.schema().field(0).data_type().clone();
    let mut rows = runs.run(plan).await?;
    match rows.len() {
        0 => ScalarValue::try_from(&data_type),
        1 => Ok(rows.remove(0)),
        _ => exec_err!(
            "a scalar subquery has more than one row: let it have one, by an aggregate or LIMIT 1"
        ),
    }
}

/// A scalar subquery of a plan that depends on no outer row, and has no other such within.
fn innermost(plan: &LogicalPlan) -> Result<Option<Arc<LogicalPlan>>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                let Some(subquery) = independent(expression) else {
                    return Ok(TreeNodeRecursion::Continue);
                };
                found = innermost(subquery)?.or_else(|| Some(Arc::clone(subquery)));
                Ok(TreeNodeRecursion::Stop)
            })
        })
    })?;
    Ok(found)
}

/// The plan of a scalar subquery that depends on no outer row.
fn independent(expression: &Expr) -> Option<&Arc<LogicalPlan>> {
    match expression {
        Expr::ScalarSubquery(subquery) if subquery.outer_ref_columns.is_empty() => {
            Some(&subquery.subquery)
        }
        _ => None,
    }
}

/// A plan with a value in each place of a subquery. Equal ones get the same value, so that one of GROUP BY is still that of
/// SELECT. Columns keep their names.
fn replaced(plan: LogicalPlan, known: &LogicalPlan, value: &ScalarValue) -> Result<LogicalPlan> {
    let replace = |expression: Expr| {
        let is_known = independent(&expression).is_some_and(|subquery| subquery.as_ref() == known);
        Ok::<_, DataFusionError>(match is_known {
            true => Transformed::yes(Expr::Literal(value.clone(), None)),
            false => Transformed::no(expression),
        })
    };
    let plan = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let replaced = expression.transform_up(replace)?;
            Ok(match replaced.transformed {
                true => replaced.update_data(|expression| name.restore(expression)),
                false => replaced,
            })
        })?
        .map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(plan.data)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::dataframe::DataFrame;
    use datafusion::prelude::SessionContext;
    use futures::FutureExt as _;

    use super::*;

    /// Runs subqueries in this process, and counts them.
    struct Counting<'a> {
        context: &'a SessionContext,
        runs: AtomicUsize,
    }

    impl RunSubquery for Counting<'_> {
        fn run(&self, plan: LogicalPlan) -> BoxFuture<'_, Result<Vec<ScalarValue>>> {
            self.runs.fetch_add(1, Ordering::Relaxed);
            async {
                let frame = DataFrame::new(self.context.state(), plan).limit(0, Some(2))?;
                let batches = frame.collect().await?;
                let rows = batches.iter().flat_map(|batch| {
                    let column = batch.column(0);
                    (0..column.len()).map(move |row| ScalarValue::try_from_array(column, row))
                });
                rows.collect()
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn each_subquery_runs_once_however_deep_it_is() {
        let context = SessionContext::new();
        let table = "CREATE TABLE t(id BIGINT) AS SELECT * FROM generate_series(0, 29)";
        let made = context.sql(table).await.expect("plans").collect().await;
        made.expect("a table");
        let mut deep = "(SELECT max(id) FROM t)".to_owned();
        for _ in 0..4 {
            deep = format!("(SELECT max(id) FROM t WHERE id < {deep})");
        }
        for (sql, runs, rows) in [
            (format!("SELECT * FROM t LIMIT {deep} - 20"), 5, 5),
            (format!("SELECT id FROM t WHERE id >= {deep}"), 5, 5),
            (
                "SELECT (SELECT max(id) FROM t) FROM t GROUP BY (SELECT max(id) FROM t)".to_owned(),
                1,
                1,
            ),
            (
                "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t i WHERE i.id = t.id \
                 AND i.id > (SELECT avg(id) FROM t))"
                    .to_owned(),
                1,
                15,
            ),
        ] {
            let counting = Counting {
                context: &context,
                runs: AtomicUsize::new(0),
            };
            let plan = context
                .state()
                .create_logical_plan(&sql)
                .await
                .expect("a plan");
            let plan = with_values(plan, &counting).await.expect("values");
            assert_eq!(counting.runs.into_inner(), runs, "{sql}");
            let frame = DataFrame::new(context.state(), plan);
            assert_eq!(frame.count().await.expect("runs"), rows, "{sql}");
        }
    }
}
