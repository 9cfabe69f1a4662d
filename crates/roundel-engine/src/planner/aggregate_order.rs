//! Leaves keys that change nothing out of the order of an aggregate function.
//!
//! A key that comes a second time, or is the same for all rows, orders nothing. Subqueries and views make such keys. The
//! functions `first_value` and `last_value`, which DISTINCT ON is made of, count them, and fail.

use std::mem;

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::plan_rule::{PlanRule, plan_rule};

/// Keeps, of each key of an aggregate function's order, the first.
pub(super) fn aggregate_order() -> PlanRule {
    plan_rule("aggregate_order", with_each_key_once)
}

fn with_each_key_once(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Aggregate(_)) {
        return Ok(Transformed::no(plan));
    }
    // The name of a function has its order.
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let shorter = expression.transform_up(|expression| Ok(shorter(expression)))?;
        Ok(match shorter.transformed {
            true => shorter.update_data(|expression| name.restore(expression)),
            false => shorter,
        })
    })
}

fn shorter(expression: Expr) -> Transformed<Expr> {
    let Expr::AggregateFunction(mut function) = expression else {
        return Transformed::no(expression);
    };
    let given = mem::take(&mut function.params.order_by);
    let count = given.len();
    let mut kept: Vec<Sort> = Vec::with_capacity(count);
    for key in given {
        let known = kept
            .iter()
            .any(|other| named(&other.expr) == named(&key.expr));
        if !known && !matches!(named(&key.expr), Expr::Literal(..)) {
            kept.push(key);
        }
    }
    let shorter = kept.len() < count;
    function.params.order_by = kept;
    Transformed::new_transformed(Expr::AggregateFunction(function), shorter)
}

/// The expression below its aliases.
fn named(mut expression: &Expr) -> &Expr {
    while let Expr::Alias(alias) = expression {
        expression = &alias.expr;
    }
    expression
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::logical_context;

    #[tokio::test]
    async fn a_key_orders_once() {
        let context = logical_context(SessionConfig::new());
        let table =
            context.sql("CREATE TABLE t(a INT, b INT) AS VALUES (1, 2), (1, 3), (2, 5), (2, 4)");
        table.await.expect("a table");
        for (sql, expected) in [
            (
                "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b, a, b",
                "| 1 | 2 |\n| 2 | 4 |",
            ),
            (
                "SELECT DISTINCT ON (a) a, b FROM (SELECT a, b, b AS c, 7 AS d FROM t) \
                 ORDER BY a, d, c DESC, b",
                "| 1 | 3 |\n| 2 | 5 |",
            ),
            (
                "SELECT DISTINCT ON (a, b) CASE WHEN true THEN a END AS x, a, b FROM t \
                 ORDER BY a, b, CASE WHEN true THEN a ELSE 9 END LIMIT 2",
                "| 1 | 1 | 2 |\n| 1 | 1 | 3 |",
            ),
            (
                "SELECT DISTINCT ON (true, CASE WHEN a > 1 THEN false END) b, a FROM t \
                 ORDER BY true, CASE WHEN a > 1 THEN false END NULLS FIRST, b",
                "| 2 | 1 |\n| 4 | 2 |",
            ),
            (
                "SELECT a, last_value(b ORDER BY b, 1 + 1, b) AS b FROM t GROUP BY a ORDER BY a",
                "| 1 | 3 |\n| 2 | 5 |",
            ),
            (
                "SELECT a, array_agg(b ORDER BY b, b DESC) AS b FROM t GROUP BY a ORDER BY a",
                "| 1 | [2, 3] |\n| 2 | [4, 5] |",
            ),
        ] {
            let frame = context.sql(sql).await.expect("plans");
            let rows = frame.collect().await.expect(sql);
            let rows = pretty_format_batches(&rows).expect("text").to_string();
            let rows: Vec<&str> = rows.lines().skip(3).collect();
            let rows = rows[..rows.len() - 1].join("\n");
            assert_eq!(rows, expected, "{sql}");
        }
    }
}
