//! Keeps the types of sums, where DataFusion does a distinct aggregate in two steps.
//!
//! Of `sum(d), count(DISTINCT k)` it makes a sum for each `k`, and a sum of those. Where `d` is a decimal, each sum has ten digits more than
//! what it adds up, so that the second one is of another type than the first, which is what a condition above compares: the query would
//! be refused when it runs. So the second sum is cast to the type of the first.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{ExprSchemable as _, LogicalPlan, Projection, cast};
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;

use super::plan_rule::{PlanRule, around};

/// DataFusion's rule that does distinct aggregates in two steps, with the types of one.
pub(super) fn sum_types() -> PlanRule {
    let steps = Arc::new(SingleDistinctToGroupBy::new());
    around(steps, |inner, plan, config| {
        let schema = Arc::clone(plan.schema());
        let rewritten = inner.rewrite(plan, config)?;
        match rewritten.transformed {
            true => rewritten.map_data(|plan| with_types_of(plan, &schema)),
            false => Ok(rewritten),
        }
    })
}

/// A projection whose columns have the types of a schema.
fn with_types_of(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(plan);
    };
    let input = projection.input;
    let columns = projection.expr.into_iter().zip(schema.iter());
    let columns = columns.map(|(column, (qualifier, field))| {
        Ok(
            match column.get_type(input.schema())? == *field.data_type() {
                true => column,
                false => cast(column.unalias(), field.data_type().clone())
                    .alias_qualified(qualifier.cloned(), field.name()),
            },
        )
    });
    let columns = columns.collect::<Result<_>>()?;
    Projection::try_new(columns, input).map(LogicalPlan::Projection)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, logical_context, rows};

    #[tokio::test]
    async fn sums_beside_distinct_counts_are_compared_in_their_type() {
        let context = logical_context(SessionConfig::new());
        let table = "CREATE TABLE t AS SELECT CAST(value AS DECIMAL(9, 2)) AS d, value % 3 AS k FROM range(6)";
        rows(&context, table).await;
        answers(&context, &[
            (
                "SELECT s FROM (SELECT sum(d) AS s, count(DISTINCT k) AS n FROM t) WHERE s > 10.5",
                "15.00",
            ),
            (
                "SELECT count(*) FROM (SELECT sum(d) AS s, sum(DISTINCT k) AS n FROM t GROUP BY d) WHERE s BETWEEN 1.5 AND 3.5",
                "2",
            ),
            (
                "SELECT sum(d) AS s, stddev(DISTINCT k) AS n FROM t",
                "15.00 1.0",
            ),
]).await;
    }
}
