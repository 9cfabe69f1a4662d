//! Keeps filters above aggregates that have a row of no rows.
//!
//! DataFusion puts each condition below an aggregate that names no column but its keys. A condition that names none at all,
//! such as one that no row can meet, is then below an aggregate without keys, whose row it was to take away.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{EmptyRelation, Expr, GroupingSet, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::simplify_expressions::simplify_predicates;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// DataFusion's rule that puts filters below other nodes, but not below such aggregates.
#[derive(Debug, Default)]
pub(crate) struct FilterAboveAggregate(PushDownFilter);

impl OptimizerRule for FilterAboveAggregate {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let Some(conditions) = of_lasting_row(&plan) else {
            return self.0.rewrite(plan, config);
        };
        let conditions = simplify_predicates(conditions)?;
        Ok(match conjunction(conditions.iter().cloned()) {
            Some(_) if conditions.iter().any(is_never_met) => {
                Transformed::yes(LogicalPlan::EmptyRelation(EmptyRelation {
                    produce_one_row: false,
                    schema: Arc::clone(plan.schema()),
                }))
            }
            _ => Transformed::no(plan),
        })
    }
}

/// The conditions of filters that are directly above an aggregate that has a row of no rows; none for other plans.
fn of_lasting_row(plan: &LogicalPlan) -> Option<Vec<Expr>> {
    let mut conditions = Vec::new();
    let mut node = plan;
    while let LogicalPlan::Filter(filter) = node {
        conditions.extend(split_conjunction(&filter.predicate).into_iter().cloned());
        node = &filter.input;
    }
    match node {
        LogicalPlan::Aggregate(aggregate) if !conditions.is_empty() => {
            has_set_without_keys(&aggregate.group_expr).then_some(conditions)
        }
        _ => None,
    }
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
    use datafusion::prelude::SessionContext;

    use crate::planner::logical_rules;

    /// Rows of a query over a table of two rows.
    async fn rows(sql: &str) -> usize {
        let context = SessionContext::new();
        let state = context.into_state_builder();
        let context = SessionContext::from(state.with_optimizer_rules(logical_rules()).build());
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
