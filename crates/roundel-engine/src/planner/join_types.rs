//! Gives both sides of a join's comparisons one type.
//!
//! DataFusion does so before subqueries become joins. A column of the outer row has the type then that it had before the sides
//! of a UNION were given one, and a key stays text of one kind where the other side has text of another: the rows of a partition
//! have no partner, or an array cannot be compared.

use datafusion::common::DFSchema;
use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::Result;
use datafusion::logical_expr::builder::build_join_schema;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable as _, JoinType, LogicalPlan, Operator,
};

use super::plan_rule::{PlanRule, plan_rule_upwards};

/// Comes after the rules that make joins.
pub(super) fn join_types() -> PlanRule {
    plan_rule_upwards("join_types", of_one_type)
}

fn of_one_type(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(mut join) = plan else {
        return Ok(Transformed::no(plan));
    };
    let (left, right) = (Arc::clone(&join.left), Arc::clone(&join.right));
    let (left, right) = (left.schema(), right.schema());
    let mut changed = false;
    for (one, other) in &mut join.on {
        changed |= same_type((one, left), (other, right))?;
    }
    if let Some(filter) = join.filter.take() {
        let both = build_join_schema(left, right, &JoinType::Inner)?;
        let filter = filter.transform_up(|part| match part {
            Expr::BinaryExpr(mut compared) if compares(compared.op) => {
                let BinaryExpr { left, right, .. } = &mut compared;
                let changed = same_type((left, &both), (right, &both))?;
                let compared = Expr::BinaryExpr(compared);
                Ok(Transformed::new_transformed(compared, changed))
            }
            other => Ok(Transformed::no(other)),
        })?;
        changed |= filter.transformed;
        join.filter = Some(filter.data);
    }
    Ok(Transformed::new_transformed(
        LogicalPlan::Join(join),
        changed,
    ))
}

fn compares(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        operator,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// Casts what has another type than both are compared in; whether something had.
fn same_type(
    (one, of_one): (&mut Expr, &DFSchema),
    (other, of_other): (&mut Expr, &DFSchema),
) -> Result<bool> {
    let (left, right) = (one.get_type(of_one)?, other.get_type(of_other)?);
    if left == right {
        return Ok(false);
    }
    let Some(common) = comparison_coercion(&left, &right) else {
        return plan_err!("{one}, {left}, cannot be compared with {other}, {right}");
    };
    *one = std::mem::take(one).cast_to(&common, of_one)?;
    *other = std::mem::take(other).cast_to(&common, of_other)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::logical_context;

    #[tokio::test]
    async fn keys_from_a_union_are_compared_in_one_type() {
        let context = logical_context(SessionConfig::new());
        for table in [
            "CREATE TABLE keys AS SELECT arrow_cast('b' || v, 'Utf8') AS k FROM range(5) t(v)",
            "CREATE TABLE views AS SELECT arrow_cast('b' || (v % 7), 'Utf8View') AS k FROM range(500) t(v)",
        ] {
            let made = context.sql(table).await.expect("plans");
            made.collect().await.expect("a table");
        }
        let united = "(SELECT arrow_cast('X', 'Utf8') AS k UNION SELECT k FROM views) AS u";
        for (condition, right) in [
            ("EXISTS (SELECT 1 FROM keys WHERE keys.k = u.k)", 5),
            ("NOT EXISTS (SELECT 1 FROM keys WHERE keys.k = u.k)", 3),
            ("EXISTS (SELECT 1 FROM keys WHERE keys.k < u.k)", 6),
            ("k IN (SELECT k FROM keys)", 5),
            ("(SELECT count(*) FROM keys WHERE keys.k = u.k) = 1", 5),
        ] {
            let sql = format!("SELECT k FROM {united} WHERE {condition}");
            let frame = context.sql(&sql).await.expect("plans");
            assert_eq!(frame.count().await.expect("runs"), right, "{condition}");
        }
    }
}
