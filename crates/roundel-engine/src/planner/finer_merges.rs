//! Merges sorted partitions by all that they are sorted by.
//!
//! DataFusion puts a sort below a merge that is by less, as that of `(SELECT … ORDER BY a LIMIT 9) ORDER BY a, b` is: the partitions are
//! sorted by `a` and `b` then, and what is merged of them only by `a`.

use std::sync::Arc;

use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::ExecutionPlanProperties as _;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use crate::rules::{Rule, node_rule};

/// This must come after the rule that moves sorts.
pub(super) fn finer_merges() -> Rule {
    node_rule("finer_merges", |node| {
        let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else {
            return Ok(None);
        };
        let given = merge.input().output_ordering().into_iter().flatten();
        let all = merge.expr().iter().chain(given).cloned();
        // It leaves out what is there twice.
        let Some(all) = LexOrdering::new(all) else {
            return Ok(None);
        };
        if all.len() == merge.expr().len() {
            return Ok(None);
        }
        let input = Arc::clone(merge.input());
        let finer = SortPreservingMergeExec::new(all, input).with_fetch(merge.fetch());
        Ok(Some(Arc::new(finer)))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionConfig;

    use super::finer_merges;
    use crate::planner::tests::{answers, context, rows};

    #[tokio::test]
    async fn rows_are_in_the_outer_order() {
        let mut rules = PhysicalOptimizer::new().rules;
        let sorts = rules
            .iter()
            .position(|rule| rule.name() == "EnsureRequirements");
        rules.insert(sorts.expect("it is there") + 1, finer_merges());
        // Batches so small that all partitions have rows.
        let config = SessionConfig::new()
            .with_target_partitions(3)
            .with_batch_size(2);
        let context = context(config, rules);
        for table in [
            "CREATE TABLE t AS SELECT value AS k, value % 2 AS c FROM range(12)",
            "CREATE TABLE few AS SELECT value AS k, value % 2 AS c FROM range(4)",
        ] {
            rows(&context, table).await;
        }
        answers(&context, &[
            (
                "SELECT k FROM (SELECT c, k FROM t WHERE k <> 5 ORDER BY c LIMIT 20) ORDER BY c, k",
                "0 2 4 6 8 10 1 3 7 9 11",
            ),
            (
                "SELECT k FROM (SELECT c, k FROM t WHERE k <> 5 ORDER BY c LIMIT 20) ORDER BY c, k DESC LIMIT 3",
                "10 8 6",
            ),
            (
                "SELECT k FROM (SELECT c, k, sum(k) OVER (ORDER BY c) FROM few WHERE k >= 0) ORDER BY c, k DESC",
                "2 0 3 1",
            ),
]).await;
    }
}
