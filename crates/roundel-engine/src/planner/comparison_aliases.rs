//! Names the subqueries of `= ANY (…)` and `> ALL (…)`, so that their columns are not those of the query around them.
//!
//! DataFusion makes them conditions within the subquery, between its column and one of the outer row, and finds both by name.
//! In `SELECT … FROM t WHERE v = ANY (SELECT v FROM t)` both are `t.v`, and the condition is always true.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::optimizer::OptimizerConfig;

use super::plan_rule::{PlanRule, rule};

/// What such names begin with.
const PREFIX: &str = "__compared";

/// Comes before DataFusion's rule that makes them conditions.
pub(super) fn comparison_aliases() -> PlanRule {
    rule("comparison_aliases", None, |plan, config| {
        plan.transform_up_with_subqueries(|node| {
            node.map_expressions(|expression| expression.transform_up(|part| named(part, config)))
        })
    })
}

/// A comparison with a subquery that has a name.
fn named(expression: Expr, config: &dyn OptimizerConfig) -> Result<Transformed<Expr>> {
    match expression {
        // Another name would hide the columns that depend on the outer row.
        Expr::SetComparison(comparison) if !comparison.subquery.outer_ref_columns.is_empty() => {
            let own = comparison.subquery.subquery.schema().qualified_field(0);
            let own = Column::from(own);
            if comparison.expr.column_refs().contains(&own) {
                return plan_err!(
                    "{} is a column of the query and of the subquery: give the subquery's table another name",
                    own.quoted_flat_name()
                );
            }
            Ok(Transformed::no(Expr::SetComparison(comparison)))
        }
        Expr::SetComparison(mut comparison) => {
            let plan = Arc::unwrap_or_clone(comparison.subquery.subquery);
            let name = config.alias_generator().next(PREFIX);
            let plan = LogicalPlanBuilder::from(plan).alias(name)?.build()?;
            comparison.subquery.subquery = Arc::new(plan);
            Ok(Transformed::yes(Expr::SetComparison(comparison)))
        }
        other => Ok(Transformed::no(other)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::logical_context;

    #[tokio::test]
    async fn a_comparison_is_with_the_subquerys_own_column() {
        let context = logical_context(SessionConfig::new());
        let table = "CREATE TABLE t(id INT, v INT) AS VALUES (0, 10), (1, 11), (2, 12), (3, NULL)";
        context
            .sql(table)
            .await
            .expect("plans")
            .collect()
            .await
            .expect("a table");
        for (condition, right) in [
            ("v = ANY (SELECT v FROM t WHERE id < 2)", 2),
            ("v > ALL (SELECT v FROM t WHERE id < 2)", 1),
            ("v <> ALL (SELECT v FROM t WHERE id < 1)", 2),
            ("v > ANY (SELECT v FROM t)", 2),
            ("v >= ALL (SELECT v FROM t)", 0),
            ("v = ANY (SELECT v FROM t AS i WHERE i.id = t.id)", 3),
        ] {
            let sql = format!("SELECT id FROM t WHERE {condition}");
            let frame = context.sql(&sql).await.expect("plans");
            assert_eq!(frame.count().await.expect("runs"), right, "{condition}");
        }
        let sql = "SELECT 1 FROM t, t AS u WHERE t.v = ANY (SELECT v FROM t WHERE t.id = u.id)";
        let refused = context.sql(sql).await.expect("plans").collect().await;
        let refused = refused.expect_err("is not clear").to_string();
        assert!(refused.contains("another name"), "{refused}");
    }
}
