//! Makes columns of the keys of DISTINCT ON.
//!
//! DataFusion sorts the rows of `DISTINCT ON (a, b) … ORDER BY a, b` by the columns of an aggregate that groups by the keys. It looks for
//! each key in the parts of the others, too: in `DISTINCT ON (true, CASE WHEN c THEN true END)` it puts the first key into the
//! second, which is no column of the aggregate then. And what it makes simpler in one of the two clauses it may leave in the other.
//! Either way it refuses the statement. Scalar subqueries, in whose places their values stand by now, make such keys.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Distinct, DistinctOn, Expr, LogicalPlan, Projection};

use super::plan_rule::{PlanRule, plan_rule};

/// This must come before expressions are made simpler.
pub(super) fn distinct_keys() -> PlanRule {
    plan_rule("distinct_keys", of_columns)
}

fn of_columns(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Distinct(Distinct::On(mut distinct)) = plan else {
        return Ok(Transformed::no(plan));
    };
    let mut columns: Vec<Expr> = distinct.input.schema().iter().map(Expr::from).collect();
    let all = columns.len();
    for (n, key) in distinct.on_expr.iter_mut().enumerate() {
        if !matches!(key, Expr::Column(_)) {
            let name = format!("__distinct_key_{n}");
            let column = Expr::Column(Column::new_unqualified(&name));
            columns.push(std::mem::replace(key, column).alias(name));
        }
    }
    if columns.len() == all {
        let same = LogicalPlan::Distinct(Distinct::On(distinct));
        return Ok(Transformed::no(same));
    }
    // ORDER BY begins with the keys.
    for (sort, key) in distinct
        .sort_expr
        .iter_mut()
        .flatten()
        .zip(&distinct.on_expr)
    {
        sort.expr = key.clone();
    }
    let input = LogicalPlan::Projection(Projection::try_new(columns, distinct.input)?);
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(
        DistinctOn {
            input: Arc::new(input),
            ..distinct
        },
    ))))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, logical_context, rows};

    #[tokio::test]
    async fn a_key_may_be_a_part_of_another() {
        let context = logical_context(SessionConfig::new());
        let table = "CREATE TABLE t(b BOOLEAN, a BIGINT) AS VALUES (true, 1), (false, 2), (NULL, 3), (true, 4)";
        rows(&context, table).await;
        answers(&context, &[
            (
                "SELECT DISTINCT ON (false, CASE WHEN NOT b THEN false END) a FROM t \
                 ORDER BY false, CASE WHEN NOT b THEN false END NULLS LAST, a DESC",
                "2 4",
            ),
            (
                "SELECT DISTINCT ON (a % 2, (a % 2) * 10 + CASE WHEN b THEN 1 ELSE 0 END) a FROM t \
                 ORDER BY a % 2 DESC, (a % 2) * 10 + CASE WHEN b THEN 1 ELSE 0 END, a",
                "3 1 2 4",
            ),
            // Not of this kind.
            (
                "SELECT DISTINCT ON (b) a FROM t ORDER BY b, a DESC",
                "2 4 3",
            ),
            (
                "SELECT count(*) FROM (SELECT DISTINCT ON (a > 2) a FROM t)",
                "2",
            ),
]).await;
    }
}
