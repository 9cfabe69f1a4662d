//! Makes joins yield to the runtime, so that a busy worker still answers and can be cancelled.
//!
//! DataFusion makes the leaves of a plan yield from time to time. A join can turn one batch of its
//! inputs into millions of rows without asking a leaf for more, also by a key that many rows have,
//! and an aggregation above it would consume them all in one go: on a worker with one thread nothing
//! else would run, and a cancelled query would not end.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
    SymmetricHashJoinExec,
};

use crate::rules::{Rule, node_rule};

/// Wraps joins, so that they take part in cooperative scheduling.
pub(super) fn yielding_joins() -> Rule {
    node_rule("yielding_joins", |node| {
        let join = multiplies(node.as_ref()).then(|| Arc::clone(node));
        Ok(join.map(|join| Arc::new(CooperativeExec::new(join)) as _))
    })
}

/// Whether a node is a join, which may make many rows of one.
fn multiplies(node: &dyn ExecutionPlan) -> bool {
    node.is::<HashJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<SymmetricHashJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<PiecewiseMergeJoinExec>()
        || node.is::<CrossJoinExec>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// How often something else gets a turn while rows are joined and counted on one thread.
    async fn turns_of_others(hash: bool, condition: &str) -> u64 {
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .set_bool("datafusion.optimizer.prefer_hash_join", hash);
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_physical_optimizer_rule(yielding_joins())
            .build();
        let context = SessionContext::from(state);
        let make = "CREATE TABLE t AS SELECT value AS v, value % 2 AS k FROM range(3000)";
        context.sql(make).await.unwrap().collect().await.unwrap();
        let query = format!("SELECT count(a.v + b.v) FROM t a JOIN t b ON {condition}");
        let turns = Arc::new(AtomicU64::new(0));
        let taken = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                taken.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let frame = context.sql(&query).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let before = turns.load(Ordering::Relaxed);
        let rows = datafusion::physical_plan::collect(plan, context.task_ctx()).await;
        assert_eq!(rows.unwrap().len(), 1);
        other.abort();
        turns.load(Ordering::Relaxed) - before
    }

    #[tokio::test]
    async fn others_get_their_turns_while_rows_are_multiplied() {
        // Millions of rows, of a handful of batches.
        for (hash, condition) in [
            (true, "a.k = b.k"),
            (false, "a.k = b.k"),
            (true, "a.v <> b.v"),
            (true, "true"),
        ] {
            let turns = turns_of_others(hash, condition).await;
            assert!(turns >= 3, "{turns} with {condition}, hash {hash}");
        }
    }
}
