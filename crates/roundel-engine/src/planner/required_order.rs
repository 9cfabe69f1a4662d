//! Sorts the rows of a node that needs them in an order that was lost.
//!
//! Rules of DataFusion take an order for given that the last of them, which checks the plan, does not see: a key that is
//! constant, or unique, is known at one place and not at another. The statement would be refused. A sort that one of our rules puts
//! below a window can also change the order that a node above it relies on.

use std::sync::Arc;

use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use super::order::sort;
use crate::rules::{Replacement, Rule, above, node_rule};

/// This must come after all rules that move or make sorts, and before the check.
pub(super) fn required_order() -> Rule {
    node_rule("required_order", sorted_as_required)
}

fn sorted_as_required(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let mut changed = false;
    let mut inputs = Vec::new();
    for (input, required) in node
        .children()
        .into_iter()
        .zip(node.required_input_ordering())
    {
        let mut input = Arc::clone(input);
        if let Some(required) = required {
            let required = required.into_single();
            let given = input.equivalence_properties();
            if !given.ordering_satisfy_requirement(required.clone())? {
                input = sort(input, LexOrdering::from(required));
                changed = true;
            }
        }
        inputs.push(input);
    }
    changed.then(|| above(inputs, node)).transpose()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionConfig;

    use super::required_order;
    use crate::planner::tests::{context, rows};

    /// `c1` is the same in all rows, and `c0` is another in each.
    const GROUPED_BY_CONSTANTS: &str = "SELECT array_agg(c0 ORDER BY c0 DESC NULLS LAST, c1 DESC, c2 DESC) AS c3 \
         FROM (SELECT c3 AS c0, (c0 IS NOT NULL) AND false AS c1, sum(c2) AS c2 FROM \
         (SELECT TIMESTAMP '2022-01-04 06:30:00' AS c0, b AS c2, count(*) OVER (PARTITION BY a ORDER BY b) AS c3 FROM t) \
         GROUP BY c3, (c0 IS NOT NULL) AND false ORDER BY c0 DESC, c1 DESC, c2 DESC LIMIT 2) \
         GROUP BY nullif(CASE WHEN false THEN CAST(NULL AS BIGINT) END, \
         CASE WHEN c1 THEN CAST(NULL AS BIGINT) ELSE CAST(NULL AS BIGINT) END), 'a', c1";

    #[tokio::test]
    async fn an_order_that_was_lost_is_made() {
        for partitions in [1, 4] {
            let mut rules = PhysicalOptimizer::new().rules;
            let check = rules.pop();
            rules.push(required_order());
            rules.extend(check);
            let context = context(
                SessionConfig::new().with_target_partitions(partitions),
                rules,
            );
            let table = "CREATE TABLE t AS SELECT value % 7 AS a, value AS b FROM range(100)";
            rows(&context, table).await;
            let rows = rows(&context, GROUPED_BY_CONSTANTS).await;
            let rows = pretty_format_batches(&rows).expect("text").to_string();
            assert!(rows.contains("| [15, 14] |"), "{rows}");
        }
    }
}
