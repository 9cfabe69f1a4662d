//! Leaves UNIQUE out of the definition of a table.
//!
//! DataFusion takes such a column for one that has each value once. SQL lets several rows have NULL there, and nobody checks the
//! others: DISTINCT, GROUP BY and ORDER BY would be wrong of them (its issues #21507, #23634, #23818 to #23820). A PRIMARY KEY stays: it has no
//! NULL, and statements may select what it determines.

use datafusion::common::{Constraint, Constraints};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};

/// The statement without what it says of UNIQUE.
pub(crate) fn without_unique(plan: LogicalPlan) -> LogicalPlan {
    let LogicalPlan::Ddl(mut statement) = plan else {
        return plan;
    };
    match &mut statement {
        DdlStatement::CreateMemoryTable(table) => keep_primary_key(&mut table.constraints),
        DdlStatement::CreateExternalTable(table) => keep_primary_key(&mut table.constraints),
        _ => {}
    }
    LogicalPlan::Ddl(statement)
}

fn keep_primary_key(constraints: &mut Constraints) {
    let kept = constraints.iter().cloned();
    let kept = kept.filter(|constraint| matches!(constraint, Constraint::PrimaryKey(_)));
    *constraints = Constraints::new_unverified(kept.collect());
}
