//! Forgets the orders that DataFusion has of the rows of a join from the side whose order the join does not keep.
//!
//! Of rows that come in the order of one side, DataFusion says that those that are equal there are in the order of the other side. They are
//! not: two rows of the first that are equal each have all their partners (#25052). It then leaves out a sort.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlanProperties as _;
use datafusion::physical_plan::joins::SortMergeJoinExec;

use crate::order_only::{OrderOnlyExec, order_of_join};
use crate::rules::{Rule, node_rule};

/// This must come before the rule that leaves out sorts.
pub(super) fn join_orders() -> Rule {
    node_rule("join_orders", |node| {
        let Some(kept) = order_of_join(node) else {
            return Ok(None);
        };
        // The inputs of a merge join are not sorted yet. The node also forgets that its keys are equal, so chains sort once more.
        let more = node.output_ordering() != kept.as_ref() || node.is::<SortMergeJoinExec>();
        Ok(more.then(|| Arc::new(OrderOnlyExec::new(Arc::clone(node))) as _))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, physical_context, rows};

    #[tokio::test]
    async fn rows_that_are_equal_in_one_side_are_not_in_the_order_of_the_other() {
        for (hash, partitions) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
            let config = SessionConfig::new()
                .with_target_partitions(partitions)
                .set_bool("datafusion.optimizer.prefer_hash_join", hash);
            let context = physical_context(config);
            for table in [
                "CREATE TABLE a AS VALUES (1, 10), (1, 20), (1, 15)",
                "CREATE TABLE b AS VALUES (1, 100), (1, 200)",
            ] {
                rows(&context, table).await;
            }
            answers(&context, &[
                (
                    "SELECT l.column2, r.column2 FROM (SELECT * FROM a ORDER BY column2 LIMIT 10) AS l \
                     JOIN (SELECT * FROM b ORDER BY column1 LIMIT 10) AS r ON l.column1 = r.column1 \
                     ORDER BY r.column1, l.column2, r.column2",
                    "10 100 10 200 15 100 15 200 20 100 20 200",
                ),
                (
                    "SELECT r.column2, l.column2 FROM a AS l JOIN b AS r ON l.column1 = r.column1 \
                     ORDER BY l.column1, r.column2, l.column2 LIMIT 4",
                    "100 10 100 15 100 20 200 10",
                ),
                (
                    "SELECT l.column2 FROM (SELECT * FROM a ORDER BY column2 LIMIT 10) AS l \
                     JOIN b AS r ON l.column1 = r.column1 ORDER BY l.column2",
                    "10 10 15 15 20 20",
                ),
]).await;
        }
    }
}
