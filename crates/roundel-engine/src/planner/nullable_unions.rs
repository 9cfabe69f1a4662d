//! Lets a UNION have NULL where a branch may.
//!
//! `DISTINCT ON` becomes an aggregate, whose results may be NULL by their type, also where the column never is. A UNION keeps
//! the types that its branches had before, and DataFusion refuses the aggregate above it, as an internal error.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, Union};

use super::plan_rule::{PlanRule, plan_rule_upwards};

/// This must come after DISTINCT becomes an aggregate.
pub(super) fn nullable_unions() -> PlanRule {
    plan_rule_upwards("nullable_unions", as_inputs)
}

fn as_inputs(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let before = Arc::clone(plan.schema());
    let plan = match plan {
        LogicalPlan::Union(union) => LogicalPlan::Union(as_branches(union)?),
        plan => plan.recompute_schema()?,
    };
    Ok(match plan.schema().fields() == before.fields() {
        true => Transformed::no(plan),
        false => Transformed::yes(plan),
    })
}

/// The union, of whose columns those may be NULL that may be in a branch.
fn as_branches(union: Union) -> Result<Union> {
    let fields = union.schema.iter().enumerate();
    let fields = fields.map(|(n, (qualifier, field))| {
        let nullable = |input: &Arc<LogicalPlan>| input.schema().field(n).is_nullable();
        let nullable = field.is_nullable() || union.inputs.iter().any(nullable);
        let field = field.as_ref().clone().with_nullable(nullable);
        (qualifier.cloned(), Arc::new(field))
    });
    let metadata = union.schema.metadata().clone();
    let schema = DFSchema::new_with_metadata(fields.collect(), metadata)?;
    Ok(Union {
        schema: Arc::new(schema),
        inputs: union.inputs,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, logical_context, rows};

    #[tokio::test]
    async fn branches_of_distinct_on_may_be_null() {
        let context = logical_context(SessionConfig::new());
        let table =
            "CREATE TABLE t(a BIGINT NOT NULL, b BIGINT NOT NULL) AS VALUES (1, 1), (2, 1), (3, 2)";
        rows(&context, table).await;
        answers(&context, &[
            (
                "SELECT count(*) FROM ((SELECT DISTINCT ON (b) a FROM t ORDER BY b, a) UNION SELECT 1)",
                "2",
            ),
            (
                "SELECT sum(a) FROM (SELECT a FROM (SELECT DISTINCT ON (b) a, 7 AS c FROM t ORDER BY b, a DESC) \
                 UNION SELECT 5 UNION SELECT c FROM (SELECT DISTINCT ON (a) a, 7 AS c FROM t))",
                "17",
            ),
]).await;
    }
}
