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
use datafusion::sql::planner::IdentNormalizer;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, GroupByExpr, Ident, OrderByKind, Query, SelectItem, SetExpr, Value,
};

use super::statement::{Look, visit};

/// What such texts begin with.
const MARK: &str = "\u{1}the column of SELECT named ";

/// Puts texts for such names; whether there are any. `lower` says that names are in lower case unless they are quoted.
pub(crate) fn mark_names(statement: &mut Statement, lower: bool) -> bool {
    let mut marks = Marks {
        any: false,
        names: IdentNormalizer::new(lower),
    };
    let _ = visit(statement, &mut marks);
    marks.any
}

/// The plan that sorts by columns where texts stand for them.
pub(crate) fn by_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Sort(mut sort) = node else {
            return Ok(Transformed::no(node));
        };
        let mut changed = false;
        for key in &mut sort.expr {
            let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = &key.expr else {
                continue;
            };
            let Some(name) = text.strip_prefix(MARK) else {
                continue;
            };
            let schema = sort.input.schema();
            let mut columns = schema.iter();
            if let Some(column) = columns.find(|(_, field)| field.name() == name) {
                key.expr = Expr::Column(Column::from(column));
                changed = true;
            }
        }
        Ok(Transformed::new_transformed(
            LogicalPlan::Sort(sort),
            changed,
        ))
    })
    .data()
}

struct Marks {
    any: bool,
    names: IdentNormalizer,
}

impl Look for Marks {
    fn query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by)
        else {
            return ControlFlow::Continue(());
        };
        let (GroupByExpr::Expressions(keys, _), OrderByKind::Expressions(sorted)) =
            (&select.group_by, &mut order.kind)
        else {
            return ControlFlow::Continue(());
        };
        if keys.is_empty() {
            return ControlFlow::Continue(());
        }
        let items = select.projection.iter().filter_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                Some((expr, self.names.normalize(alias.clone())))
            }
            _ => None,
        });
        let items: Vec<_> = items.collect();
        let casts = |expr: &SqlExpr, name: &String| {
            cast_column(expr).is_some_and(|column| self.names.normalize(column.clone()) == *name)
        };
        let mut any = false;
        for key in sorted {
            let SqlExpr::Identifier(written) = &key.expr else {
                continue;
            };
            let name = self.names.normalize(written.clone());
            let Some((value, _)) = items.iter().find(|(_, alias)| *alias == name) else {
                continue;
            };
            let mut others = keys.iter().chain(items.iter().map(|(expr, _)| *expr));
            if !casts(value, &name) && others.any(|other| casts(other, &name)) {
                let text = format!("{MARK}{name}");
                key.expr = SqlExpr::value(Value::SingleQuotedString(text));
                any = true;
            }
        }
        self.any |= any;
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
                "SELECT CAST(k AS TEXT) AS \"K\", max(v) AS k FROM t GROUP BY CAST(k AS TEXT) ORDER BY k, \"K\" DESC LIMIT 3",
                "2 3 1 4 3 5",
            ),
        ] {
            let state = context.state();
            let statement = state.sql_to_statement(sql, &Dialect::Generic);
            let mut statement = statement.expect(sql);
            assert!(mark_names(&mut statement, true), "{sql}");
            let plan = state.statement_to_plan(statement).await.expect(sql);
            let plan = by_names(plan).expect(sql);
            assert_eq!(planned_values(&context, plan).await, right, "{sql}");
        }
        for sql in [
            "SELECT CAST(k AS TEXT) AS k, max(v) AS v FROM t GROUP BY CAST(k AS TEXT) ORDER BY k",
            "SELECT v AS k, CAST(k AS TEXT) AS s FROM t ORDER BY k",
            "SELECT DISTINCT ON (k) CAST(k AS TEXT) AS k, v FROM t ORDER BY k",
        ] {
            let statement = context.state().sql_to_statement(sql, &Dialect::Generic);
            assert!(!mark_names(&mut statement.expect(sql), true), "{sql}");
        }
    }
}
