//! Forgets which columns are keys where DataFusion takes others for them.
//!
//! The keys of an aggregate are unique, so that rows in their order need no sort by more columns. Above a projection DataFusion
//! takes the columns for keys that have the places of the keys: of `SELECT count(*) c, k … GROUP BY k`, that is `c`. A sort by `c` and
//! another column is then left out where rows are in the order of `c` already, because of another sort or a window: when it plans,
//! and again when a sort runs.

use std::sync::Arc;

use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRewriter,
};
use datafusion::error::Result;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use crate::order_only::OrderOnlyExec;
use crate::rules::{Rule, above, rule};

/// This must come before the rule that leaves out sorts.
pub(super) fn misplaced_keys() -> Rule {
    rule("misplaced_keys", |plan, _| {
        plan.rewrite(&mut Forget { ordered_above: 0 }).data()
    })
}

struct Forget {
    /// The nodes above that could be spared a sort. Below none of them, keys do no harm.
    ordered_above: usize,
}

impl TreeNodeRewriter for Forget {
    type Node = Arc<dyn ExecutionPlan>;

    fn f_down(&mut self, node: Self::Node) -> Result<Transformed<Self::Node>> {
        self.ordered_above += usize::from(needs_order(&node));
        Ok(Transformed::no(node))
    }

    fn f_up(&mut self, node: Self::Node) -> Result<Transformed<Self::Node>> {
        let needs_order = needs_order(&node);
        self.ordered_above -= usize::from(needs_order);
        let is_first = gives_order(&node) && self.ordered_above > 0;
        let below = self.ordered_above > 0 || needs_order;
        let mut changed = false;
        let inputs = node.children().into_iter().map(|input| {
            let known = input.equivalence_properties();
            let is_ordered = below && !known.oeq_class().is_empty();
            if (is_first || is_ordered) && !known.constraints().is_empty() {
                changed = true;
                Arc::new(OrderOnlyExec::new(Arc::clone(input)))
            } else {
                Arc::clone(input)
            }
        });
        let inputs: Vec<Arc<dyn ExecutionPlan>> = inputs.collect();
        Ok(match changed {
            true => Transformed::yes(above(inputs, &node)?),
            false => Transformed::no(node),
        })
    }
}

/// Whether a sort could be left out because of the order in which this node's rows come.
fn gives_order(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<SortExec>() || node.is::<BoundedWindowAggExec>() || node.is::<WindowAggExec>()
}

/// Whether this node is a sort or would get one below it. The node at the top repeats what the sort below it says.
fn needs_order(node: &Arc<dyn ExecutionPlan>) -> bool {
    let required = node.required_input_ordering();
    node.is::<SortExec>()
        || !node.is::<OutputRequirementExec>() && required.iter().any(Option::is_some)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, physical_context, rows, values};

    #[tokio::test]
    async fn the_order_is_of_all_its_columns() {
        for partitions in [1, 2] {
            let config = SessionConfig::new().with_target_partitions(partitions);
            let context = physical_context(config);
            let table = "CREATE TABLE t AS SELECT value % 4 AS k, value AS v FROM range(12)";
            rows(&context, table).await;
            answers(&context, &[
                (
                    "SELECT c, n FROM (SELECT c, count(k) OVER (ORDER BY c, k) AS n \
                     FROM (SELECT k, count(*) AS c FROM t GROUP BY k)) ORDER BY c, n DESC",
                    "3 4 3 3 3 2 3 1",
                ),
                (
                    "SELECT * FROM (SELECT count(*) AS c, k FROM t GROUP BY k ORDER BY c LIMIT 9) \
                     ORDER BY c, k DESC LIMIT 3",
                    "3 3 3 2 3 1",
                ),
                (
                    "SELECT * FROM (SELECT count(*) AS c, k FROM t GROUP BY k ORDER BY c LIMIT 9) ORDER BY c, k",
                    "3 0 3 1 3 2 3 3",
                ),
                (
                    "SELECT n, c FROM (SELECT max(v) AS c, k, \
                     count(*) FILTER (WHERE k > 9) OVER (ORDER BY k ROWS UNBOUNDED PRECEDING) AS n \
                     FROM t GROUP BY k) ORDER BY n, c DESC",
                    "0 11 0 10 0 9 0 8",
                ),
                (
                    "SELECT array_agg(k ORDER BY c, k DESC) FROM \
                     (SELECT count(*) AS c, k FROM t GROUP BY k ORDER BY c LIMIT 9)",
                    "[3, 2, 1, 0]",
                ),
]).await;
            let one = "EXPLAIN SELECT max(v) AS m, k FROM t GROUP BY k ORDER BY m LIMIT 2";
            let plan = values(&context, one).await;
            assert!(!plan.contains("OrderOnlyExec"), "{plan}");
        }
    }
}
