//! Keeps the filter of a merge join right.
//!
//! DataFusion's `SortMergeJoinExec` takes a filter that reads no column for none, such as NULL, which a comparison with an
//! empty subquery becomes. Of an outer join the answer then has other rows. The filter reads a column here, and does not use it.
//! A projection is put below such a join as if there were no filter (#24414, #24593), which then reads other columns. Here it stays above.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::JoinSide;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};

use super::fence::with_fences;
use crate::rules::{Rule, node_rule};

/// The rule, which moves no projection below a merge join with a filter if it moves projections.
pub(super) fn with_filter_columns(rule: Rule) -> Rule {
    match rule.name() == "ProjectionPushdown" {
        true => with_fences(rule, |node| {
            let join = node.downcast_ref::<SortMergeJoinExec>();
            join.is_some_and(|join| join.filter().is_some())
        }),
        false => rule,
    }
}

/// This must come after the rules that leave out columns which nobody uses.
pub(super) fn merge_join_filters() -> Rule {
    node_rule("merge_join_filters", |node| {
        let Some(join) = node.downcast_ref::<SortMergeJoinExec>() else {
            return Ok(None);
        };
        let filter = join.filter().as_ref();
        let Some(filter) = filter.filter(|filter| filter.column_indices().is_empty()) else {
            return Ok(None);
        };
        // A merge join has a key on each side, and so a column.
        let first = Arc::clone(&join.left().schema().fields()[0]);
        let column = ColumnIndex {
            index: 0,
            side: JoinSide::Left,
        };
        let filter = JoinFilter::new(
            Arc::clone(filter.expression()),
            vec![column],
            Arc::new(Schema::new(vec![first])),
        );
        let join = SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            Some(filter),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?;
        Ok(Some(Arc::new(join)))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionConfig;

    use super::{merge_join_filters, with_filter_columns};
    use crate::planner::tests::{context, rows};

    #[tokio::test]
    async fn a_filter_reads_its_own_columns() {
        let config = SessionConfig::new()
            .with_target_partitions(2)
            .set_bool("datafusion.optimizer.prefer_hash_join", false);
        let rules = PhysicalOptimizer::new().rules.into_iter();
        let context = context(config, rules.map(with_filter_columns).collect());
        let table = "CREATE TABLE t AS SELECT value % 3 AS k, value AS v, value * 10 AS w, value * 100 AS x FROM range(9)";
        rows(&context, table).await;
        for (condition, right) in [("a.w > b.w", 9), ("a.v + 3 = b.v", 6), ("a.x < b.w", 2)] {
            let sql = format!(
                "SELECT a.k, a.x, b.k, b.x FROM t AS a JOIN t AS b ON a.k = b.k AND {condition}"
            );
            let rows = context.sql(&sql).await.expect("plans").count().await;
            assert_eq!(rows.expect("runs"), right, "{sql}");
        }
    }

    #[tokio::test]
    async fn a_filter_of_no_column_is_heeded() {
        let config = SessionConfig::new()
            .with_target_partitions(2)
            .set_bool("datafusion.optimizer.prefer_hash_join", false);
        let mut rules = PhysicalOptimizer::new().rules;
        rules.push(merge_join_filters());
        let context = context(config, rules);
        for (name, length) in [("few", 4), ("many", 9)] {
            let table = format!("CREATE TABLE {name} AS SELECT value AS k FROM range({length})");
            rows(&context, &table).await;
        }
        for (join, condition, count) in [
            ("FULL", "CAST(NULL AS BOOLEAN)", 13),
            ("FULL", "random() < 0", 13),
            ("FULL", "random() < 2", 9),
            ("LEFT", "random() < 0", 4),
            ("RIGHT", "random() < 0", 9),
            ("INNER", "random() < 0", 0),
            ("LEFT SEMI", "random() < 2", 4),
            ("LEFT ANTI", "random() < 0", 4),
        ] {
            let sql =
                format!("SELECT 1 FROM few {join} JOIN many ON few.k = many.k AND {condition}");
            let frame = context.sql(&sql).await.expect("plans");
            let plan = frame.clone().create_physical_plan().await.expect("plans");
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            let rows = frame.count().await.expect("runs");
            assert_eq!(rows, count, "{sql}\n{shown}");
        }
    }
}
