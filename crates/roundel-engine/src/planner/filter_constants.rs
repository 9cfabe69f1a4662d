//! Forgets which columns a filter leaves the same in all rows, but for those that it compares with a literal.
//!
//! DataFusion computes the range that a condition leaves of a column. Of `ts::date = DATE '2024-01-01'` it makes one value of `ts`, as of `i / 2 = 1`
//! and of `x::INT = 1`, and leaves out a sort by the column (#25523, #25232).

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use crate::order_only::OrderOnlyExec;
use crate::rules::{Rule, node_rule};

/// This must come before the rule that leaves out sorts.
pub(super) fn filter_constants() -> Rule {
    node_rule("filter_constants", |node| {
        let Some(filter) = node.downcast_ref::<FilterExec>() else {
            return Ok(None);
        };
        let all = FilterExecBuilder::from(filter).apply_projection(None)?;
        let all: Arc<dyn ExecutionPlan> = Arc::new(all.build()?);
        let is_wrong = |column: &Column| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(column.clone());
            let claimed = all.equivalence_properties().is_expr_constant(&column);
            let known = filter.input().equivalence_properties();
            claimed.is_some()
                && known.is_expr_constant(&column).is_none()
                && !is_compared_with_literal(filter.predicate(), &column)
        };
        if !collect_columns(filter.predicate()).iter().any(is_wrong) {
            return Ok(None);
        }
        let input: Arc<dyn ExecutionPlan> = Arc::new(OrderOnlyExec::new(all));
        let Some(columns) = filter.projection() else {
            return Ok(Some(input));
        };
        let schema = input.schema();
        let columns = columns.iter().map(|&at| {
            let name = schema.field(at).name();
            ProjectionExpr::new(Arc::new(Column::new(name, at)), name.clone())
        });
        let projection = ProjectionExec::try_new(columns.collect::<Vec<_>>(), input)?;
        Ok(Some(Arc::new(projection)))
    })
}

/// Whether a condition is met only where a column is equal to a literal, as SQL says it.
fn is_compared_with_literal(
    condition: &Arc<dyn PhysicalExpr>,
    column: &Arc<dyn PhysicalExpr>,
) -> bool {
    split_conjunction(condition).into_iter().any(|part| {
        let Some(compared) = part.downcast_ref::<BinaryExpr>() else {
            return false;
        };
        let sides = [compared.left(), compared.right()];
        *compared.op() == Operator::Eq
            && sides.contains(&column)
            && sides.iter().any(|side| side.is::<Literal>())
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, physical_context, rows, values};

    #[tokio::test]
    async fn what_is_cast_to_one_value_is_not_one() {
        for partitions in [1, 2] {
            let config = SessionConfig::new().with_target_partitions(partitions);
            let context = physical_context(config);
            let table = "CREATE TABLE t AS SELECT value AS i, (3 * value + 1) % 10 AS v, \
                         CAST(((3 * value + 1) % 10) AS DOUBLE) / 8 AS x, \
                         to_timestamp(1704067200 + 3600 * ((3 * value + 1) % 10)) AS h \
                         FROM range(10)";
            rows(&context, table).await;
            answers(&context, &[
                (
                    "SELECT v FROM t WHERE h::DATE = DATE '2024-01-01' ORDER BY h LIMIT 3",
                    "0 1 2",
                ),
                (
                    "SELECT v FROM t WHERE h::DATE BETWEEN DATE '2024-01-01' AND DATE '2024-01-01' ORDER BY h DESC LIMIT 2",
                    "9 8",
                ),
                ("SELECT v FROM t WHERE v / 3 = 1 ORDER BY v", "3 4 5"),
                (
                    "SELECT v FROM t WHERE x::INT = 0 ORDER BY x DESC LIMIT 3",
                    "7 6 5",
                ),
                (
                    "SELECT v, row_number() OVER (ORDER BY v), sum(v) OVER (ORDER BY v) FROM t WHERE v / 3 = 1 ORDER BY i",
                    "4 2 7 3 1 3 5 3 12",
                ),
                (
                    "SELECT first_value(i ORDER BY v), array_agg(v ORDER BY v) FROM t WHERE v / 3 = 1",
                    "4 [3, 4, 5]",
                ),
                (
                    "SELECT DISTINCT v FROM t WHERE v / 3 = 1 ORDER BY v LIMIT 2",
                    "3 4",
                ),
]).await;
            let one = "EXPLAIN SELECT v FROM t WHERE i = 3 AND v > 1 ORDER BY i, v";
            let plan = values(&context, one).await;
            assert!(!plan.contains("OrderOnlyExec"), "{plan}");
        }
    }
}
