//! Looks at the queries, tables and expressions of a statement, each before what is within it. It knows nothing of what is looked for.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, TableFactor, VisitMut as _, VisitorMut,
};

/// Who looks, may change what is seen, and ends it with a text.
pub(super) trait Look {
    fn query(&mut self, _: &mut Query) -> ControlFlow<String> {
        ControlFlow::Continue(())
    }

    fn select(&mut self, _: &mut Select) -> ControlFlow<String> {
        ControlFlow::Continue(())
    }

    fn table(&mut self, _: &mut TableFactor) -> ControlFlow<String> {
        ControlFlow::Continue(())
    }

    fn expression(&mut self, _: &mut Expr) -> ControlFlow<String> {
        ControlFlow::Continue(())
    }
}

/// Shows a statement to who looks.
pub(super) fn visit(statement: &mut Statement, look: &mut dyn Look) -> ControlFlow<String> {
    match statement {
        Statement::Statement(inner) => inner.visit(&mut Shown(look)),
        Statement::Explain(explain) => visit(&mut explain.statement, look),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut Shown(look)),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    }
}

/// One type for all who look, as each is a copy of the code for all kinds of syntax.
struct Shown<'a>(&'a mut dyn Look);

impl VisitorMut for Shown<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        self.0.query(query)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<String> {
        self.0.select(select)
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<String> {
        self.0.table(table)
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<String> {
        self.0.expression(expression)
    }
}
