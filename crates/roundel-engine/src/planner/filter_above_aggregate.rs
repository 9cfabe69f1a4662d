//! Keeps filters above aggregates and windows, where below them they would be of other rows.
//!
//! DataFusion puts each condition below an aggregate or a window that names no column but its keys, also one that names no
//! column at all. Two kinds of those must stay: one that no row can meet, above an aggregate that has a row even when there are
//! no input rows; and one that is another for each row, such as `random() < 0.5`.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{EmptyRelation, Expr, GroupingSet, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::simplify_expressions::simplify_predicates;

use super::plan_rule::{PlanRule, around};

/// DataFusion's rule that puts filters below other nodes, but not such conditions.
pub(super) fn filter_above_aggregate() -> PlanRule {
    around(Arc::new(PushDownFilter::new()), |inner, plan, config| {
        let stays = match &plan {
            LogicalPlan::Filter(_) => stays(&plan)?,
            _ => Stays::No,
        };
        Ok(match stays {
            Stays::No => inner.rewrite(plan, config)?,
            Stays::Yes => Transformed::no(plan),
            Stays::WithoutRows => Transformed::yes(LogicalPlan::EmptyRelation(EmptyRelation {
                produce_one_row: false,
                schema: Arc::clone(plan.schema()),
            })),
        })
    })
}

/// Whether filters stay where they are.
enum Stays {
    No,
    Yes,
    /// And no row meets them.
    WithoutRows,
}

/// Whether the filters that a plan begins with stay above an aggregate or a window.
fn stays(plan: &LogicalPlan) -> Result<Stays> {
    let (conditions, node) = conditions_above(plan);
    Ok(match node {
        LogicalPlan::Aggregate(aggregate) if has_set_without_keys(&aggregate.group_expr) => {
            let conditions = simplify_predicates(conditions)?;
            match conditions.iter().any(is_never_met) {
                true => Stays::WithoutRows,
                false => Stays::Yes,
            }
        }
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)
            if conditions.iter().any(Expr::is_volatile) =>
        {
            Stays::Yes
        }
        _ => Stays::No,
    })
}

/// The conditions of the filters that a plan begins with, and what is below them.
fn conditions_above(plan: &LogicalPlan) -> (Vec<Expr>, &LogicalPlan) {
    let mut conditions = Vec::new();
    let mut node = plan;
    while let LogicalPlan::Filter(filter) = node {
        conditions.extend(split_conjunction(&filter.predicate).into_iter().cloned());
        node = &filter.input;
    }
    (conditions, node)
}

/// Whether an aggregate by these keys has a row of all rows together.
fn has_set_without_keys(keys: &[Expr]) -> bool {
    keys.iter().all(|key| match key {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    })
}

fn is_never_met(condition: &Expr) -> bool {
    matches!(
        condition,
        Expr::Literal(
            ScalarValue::Null | ScalarValue::Boolean(None | Some(false)),
            _
        )
    )
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::logical_context;

    /// Rows of a query over a table of two rows.
    async fn rows(sql: &str) -> usize {
        let context = logical_context(SessionConfig::new());
        let table = context.sql("CREATE TABLE t(a INT, b INT) AS VALUES (1, 2), (1, 3)");
        table.await.expect("a table");
        let frame = context.sql(sql).await.expect("plans");
        frame.count().await.expect("runs")
    }

    #[tokio::test]
    async fn no_row_meets_what_none_can() {
        for sql in [
            "SELECT c FROM (SELECT count(*) c FROM t) WHERE c = 3 AND c = 0",
            "SELECT * FROM (SELECT count(*) c FROM t HAVING count(*) = 3) WHERE c = 0",
            "SELECT count(*) FROM t HAVING NULL",
            "SELECT count(*) FROM t HAVING count(*) = 2 AND 1 = 0",
            "SELECT c + 1 FROM (SELECT sum(a) c FROM t) WHERE c > 9 AND c < 3",
            "SELECT count(*) FROM t HAVING random() > 2",
            "SELECT a, c FROM (SELECT a, count(*) c FROM t GROUP BY ROLLUP (a)) WHERE c = 1 AND c = 2",
            "SELECT a, c FROM (SELECT a, count(*) c FROM t GROUP BY CUBE (a, b)) WHERE c = 1 AND c = 9",
            "SELECT c FROM (SELECT count(*) c FROM t GROUP BY GROUPING SETS ((), (a))) \
             WHERE c = 1 AND c = 9",
        ] {
            assert_eq!(rows(sql).await, 0, "{sql}");
        }
    }

    #[tokio::test]
    async fn others_are_as_before() {
        for (sql, count) in [
            ("SELECT c FROM (SELECT count(*) c FROM t) WHERE c = 2", 1),
            ("SELECT count(*) FROM t HAVING random() < 2", 1),
            ("SELECT count(*) FROM t WHERE a = 3 AND a = 4", 1),
            ("SELECT a, count(*) FROM t GROUP BY a HAVING a = 1", 1),
            // Of the groups, and not of their rows, which would be the same chance of a half for each.
            (
                "SELECT n FROM (SELECT a, count(*) n FROM (SELECT v % 10 AS a FROM generate_series(1, 1000) g(v)) \
                 GROUP BY a HAVING random() < 0.5) WHERE n <> 100",
                0,
            ),
            (
                "SELECT n FROM (SELECT count(*) OVER (PARTITION BY v % 10) n FROM generate_series(1, 1000) g(v)) \
                 WHERE random() < 0.5 AND n <> 100",
                0,
            ),
            (
                "SELECT a, count(*) FROM t GROUP BY ROLLUP (a) HAVING a = 1",
                1,
            ),
            (
                "SELECT a, count(*) c FROM t GROUP BY ROLLUP (a) HAVING count(*) = 2",
                2,
            ),
        ] {
            assert_eq!(rows(sql).await, count, "{sql}");
        }
    }
}
