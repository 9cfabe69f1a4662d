//! Refuses clauses that DataFusion's planner reads over: a statement with one would be run as if it were not there.

use std::ops::ControlFlow;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{GroupByExpr, Query, Select, TableFactor};

use super::statement::{Look, visit};

/// Refuses a statement with a clause that would be ignored.
pub(crate) fn check_clauses(statement: &mut Statement) -> Result<()> {
    match visit(statement, &mut Refuse) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(clause) => plan_err!("{clause} is not supported: leave it out"),
    }
}

struct Refuse;

impl Look for Refuse {
    fn query(&mut self, query: &mut Query) -> ControlFlow<String> {
        first(&[
            (!query.locks.is_empty(), "FOR UPDATE or FOR SHARE"),
            (query.for_clause.is_some(), "FOR XML, JSON or BROWSE"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
        ])
    }

    fn select(&mut self, select: &mut Select) -> ControlFlow<String> {
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) =
            &select.group_by;
        first(&[
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!modifiers.is_empty(), "WITH ROLLUP, CUBE or TOTALS"),
        ])
    }

    fn table(&mut self, table: &mut TableFactor) -> ControlFlow<String> {
        let sampled = match table {
            TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. } => {
                sample.is_some()
            }
            _ => false,
        };
        first(&[(sampled, "TABLESAMPLE")])
    }
}

/// The first of the clauses that is there.
fn first(clauses: &[(bool, &str)]) -> ControlFlow<String> {
    match clauses.iter().find(|(is_there, _)| *is_there) {
        Some((_, clause)) => ControlFlow::Break((*clause).to_owned()),
        None => ControlFlow::Continue(()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::config::Dialect;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn what_would_be_ignored_is_refused_wherever_it_is() {
        let state = SessionContext::new().state();
        let check = |sql: &str, dialect| {
            let mut statement = state.sql_to_statement(sql, &dialect).expect(sql);
            check_clauses(&mut statement)
        };
        for (sql, dialect, clause) in [
            (
                "SELECT v FROM t PREWHERE v = 1",
                Dialect::ClickHouse,
                "PREWHERE",
            ),
            (
                "SELECT v FROM t TABLESAMPLE (1 PERCENT)",
                Dialect::Generic,
                "TABLESAMPLE",
            ),
            (
                "WITH w AS (SELECT k FROM t GROUP BY k WITH ROLLUP) SELECT * FROM w",
                Dialect::Generic,
                "ROLLUP",
            ),
            (
                "SELECT v FROM t START WITH v = 1 CONNECT BY v > 1",
                Dialect::Snowflake,
                "CONNECT BY",
            ),
            (
                "EXPLAIN SELECT v FROM t FOR UPDATE",
                Dialect::Generic,
                "FOR UPDATE",
            ),
            (
                "COPY (SELECT v FROM t FOR SHARE) TO 'x.csv'",
                Dialect::Generic,
                "FOR SHARE",
            ),
            (
                "SELECT 1 WHERE EXISTS (SELECT 1 FROM t SETTINGS x = 1)",
                Dialect::ClickHouse,
                "SETTINGS",
            ),
            ("SELECT v FROM t FORMAT JSON", Dialect::ClickHouse, "FORMAT"),
        ] {
            let refused = check(sql, dialect).expect_err(sql).to_string();
            assert!(refused.contains(clause), "{sql}: {refused}");
        }
        for sql in [
            "SELECT k, count(*) FROM t WHERE v = 1 GROUP BY ROLLUP (k) ORDER BY k LIMIT 3",
            "SELECT DISTINCT ON (k) k FROM t",
            "CREATE TABLE x AS SELECT 1",
        ] {
            check(sql, Dialect::Generic).expect(sql);
        }
    }
}
