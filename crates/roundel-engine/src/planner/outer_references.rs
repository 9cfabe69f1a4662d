//! Refuses subqueries that depend on a row of the query around them where DataFusion makes joins of them that are not the same.
//!
//! It moves the condition up to the join with the outer query. Above an outer join, or an aggregate with GROUPING SETS, the condition is of other
//! rows than below (#25507, #25519).

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, Subquery};

use super::grouping_sets::groups_by_sets;

/// # Errors
/// When there is such a subquery.
pub(crate) fn check_outer_references(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Subquery(lateral) = node {
            check(lateral)?;
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                match part {
                    Expr::ScalarSubquery(subquery) => check(subquery)?,
                    Expr::Exists(exists) => check(&exists.subquery)?,
                    Expr::InSubquery(within) => check(&within.subquery)?,
                    Expr::SetComparison(compared) => check(&compared.subquery)?,
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

fn check(subquery: &Subquery) -> Result<()> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    subquery.subquery.apply(|node| {
        let depends = match node {
            LogicalPlan::Join(join) => {
                let [left, right] = match join.join_type {
                    JoinType::Left => [false, true],
                    JoinType::Right => [true, false],
                    JoinType::Full => [true, true],
                    _ => [false, false],
                };
                left && depends(&join.left, join.right.schema())?
                    || right && depends(&join.right, join.left.schema())?
                    || (left || right) && node.contains_outer_reference()
            }
            LogicalPlan::Aggregate(aggregate) => {
                groups_by_sets(node) && depends(&aggregate.input, &DFSchema::empty())?
            }
            _ => false,
        };
        match depends {
            true => not_impl_err!(
                "a subquery whose outer join or GROUPING SETS depend on {} of the query around it: join it in that query",
                subquery.outer_ref_columns[0]
            ),
            false => Ok(TreeNodeRecursion::Continue),
        }
    })?;
    Ok(())
}

/// Whether a plan depends on the row of a query around it. A LATERAL side of a join depends on the row of the other side.
fn depends(plan: &LogicalPlan, beside: &DFSchema) -> Result<bool> {
    plan.exists(|node| {
        let mut depends = false;
        node.apply_expressions(|expr| {
            depends |= expr.exists(|part| match part {
                Expr::OuterReferenceColumn(_, column) => Ok(!beside.has_column(column)),
                _ => Ok(false),
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(depends)
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::check_outer_references;
    use crate::planner::tests::rows;

    #[tokio::test]
    async fn what_would_be_another_join_is_refused() {
        let context = SessionContext::new();
        for table in [
            "CREATE TABLE o(k BIGINT) AS VALUES (1)",
            "CREATE TABLE a(id BIGINT) AS VALUES (1)",
            "CREATE TABLE b(id BIGINT, y BIGINT) AS VALUES (1, 1)",
        ] {
            rows(&context, table).await;
        }
        for (sql, is_refused) in [
            (
                "SELECT (SELECT count(*) FROM a LEFT JOIN b ON a.id = b.id AND b.y = o.k) FROM o",
                true,
            ),
            (
                "SELECT (SELECT count(*) FROM a LEFT JOIN (SELECT * FROM b WHERE b.y = o.k) AS w ON a.id = w.id) FROM o",
                true,
            ),
            (
                "SELECT 1 FROM o WHERE EXISTS (SELECT 1 FROM a FULL JOIN b ON a.id = b.id AND b.y = o.k WHERE b.id IS NULL)",
                true,
            ),
            (
                "SELECT * FROM o, LATERAL (SELECT a.id FROM a LEFT JOIN b ON a.id = b.id AND b.y = o.k) AS w",
                true,
            ),
            (
                "SELECT 1 FROM o WHERE EXISTS (SELECT 1 FROM a WHERE a.id = o.k GROUP BY ROLLUP (a.id))",
                true,
            ),
            (
                "SELECT (SELECT count(*) FROM a LEFT JOIN b ON a.id = b.id WHERE a.id = o.k) FROM o",
                false,
            ),
            (
                "SELECT (SELECT count(*) FROM (SELECT * FROM a WHERE a.id = o.k) AS w LEFT JOIN b ON w.id = b.id) FROM o",
                false,
            ),
            (
                "SELECT 1 FROM o WHERE EXISTS (SELECT 1 FROM a JOIN b ON a.id = b.id AND b.y = o.k)",
                false,
            ),
            (
                "SELECT 1 FROM o LEFT JOIN LATERAL (SELECT w.id FROM a LEFT JOIN LATERAL (SELECT * FROM b WHERE b.id = a.id) AS w \
                 ON true WHERE a.id = o.k) AS v ON true",
                false,
            ),
            (
                "SELECT 1 FROM o WHERE k IN (SELECT id FROM a GROUP BY ROLLUP (id))",
                false,
            ),
        ] {
            let plan = context.state().create_logical_plan(sql).await.expect(sql);
            let checked = check_outer_references(&plan);
            assert_eq!(checked.is_err(), is_refused, "{sql}: {checked:?}");
        }
    }
}
