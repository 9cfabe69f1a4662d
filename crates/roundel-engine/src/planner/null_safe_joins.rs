//! Keeps joins in which NULL is equal to NULL apart from those in which it is not.
//!
//! DataFusion's rule that orders inner joins takes keys of several joins, and of a filter above them, and gives all the
//! uppermost join's word on NULL: `a JOIN (b JOIN c ON b.x = c.x) ON a.y IS NOT DISTINCT FROM b.y` had rows whose `x` are both NULL. It takes
//! nothing through a projection, so one stands between two joins of which one says that NULL is equal to NULL. Another
//! rule takes it away.
//!
//! The rule that makes keys of a join's condition does the same within one join: where a key says that NULL is equal to NULL,
//! a comparison by `=` stays in the condition.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, Projection};
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;

use super::plan_rule::{PlanRule, around, plan_rule};

/// This must come right before the rule that orders joins.
pub(super) fn null_safe_joins() -> PlanRule {
    plan_rule("null_safe_joins", set_apart)
}

fn set_apart(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let upper = null_equality(&plan);
    Ok(match plan {
        LogicalPlan::Join(mut join) if upper.is_some() => {
            let left = apart(&join.left, upper);
            let right = apart(&join.right, upper);
            let changed = left.is_some() || right.is_some();
            join.left = left.unwrap_or(join.left);
            join.right = right.unwrap_or(join.right);
            Transformed::new_transformed(LogicalPlan::Join(join), changed)
        }
        // Its comparisons are not met by NULL.
        LogicalPlan::Filter(mut filter) => {
            let input = apart(&filter.input, Some(NullEquality::NullEqualsNothing));
            let changed = input.is_some();
            filter.input = input.unwrap_or(filter.input);
            Transformed::new_transformed(LogicalPlan::Filter(filter), changed)
        }
        other => Transformed::no(other),
    })
}

/// DataFusion's rule that makes keys of conditions, but not such.
pub(super) fn null_safe_keys() -> PlanRule {
    let keys = Arc::new(ExtractEquijoinPredicate::new());
    around(keys, |inner, plan, config| match &plan {
        LogicalPlan::Join(join)
            if !join.on.is_empty() && join.null_equality == NullEquality::NullEqualsNull =>
        {
            Ok(Transformed::no(plan))
        }
        _ => inner.rewrite(plan, config),
    })
}

/// An inner join's rule for NULL; `None` for other nodes.
fn null_equality(plan: &LogicalPlan) -> Option<NullEquality> {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Some(join.null_equality),
        _ => None,
    }
}

/// The node below a projection of all its columns, if it is a join of the other kind.
fn apart(lower: &Arc<LogicalPlan>, upper: Option<NullEquality>) -> Option<Arc<LogicalPlan>> {
    if null_equality(lower).is_none_or(|equality| Some(equality) == upper) {
        return None;
    }
    let all = Projection::new_from_schema(Arc::clone(lower), Arc::clone(lower.schema()));
    Some(Arc::new(LogicalPlan::Projection(all)))
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{logical_context, rows};

    #[tokio::test]
    async fn null_is_equal_to_null_only_where_the_statement_says_so() {
        for hash in [true, false] {
            let config = SessionConfig::new()
                .with_target_partitions(2)
                .set_bool("datafusion.optimizer.prefer_hash_join", hash);
            let context = logical_context(config);
            let table =
                "CREATE TABLE t(x INT, y INT) AS VALUES (1, NULL), (NULL, 2), (NULL, NULL), (3, 3)";
            rows(&context, table).await;
            for (from, count) in [
                // Of `b` and `c`, two pairs: those of 1 and of 3.
                (
                    "t a JOIN (t b JOIN t c ON b.x = c.x) ON a.y IS NOT DISTINCT FROM b.y",
                    3,
                ),
                (
                    "(t b JOIN t c ON b.x = c.x) JOIN t a ON a.y IS NOT DISTINCT FROM b.y",
                    3,
                ),
                (
                    "t a JOIN (t b JOIN t c ON b.x IS NOT DISTINCT FROM c.x) ON a.y = b.y",
                    3,
                ),
                (
                    "t a JOIN t b ON a.x IS NOT DISTINCT FROM b.x WHERE a.y = b.y",
                    2,
                ),
                (
                    "t a JOIN t b ON (a.x IS NOT DISTINCT FROM b.x) AND a.y = b.y",
                    2,
                ),
                (
                    "t a JOIN t b ON a.x = b.x WHERE a.y IS NOT DISTINCT FROM b.y",
                    2,
                ),
                (
                    "t a JOIN t b ON a.x IS NOT DISTINCT FROM b.x JOIN t c ON b.y IS NOT DISTINCT FROM c.y",
                    9,
                ),
            ] {
                let sql = format!("SELECT a.x FROM {from}");
                let frame = context.sql(&sql).await.expect("plans");
                let plan = frame.clone().create_physical_plan().await.expect("plans");
                let shown = displayable(plan.as_ref()).indent(false).to_string();
                assert!(!shown.contains("NestedLoop"), "{sql}\n{shown}");
                assert_eq!(frame.count().await.expect("runs"), count, "{sql}\n{shown}");
            }
        }
    }
}
