//! Gives `IGNORE NULLS` to the function in whose parentheses it stands.
//!
//! In `first_value(coalesce(a, b) IGNORE NULLS) OVER …` the parser takes it for a clause of `coalesce`, where DataFusion reads over
//! it. Where it can be no other function's, it is refused.

use std::ops::ControlFlow;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::IdentNormalizer;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
};

use super::statement::{Look, visit};

/// Moves each such clause to the function that it is of. `heeds` says of a name, and of whether there is an `OVER`, whether the function has
/// such clauses; none where a clause would be read over, instead of refused by DataFusion.
///
/// # Errors
/// When a clause would be ignored.
pub(crate) fn give_null_treatment(
    statement: &mut Statement,
    heeds: &dyn Fn(&str, bool) -> Option<bool>,
) -> Result<()> {
    match visit(statement, &mut Outwards(heeds)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => {
            plan_err!("{name} does not heed IGNORE NULLS or RESPECT NULLS: leave it out")
        }
    }
}

struct Outwards<'a>(&'a dyn Fn(&str, bool) -> Option<bool>);

impl Outwards<'_> {
    fn is_heeded(&self, function: &Function) -> Option<bool> {
        let name = function.name.0.last().and_then(|part| part.as_ident());
        let over = function.over.is_some();
        name.and_then(|name| self.0(&IdentNormalizer::new(true).normalize(name.clone()), over))
    }
}

fn has_null_treatment(function: &Function) -> bool {
    let within = |clause: &FunctionArgumentClause| {
        matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(_))
    };
    let list = match &function.args {
        FunctionArguments::List(list) => list.clauses.iter().any(within),
        _ => false,
    };
    list || function.null_treatment.is_some()
}

impl Look for Outwards<'_> {
    /// Takes a clause out of the arguments before they are looked at.
    fn expression(&mut self, expression: &mut Expr) -> ControlFlow<String> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        let is_heeded = self.is_heeded(function);
        if is_heeded.is_none() && has_null_treatment(function) {
            return ControlFlow::Break(function.name.to_string());
        }
        if is_heeded == Some(true)
            && let FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(last))) = list.args.last_mut()
            && let Some(inner) = function_at_the_end(last)
            && self.is_heeded(inner) != Some(true)
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
        Expr::BinaryOp { right: last, .. }
        | Expr::UnaryOp { expr: last, .. }
        | Expr::Between { high: last, .. }
        | Expr::Like { pattern: last, .. }
        | Expr::ILike { pattern: last, .. }
        | Expr::IsDistinctFrom(_, last)
        | Expr::IsNotDistinctFrom(_, last) => function_at_the_end(last),
        _ => None,
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
            let heeds = |name: &str, over: bool| match name {
                "first_value" => Some(true),
                "lag" | "max" | "MyLag" => Some(over),
                _ => None,
            };
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
                "first_value(max(a) IGNORE NULLS) OVER (ORDER BY a)",
                "first_value(max(t.a)) IGNORE NULLS",
            ),
            (
                "first_value(a BETWEEN 1 AND abs(b) IGNORE NULLS) OVER (ORDER BY a)",
                "abs(t.b)) IGNORE NULLS",
            ),
            (
                "coalesce(1, lag(a) IGNORE NULLS OVER (ORDER BY a))",
                "lag(t.a) IGNORE NULLS",
            ),
        ] {
            let sql =
                format!("EXPLAIN SELECT {value} FROM (VALUES (1, 2)) AS t(a, b) GROUP BY a, b");
            let plan = state.statement_to_plan(given(&sql).expect(&sql)).await;
            let plan = plan.expect(&sql).display_indent().to_string();
            assert!(plan.contains(planned), "{plan}");
        }
        for (value, of) in [
            ("abs(a) IGNORE NULLS", "abs"),
            ("abs(a IGNORE NULLS)", "abs"),
            ("sum(coalesce(a, b) IGNORE NULLS)", "coalesce"),
            ("mylag(a) IGNORE NULLS OVER ()", "mylag"),
        ] {
            let refused =
                given(&format!("SELECT {value} FROM t")).expect_err("it would be ignored");
            assert!(refused.to_string().contains(of), "{refused}");
        }
        given("SELECT \"MyLag\"(a) IGNORE NULLS OVER () FROM t").expect("is heeded");
    }
}
