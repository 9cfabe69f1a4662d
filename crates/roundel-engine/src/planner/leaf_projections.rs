//! Reads fields of structs where they stand, above a column that has another's name and above what is drawn anew for each row.
//!
//! DataFusion reads `s['b']` below `SELECT -a AS a, s`, and takes the other `a` along (#25414); below `SELECT named_struct('x', random()) AS s` it
//! draws another number (#24678). Other projections keep its rules, by which sources read less.

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};

use super::plan_rule::{PlanRule, around};

/// DataFusion's rules that put what reads fields below other nodes.
pub(super) const READS_FIELDS: [&str; 2] =
    ["extract_leaf_expressions", "push_down_leaf_projections"];

/// The rule, which does nothing where it would be wrong if it puts such reads below.
pub(super) fn fields_in_place(rule: PlanRule) -> PlanRule {
    if !READS_FIELDS.contains(&rule.name()) {
        return rule;
    }
    around(rule, |inner, plan, config| match stays(&plan)? {
        true => Ok(Transformed::no(plan)),
        false => inner.rewrite(plan, config),
    })
}

/// Whether fields are read where they stand, as a projection of the plan would make others of them.
fn stays(plan: &LogicalPlan) -> Result<bool> {
    let mut stays = false;
    plan.apply_with_subqueries(|node| {
        stays = matches!(node, LogicalPlan::Projection(one) if hides_or_draws(one));
        Ok(match stays {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(stays)
}

/// Whether a column is another than that of its name below, or a struct that is drawn anew for each row.
fn hides_or_draws(projection: &Projection) -> bool {
    let below = projection.input.schema();
    let mut columns = projection.expr.iter().zip(projection.schema.fields());
    columns.any(|(expr, field)| {
        let of = match expr {
            Expr::Alias(alias) => &alias.expr,
            other => other,
        };
        let hides = !matches!(of, Expr::Column(column) if column.name == *field.name())
            && below.has_column_with_unqualified_name(field.name());
        hides || field.data_type().is_nested() && expr.is_volatile()
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, logical_context, rows};

    #[tokio::test]
    async fn fields_are_beside_their_own_columns() {
        let context = logical_context(SessionConfig::new());
        let table = "CREATE TABLE t AS SELECT value AS a, named_struct('b', value * 10) AS s FROM range(1, 3)";
        rows(&context, table).await;
        answers(&context, &[
            (
                "SELECT a, s['b'] FROM (SELECT -a AS a, s FROM t WHERE a > 0) ORDER BY s['b']",
                "-1 10 -2 20",
            ),
            (
                "SELECT a, max(s['b']) FROM (SELECT a % 2 AS a, s FROM t) WHERE a < 2 GROUP BY a ORDER BY a",
                "0 20 1 10",
            ),
            (
                "SELECT s['x'] = y['x'] FROM (SELECT s, s AS y FROM (SELECT named_struct('x', random()) AS s FROM t))",
                "true true",
            ),
]).await;
    }
}
