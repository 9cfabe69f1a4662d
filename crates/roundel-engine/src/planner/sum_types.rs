//! Keeps the types of sums, where DataFusion would do a distinct aggregate in two steps.
//!
//! Of `sum(d), count(DISTINCT k)` it makes a sum for each `k`, and a sum of those. Where `d` is a decimal, each sum has ten digits more than
//! what it adds up, so that the second one is of another type than the first, which is what a condition above compares: the query is
//! refused when it runs. Such an aggregate stays as it is.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::plan_rule::PlanRule;

/// DataFusion's rule that does distinct aggregates in two steps, but not where a type would change.
pub(super) fn sum_types() -> PlanRule {
    Arc::new(SumTypes::default())
}

#[derive(Debug, Default)]
struct SumTypes(SingleDistinctToGroupBy);

impl OptimizerRule for SumTypes {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(plan));
        }
        let rewritten = self.0.rewrite(plan.clone(), config)?;
        Ok(match types(&rewritten.data) == types(&plan) {
            true => rewritten,
            false => Transformed::no(plan),
        })
    }
}

fn types(plan: &LogicalPlan) -> Vec<&DataType> {
    let fields = plan.schema().fields().iter();
    fields.map(|field| field.data_type()).collect()
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{logical_context, rows, values};

    #[tokio::test]
    async fn sums_beside_distinct_counts_are_compared_in_their_type() {
        let context = logical_context(SessionConfig::new());
        let table = "CREATE TABLE t AS SELECT CAST(value AS DECIMAL(9, 2)) AS d, value % 3 AS k FROM range(6)";
        rows(&context, table).await;
        for (sql, right) in [
            (
                "SELECT s FROM (SELECT sum(d) AS s, count(DISTINCT k) AS n FROM t) WHERE s > 10.5",
                "15.00",
            ),
            (
                "SELECT count(*) FROM (SELECT sum(d) AS s, sum(DISTINCT k) AS n FROM t GROUP BY d) WHERE s BETWEEN 1.5 AND 3.5",
                "2",
            ),
        ] {
            assert_eq!(values(&context, sql).await, right, "{sql}");
        }
    }
}
