//! Gives `IGNORE NULLS` to the function in whose parentheses it stands.
//!
//! In `first_value(coalesce(a, b) IGNORE NULLS) OVER …` the parser takes it for a clause of `coalesce`, where DataFusion reads over
//! it. Where it can be no other function's, it is refused.

use std::ops::ControlFlow;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    VisitMut as _, VisitorMut,
};

/// Moves each such clause to the function that it is of; `heeds` says of a name whether it is of a function that has such clauses.
///
/// # Errors
/// When a clause would be ignored.
pub(crate) fn give_null_treatment(
    statement: &mut Statement,
    heeds: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let _ = visit(statement, &mut Outwards(heeds));
    match visit(statement, &mut Refuse(heeds)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => {
            plan_err!("{name} does not heed IGNORE NULLS or RESPECT NULLS: leave it out")
        }
    }
}

fn visit<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(inner) => inner.visit(visitor),
        Statement::Explain(explain) => visit(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    }
}

type Heeds<'a> = &'a dyn Fn(&str) -> bool;

fn is_heeded(heeds: Heeds<'_>, function: &Function) -> bool {
    let name = function.name.0.last().and_then(|part| part.as_ident());
    name.is_some_and(|name| heeds(&name.value.to_ascii_lowercase()))
}

struct Outwards<'a>(Heeds<'a>);

impl VisitorMut for Outwards<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression
            && is_heeded(self.0, function)
            && let FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(last))) = list.args.last_mut()
            && let Some(inner) = function_at_the_end(last)
            && !is_heeded(self.0, inner)
            && let Some(clause) = inner.null_treatment.take()
        {
            let clause = FunctionArgumentClause::IgnoreOrRespectNulls(clause);
            list.clauses.insert(0, clause);
        }
        ControlFlow::Continue(())
    }
}

/// The function that a clause behind an expression would be parsed as one of.
fn function_at_the_end(expression: &mut Expr) -> Option<&mut Function> {
    match expression {
        Expr::Function(function) => Some(function),
        Expr::BinaryOp { right, .. } => function_at_the_end(right),
        Expr::UnaryOp { expr, .. } => function_at_the_end(expr),
        _ => None,
    }
}

struct Refuse<'a>(Heeds<'a>);

impl VisitorMut for Refuse<'_> {
    type Break = String;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<String> {
        match expression {
            Expr::Function(function)
                if function.null_treatment.is_some() && !is_heeded(self.0, function) =>
            {
                ControlFlow::Break(function.name.to_string())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::config::Dialect;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn a_clause_is_of_the_function_in_whose_parentheses_it_stands() {
        let state = SessionContext::new().state();
        let given = |sql: &str| {
            let mut statement = state.sql_to_statement(sql, &Dialect::Generic).expect(sql);
            let heeds = |name: &str| ["first_value", "lag"].contains(&name);
            give_null_treatment(&mut statement, &heeds).map(|()| statement)
        };
        for (value, planned) in [
            (
                "first_value(coalesce(a, b) IGNORE NULLS) OVER (ORDER BY a)",
                "first_value(coalesce(t.a,t.b)) IGNORE NULLS",
            ),
            (
                "first_value(1 + -abs(a) IGNORE NULLS) OVER (ORDER BY a)",
                "first_value(Int64(1) + (- abs(t.a))) IGNORE NULLS",
            ),
            (
                "coalesce(1, lag(a) IGNORE NULLS OVER (ORDER BY a))",
                "lag(t.a) IGNORE NULLS",
            ),
        ] {
            let sql = format!("EXPLAIN SELECT {value} FROM (VALUES (1, 2)) AS t(a, b)");
            let plan = state.statement_to_plan(given(&sql).expect(&sql)).await;
            let plan = plan.expect(&sql).display_indent().to_string();
            assert!(plan.contains(planned), "{plan}");
        }
        let refused = given("SELECT abs(a) IGNORE NULLS FROM t").expect_err("it would be ignored");
        assert!(refused.to_string().contains("abs"), "{refused}");
    }
}
