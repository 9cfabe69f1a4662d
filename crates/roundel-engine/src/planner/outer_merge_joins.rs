//! Joins in nested loops what DataFusion would merge wrongly.
//!
//! Its `PiecewiseMergeJoinExec`, which `datafusion.optimizer.enable_piecewise_merge_join` switches on, loses rows of outer joins
//! whose key is NULL. Inner joins keep it.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::common::{JoinSide, JoinType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{NestedLoopJoinExec, PiecewiseMergeJoinExec};

use crate::rules::{Rule, node_rule};

/// This must come before the rules that sort inputs.
pub(super) fn outer_merge_joins() -> Rule {
    node_rule("outer_merge_joins", |node| {
        let join = node.downcast_ref::<PiecewiseMergeJoinExec>();
        let Some(join) = join.filter(|join| join.join_type != JoinType::Inner) else {
            return Ok(None);
        };
        let (left, right) = (join.buffered(), join.streamed());
        let (lefts, rights) = (left.schema(), right.schema());
        let fields = lefts.fields().iter().chain(rights.fields());
        let schema = Schema::new(fields.cloned().collect::<Vec<_>>());
        let of = |side, count| (0..count).map(move |index| ColumnIndex { index, side });
        let columns = of(JoinSide::Left, lefts.fields().len())
            .chain(of(JoinSide::Right, rights.fields().len()))
            .collect();
        let behind = lefts.fields().len();
        let of_right = Arc::clone(&join.on.1).transform_up(|part| {
            let moved = part
                .downcast_ref::<Column>()
                .map(|column| Column::new(column.name(), column.index() + behind));
            Ok(match moved {
                Some(moved) => Transformed::yes(Arc::new(moved) as Arc<dyn PhysicalExpr>),
                None => Transformed::no(part),
            })
        });
        let condition = BinaryExpr::new(Arc::clone(&join.on.0), join.operator, of_right.data()?);
        let filter = JoinFilter::new(Arc::new(condition), columns, Arc::new(schema));
        let (left, right) = (Arc::clone(left), Arc::clone(right));
        let join = NestedLoopJoinExec::try_new(left, right, Some(filter), &join.join_type, None)?;
        Ok(Some(Arc::new(join)))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionConfig;

    use super::outer_merge_joins;
    use crate::planner::tests::{context, rows};

    #[tokio::test]
    async fn outer_joins_keep_rows_whose_key_is_null() {
        let config = SessionConfig::new()
            .with_target_partitions(3)
            .set_bool("datafusion.optimizer.enable_piecewise_merge_join", true);
        let mut rules = PhysicalOptimizer::new().rules;
        rules.insert(0, outer_merge_joins());
        let context = context(config, rules);
        for table in [
            "CREATE TABLE l(a INT, k INT) AS VALUES (1, 1), (2, NULL), (3, 5), (4, NULL)",
            "CREATE TABLE r(b INT, k INT) AS VALUES (1, 2), (2, NULL), (3, 4)",
        ] {
            rows(&context, table).await;
        }
        for (join, merges, rows) in [
            ("JOIN", true, 2),
            ("LEFT JOIN", false, 5),
            ("RIGHT JOIN", false, 3),
            ("FULL JOIN", false, 6),
        ] {
            let sql = format!("SELECT l.a, r.b FROM l {join} r ON l.k + 0 > r.k");
            let frame = context.sql(&sql).await.expect("plans");
            let plan = frame.clone().create_physical_plan().await.expect("plans");
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(shown.contains("PiecewiseMergeJoin"), merges, "{shown}");
            assert_eq!(frame.count().await.expect("runs"), rows, "{join}");
        }
    }
}
