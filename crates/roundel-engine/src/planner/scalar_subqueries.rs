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
        // Values of equal subqueries are equal, so that those of GROUP BY and of SELECT are, too.
        let mut known: Vec<(Arc<LogicalPlan>, ScalarValue)> = Vec::new();
        while let Some(subquery) = first_unknown(&plan, &known)? {
            // What is within a subquery is known before it runs.
            let inner = with_values(Arc::unwrap_or_clone(Arc::clone(&subquery)), runs).await?;
            let value = value(inner, runs).await?;
            known.push((subquery, value));
        }
        if !known.is_empty() {
            plan = replaced(plan, &known)?;
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

/// A scalar subquery of a plan that depends on no outer row and has no value yet.
fn first_unknown(
    plan: &LogicalPlan,
    known: &[(Arc<LogicalPlan>, ScalarValue)],
) -> Result<Option<Arc<LogicalPlan>>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                if let Some(subquery) = independent(expression)
                    && !known.iter().any(|(plan, _)| plan == subquery)
                {
                    found = Some(Arc::clone(subquery));
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
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

/// A plan with values in the places of subqueries. Columns keep their names.
fn replaced(plan: LogicalPlan, known: &[(Arc<LogicalPlan>, ScalarValue)]) -> Result<LogicalPlan> {
    let replace = |expression: Expr| {
        let value = independent(&expression)
            .and_then(|subquery| known.iter().find(|(plan, _)| plan == subquery))
            .map(|(_, value)| value.clone());
        Ok::<_, DataFusionError>(match value {
            Some(value) => Transformed::yes(Expr::Literal(value, None)),
            None => Transformed::no(expression),
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
