//! Keeps a limit above the sort that it was in, where the rows come from a merge join.
//!
//! DataFusion puts a sort below a join that keeps its order, with its limit: the join then has the first rows of a side only,
//! whether they have partners or not. Only `datafusion.optimizer.prefer_hash_join = false` makes such joins.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;

use crate::rules::{Rule, node_rule};

/// This must come before the rules that move sorts.
pub(super) fn limit_above_sort() -> Rule {
    node_rule("limit_above_sort", |node| {
        let Some(sort) = node.downcast_ref::<SortExec>() else {
            return Ok(None);
        };
        let Some(limit) = sort.fetch() else {
            return Ok(None);
        };
        if !has_merge_join(sort.input()) {
            return Ok(None);
        }
        let all: Arc<dyn ExecutionPlan> = Arc::new(sort.with_fetch(None));
        Ok(Some(match sort.preserve_partitioning() {
            true => Arc::new(LocalLimitExec::new(all, limit)),
            false => Arc::new(GlobalLimitExec::new(all, 0, Some(limit))),
        }))
    })
}

/// Whether there is a merge join below, to which a sort may be moved. Below a UNION a sort without its limit is refused by DataFusion
/// where two columns of a branch are the same.
fn has_merge_join(node: &Arc<dyn ExecutionPlan>) -> bool {
    !node.is::<UnionExec>()
        && (node.is::<SortMergeJoinExec>() || node.children().into_iter().any(has_merge_join))
}

#[cfg(test)]
mod tests {
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionConfig;

    use super::limit_above_sort;
    use crate::planner::tests::{context, rows};

    #[tokio::test]
    async fn a_merge_join_sees_all_rows() {
        let config = SessionConfig::new()
            .with_target_partitions(2)
            .set_bool("datafusion.optimizer.prefer_hash_join", false);
        let mut rules = PhysicalOptimizer::new().rules;
        rules.insert(0, limit_above_sort());
        let context = context(config, rules);
        for table in [
            "CREATE TABLE few AS SELECT value AS k FROM range(40, 50)",
            "CREATE TABLE many AS SELECT value AS k FROM range(1000)",
        ] {
            rows(&context, table).await;
        }
        for (sql, right) in [
            (
                "SELECT k FROM few WHERE k IN (SELECT k FROM many) ORDER BY k LIMIT 3",
                3,
            ),
            (
                "SELECT k FROM few WHERE k IN (SELECT k FROM many) ORDER BY k DESC LIMIT 3",
                3,
            ),
            (
                "SELECT few.k FROM few JOIN many ON few.k = many.k ORDER BY few.k LIMIT 7",
                7,
            ),
            (
                "SELECT many.k FROM few RIGHT JOIN many ON few.k = many.k ORDER BY many.k LIMIT 7",
                7,
            ),
        ] {
            let rows = rows(&context, sql).await;
            let count: usize = rows.iter().map(|rows| rows.num_rows()).sum();
            assert_eq!(count, right, "{sql}");
        }
    }
}
