//! Forgets what is the same in all rows of a side of an outer join, where that side may be NULL.
//!
//! Of the rows of `a LEFT JOIN b ON … AND b.x = 0`, some have NULL for `b.x`. DataFusion takes it for the same in all of them, as it is in
//! the side by itself, and leaves out a sort by it: when it plans, and again when a sort runs. So the rows of such a side pass
//! a node that says nothing of constants, and travels to workers.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use crate::order_only::OrderOnlyExec;
use crate::rules::{Rule, above, node_rule};

/// This must come before the rule that leaves out sorts.
pub(super) fn nullable_sides() -> Rule {
    node_rule("nullable_sides", |node| {
        let Some(join) = join_type(node) else {
            return Ok(None);
        };
        let nullable = match join {
            JoinType::Left => [false, true],
            JoinType::Right => [true, false],
            JoinType::Full => [true, true],
            _ => return Ok(None),
        };
        let mut changed = false;
        let sides = node.children().into_iter().zip(nullable);
        let sides = sides.map(|(side, nullable)| {
            let has_constants = !side.equivalence_properties().constants().is_empty();
            if nullable && has_constants {
                changed = true;
                Arc::new(OrderOnlyExec::new(Arc::clone(side)))
            } else {
                Arc::clone(side)
            }
        });
        let sides = sides.collect();
        changed.then(|| above(sides, node)).transpose()
    })
}

fn join_type(node: &Arc<dyn ExecutionPlan>) -> Option<JoinType> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        Some(join.join_type())
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        Some(*join.join_type())
    } else {
        let join = node.downcast_ref::<SymmetricHashJoinExec>();
        join.map(|join| *join.join_type())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionConfig;

    use super::nullable_sides;
    use crate::planner::tests::{context, rows};

    #[tokio::test]
    async fn null_is_another_value_than_the_constant() {
        for (hash, partitions) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
            let config = SessionConfig::new()
                .with_target_partitions(partitions)
                .set_bool("datafusion.optimizer.prefer_hash_join", hash);
            let mut rules = PhysicalOptimizer::new().rules;
            let sorts = rules
                .iter()
                .position(|rule| rule.name() == "EnsureRequirements");
            rules.insert(sorts.expect("it is there"), nullable_sides());
            let context = context(config, rules);
            for table in [
                "CREATE TABLE a AS SELECT value AS k FROM range(10)",
                "CREATE TABLE b AS SELECT value AS n, value % 2 AS m FROM range(10)",
            ] {
                rows(&context, table).await;
            }
            for (from, order, expected) in [
                (
                    "a LEFT JOIN b ON a.k = b.n AND b.m = 0",
                    "b.m, a.k LIMIT 3",
                    "0,2,4",
                ),
                (
                    "b RIGHT JOIN a ON a.k = b.n AND b.m = 0",
                    "b.m, a.k LIMIT 3",
                    "0,2,4",
                ),
                (
                    "a FULL JOIN (SELECT n, 0 AS m FROM b WHERE m = 1) b ON a.k = b.n",
                    "b.m, a.k LIMIT 3",
                    "1,3,5",
                ),
                (
                    "a LEFT JOIN b ON a.k > b.n AND b.m = 0 AND b.n = 6",
                    "b.m, a.k LIMIT 3",
                    "7,8,9",
                ),
                (
                    "a LEFT JOIN b ON a.k = b.n AND b.m = 0",
                    "b.m NULLS FIRST, a.k LIMIT 3",
                    "1,3,5",
                ),
            ] {
                let sql = format!(
                    "SELECT array_to_string(array_agg(k ORDER BY k), ',') \
                     FROM (SELECT a.k FROM {from} ORDER BY {order})"
                );
                let rows = rows(&context, &sql).await;
                let rows = pretty_format_batches(&rows).expect("text").to_string();
                assert!(rows.contains(&format!("| {expected} ")), "{sql}\n{rows}");
            }
        }
    }
}
