//! Sorts by the column of SELECT that ORDER BY names, also where a key of GROUP BY casts another column of that name.
//!
//! `SELECT CAST(k AS TEXT) AS s, max(v) AS k FROM t GROUP BY CAST(k AS TEXT) ORDER BY k` is in the order of `max(v)`. DataFusion calls a
//! cast by the name of what it casts, and sorts by the key. So a text stands for the name while DataFusion plans.

use std::ops::ControlFlow;

use datafusion::common::tree_node::{Transformed, TransformedResult as _};
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, GroupByExpr, Ident, OrderByKind, Query, SelectItem, SetExpr, Value,
};

use super::statement::{Look, visit};

/// What such texts begin with.
const MARK: &str = "\u{1}the column of SELECT named ";

/// Puts texts for such names; whether there are any.
pub(crate) fn mark_names(statement: &mut Statement) -> bool {
    let mut marks = Marks(false);
    let _ = visit(statement, &mut marks);
    marks.0
}

/// The plan that sorts by columns where texts stand for them.
pub(crate) fn by_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Sort(mut sort) = node else {
            return Ok(Transformed::no(node));
        };
        for key in &mut sort.expr {
            let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = &key.expr else {
                continue;
            };
            let Some(name) = text.strip_prefix(MARK) else {
                continue;
            };
            let schema = sort.input.schema();
            let mut columns = schema.iter();
            if let Some(column) = columns.find(|(_, field)| field.name().eq_ignore_ascii_case(name))
            {
                key.expr = Expr::Column(Column::from(column));
            }
        }
        Ok(Transformed::yes(LogicalPlan::Sort(sort)))
    })
    .data()
}

struct Marks(bool);

impl Look for Marks {
    fn query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return ControlFlow::Continue(());
        };
        let GroupByExpr::Expressions(keys, _) = &select.group_by else {
            return ControlFlow::Continue(());
        };
        let items = select.projection.iter();
        let named = items.filter_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => Some((expr, alias)),
            _ => None,
        });
        let (values, aliases): (Vec<_>, Vec<_>) = named.unzip();
        let cast: Vec<_> = keys.iter().chain(values).filter_map(cast_column).collect();
        let is_of_both = |name: &Ident| {
            let same = |other: &&Ident| other.value.eq_ignore_ascii_case(&name.value);
            aliases.iter().any(same) && cast.iter().any(same)
        };
        let order = query.order_by.as_mut().map(|order| &mut order.kind);
        let Some(OrderByKind::Expressions(sorted)) = order else {
            return ControlFlow::Continue(());
        };
        for key in sorted {
            if let SqlExpr::Identifier(name) = &key.expr
                && is_of_both(name)
            {
                let text = format!("{MARK}{}", name.value);
                key.expr = SqlExpr::value(Value::SingleQuotedString(text));
                self.0 = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The name of the column that an expression only casts.
fn cast_column(expression: &SqlExpr) -> Option<&Ident> {
    let mut within = match expression {
        SqlExpr::Cast { expr, .. } => expr,
        SqlExpr::Nested(expr) => return cast_column(expr),
        _ => return None,
    };
    loop {
        within = match within.as_ref() {
            SqlExpr::Cast { expr, .. } | SqlExpr::Nested(expr) => expr,
            SqlExpr::Identifier(name) => return Some(name),
            SqlExpr::CompoundIdentifier(names) => return names.last(),
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use datafusion::config::Dialect;
    use datafusion::prelude::SessionConfig;

    use super::*;
    use crate::planner::tests::{logical_context, planned_values, rows};

    #[tokio::test]
    async fn a_name_is_of_select_before_it_is_of_a_table() {
        let context = logical_context(SessionConfig::new());
        rows(
            &context,
            "CREATE TABLE t AS SELECT value AS k, 5 - value % 3 AS v FROM range(4)",
        )
        .await;
        for (sql, right) in [
            (
                "SELECT CAST(k AS TEXT) AS s, max(v) AS k FROM t GROUP BY CAST(k AS TEXT) ORDER BY k, s",
                "2 3 1 4 0 5 3 5",
            ),
            (
                "SELECT s FROM (SELECT (a.k::BIGINT)::TEXT AS s, max(v) AS k FROM t AS a GROUP BY 1 ORDER BY K DESC, s LIMIT 3) \
                 WHERE s < '3'",
                "0 1",
            ),
            (
                "SELECT CAST(k AS TEXT) AS k, max(v) AS v FROM t GROUP BY CAST(k AS TEXT) ORDER BY k DESC",
                "3 5 2 3 1 4 0 5",
            ),
        ] {
            let state = context.state();
            let statement = state.sql_to_statement(sql, &Dialect::Generic);
            let mut statement = statement.expect(sql);
            assert!(mark_names(&mut statement), "{sql}");
            let plan = state.statement_to_plan(statement).await.expect(sql);
            let plan = by_names(plan).expect(sql);
            assert_eq!(planned_values(&context, plan).await, right, "{sql}");
        }
    }
}
