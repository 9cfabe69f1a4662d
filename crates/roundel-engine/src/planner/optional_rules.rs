//! Leaves a plan as it is where a rule of DataFusion fails that would only make it faster.
//!
//! Some of these rules have errors that few plans show: a statement that could be answered would be refused.

use std::sync::Arc;

use datafusion::error::DataFusionError;

use crate::rules::{Rule, around};

/// DataFusion's physical rules without which a plan is as right.
const OPTIONAL: [&str; 14] = [
    "aggregate_statistics",
    "LimitedDistinctAggregation",
    "FilterPushdown",
    "FilterPushdown(Post)",
    "WindowTopN",
    "CombinePartialFinalAggregate",
    "OptimizeAggregateOrder",
    "ProjectionPushdown",
    "LimitAggregation",
    "LimitPushPastWindows",
    "HashJoinBuffering",
    "LimitPushdown",
    "TopKRepartition",
    "PushdownSort",
];

/// The rule, which may fail if a plan is as right without it.
pub(super) fn optional(inner: Rule) -> Rule {
    if !OPTIONAL.contains(&inner.name()) {
        return inner;
    }
    around(inner, |inner, plan, config| {
        match inner.optimize(Arc::clone(&plan), config) {
            Err(error) if matches!(error.find_root(), DataFusionError::Internal(_)) => {
                let name = inner.name();
                tracing::debug!("the rule {name} fails, and is left out: {error}");
                Ok(plan)
            }
            optimized => optimized,
        }
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::SessionConfig;

    use super::{OPTIONAL, optional};
    use crate::planner::tests::{context, rows};

    #[test]
    fn datafusion_has_all_of_these_rules() {
        let rules = PhysicalOptimizer::new().rules;
        for name in OPTIONAL {
            assert!(rules.iter().any(|rule| rule.name() == name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_statement_is_answered_where_a_rule_fails() {
        let rules = PhysicalOptimizer::new().rules.into_iter();
        let context = context(SessionConfig::new(), rules.map(optional).collect());
        let no_row = "(SELECT value AS x FROM range(9) WHERE false)";
        let sql = format!(
            "SELECT sum(c2) FILTER (WHERE c1 % 2 = 0) AS s, count(*) AS n \
             FROM (SELECT count(DISTINCT x) AS c1, max(x) AS c2 FROM {no_row})"
        );
        let rows = rows(&context, &sql).await;
        let rows = pretty_format_batches(&rows).expect("text").to_string();
        assert!(rows.contains("|   | 1 |"), "{rows}");
    }
}
