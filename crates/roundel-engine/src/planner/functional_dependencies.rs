//! Forgets which columns determine which others, where DataFusion is wrong about it.
//!
//! Of `GROUP BY a.k, b.v` over a join, where `k` is unique in `a`, DataFusion says that `k` is unique in what comes out, and that it
//! determines `v`; of `unnest`, that what was unique still is. It then leaves out `DISTINCT` and keys of `GROUP BY` and `ORDER BY`, or
//! adds keys to `GROUP BY`. So nothing is said there of what determines what, neither to the planner of SQL nor to the rules that ask.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::common::{FunctionalDependence, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::sql::sqlparser::ast::TableFactor;

use super::plan_rule::{PlanRule, rule};

/// DataFusion's rules that ask what determines what.
pub(super) const ASKS: [&str; 4] = [
    "eliminate_duplicated_expr",
    "eliminate_join",
    "optimize_projections",
    "replace_distinct_aggregate",
];

/// The rule, which is told nothing wrong if it asks. It gets the whole plan, in the order that it has.
pub(super) fn truly_determined(inner: PlanRule) -> PlanRule {
    if !ASKS.contains(&inner.name()) {
        return inner;
    }
    let name = inner.name().to_owned();
    rule(&name, None, move |plan, config| {
        let plan = forget(plan)?.data;
        let rewrite = |plan| inner.rewrite(plan, config);
        match inner.apply_order() {
            Some(ApplyOrder::TopDown) => plan.transform_down_with_subqueries(rewrite),
            Some(ApplyOrder::BottomUp) => plan.transform_up_with_subqueries(rewrite),
            None => rewrite(plan),
        }
    })
}

/// Plans what stands in FROM as DataFusion does, but says nothing wrong of it.
#[derive(Debug)]
pub(crate) struct TrulyDeterminedRelations;

thread_local! {
    /// Whether the relation that comes next is one that is planned already: the same planner is asked again.
    static ASKED_AGAIN: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for TrulyDeterminedRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if ASKED_AGAIN.replace(false) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        ASKED_AGAIN.set(true);
        let plan = context.plan(relation);
        ASKED_AGAIN.set(false);
        let plan = forget(plan?)?.data;
        let plan = match has_declared_key(&plan)? {
            true => plan,
            false => without(plan)?,
        };
        let planned = PlannedRelation::new(plan, None);
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

/// The plan without what is wrong, or may follow from it; transformed if there was any in its outermost node.
fn forget(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut follows = false;
    let plan = plan.map_subqueries(forget)?.data;
    let plan = plan.map_children(|child| {
        let child = forget(child)?;
        follows |= child.transformed;
        Ok(child)
    })?;
    let plan = match has_key_of_another_name(&plan.data)? {
        true => plan.map_data(|plan| {
            plan.map_children(|child| without(child).map(Transformed::yes))
                .data()
        })?,
        false => plan,
    };
    match follows || is_wrong(&plan.data) {
        true => without(plan.data).map(Transformed::yes),
        false => Ok(Transformed::no(plan.data)),
    }
}

/// Whether a table below has a primary key. Statements may select what it determines, which SQL then adds to the keys of GROUP BY.
fn has_declared_key(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::TableScan(table) => {
                !table.projected_schema.functional_dependencies().is_empty()
            }
            _ => false,
        })
    })
}

/// Whether a key would be taken for a column, as a cast has the name of what it casts. What SQL has added to the keys has to be left out
/// again, so tables with primary keys are spared.
fn has_key_of_another_name(plan: &LogicalPlan) -> Result<bool> {
    let (keys, input): (Vec<&Expr>, _) = match plan {
        LogicalPlan::Aggregate(node) => (node.group_expr.iter().collect(), &node.input),
        LogicalPlan::Sort(node) => (node.expr.iter().map(|key| &key.expr).collect(), &node.input),
        _ => return Ok(false),
    };
    if input.schema().functional_dependencies().is_empty() {
        return Ok(false);
    }
    let names = input.schema().field_names();
    let is_named = |key: &&Expr| {
        !matches!(key, Expr::Column(_)) && names.contains(&key.schema_name().to_string())
    };
    Ok(keys.iter().any(is_named) && !has_declared_key(input)?)
}

/// Whether a node says more than is true of its rows.
fn is_wrong(plan: &LogicalPlan) -> bool {
    let dependencies = plan.schema().functional_dependencies();
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let mut dependencies = dependencies.iter();
            dependencies.any(|dependence| !determines_all_keys(aggregate, dependence))
        }
        LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) => !dependencies.is_empty(),
        _ => false,
    }
}

/// Whether it follows from the input that some keys of an aggregate determine all of them, which then are a group.
fn determines_all_keys(aggregate: &Aggregate, dependence: &FunctionalDependence) -> bool {
    let input = aggregate.input.schema();
    let keys: Vec<_> = aggregate
        .group_expr
        .iter()
        .map(|key| match key {
            // A cast has the name of what it casts.
            Expr::Column(column) => input.maybe_index_of_column(column),
            _ => None,
        })
        .collect();
    if (0..keys.len()).all(|key| dependence.source_indices.contains(&key)) {
        return true;
    }
    let sources = dependence.source_indices.iter();
    let mut determined: HashSet<_> = sources.filter_map(|&key| *keys.get(key)?).collect();
    let known = |determined: &HashSet<_>, one: &&FunctionalDependence| {
        let mut sources = one.source_indices.iter();
        sources.all(|source| determined.contains(source))
    };
    let dependencies = input.functional_dependencies();
    for _ in 0..dependencies.len() {
        let of_known = dependencies.iter().filter(|one| known(&determined, one));
        let targets: Vec<_> = of_known
            .flat_map(|one| one.target_indices.clone())
            .collect();
        determined.extend(targets);
    }
    let is_determined = |key: &Option<usize>| key.is_some_and(|key| determined.contains(&key));
    keys.iter().all(is_determined)
}

/// The node, which says nothing of what determines what.
fn without(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let schema = match &mut plan {
        LogicalPlan::Aggregate(node) => &mut node.schema,
        LogicalPlan::Distinct(Distinct::On(node)) => &mut node.schema,
        LogicalPlan::Join(node) => &mut node.schema,
        LogicalPlan::Projection(node) => &mut node.schema,
        LogicalPlan::SubqueryAlias(node) => &mut node.schema,
        LogicalPlan::TableScan(node) => &mut node.projected_schema,
        LogicalPlan::Union(node) => &mut node.schema,
        LogicalPlan::Unnest(node) => &mut node.schema,
        LogicalPlan::Window(node) => &mut node.schema,
        // The others say what those below say.
        other => {
            let plan = std::mem::take(other);
            let plan = plan.map_children(|child| without(child).map(Transformed::yes));
            return Ok(plan?.data);
        }
    };
    let nothing = FunctionalDependencies::empty();
    *schema = Arc::new((**schema).clone().with_functional_dependencies(nothing)?);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use crate::planner::tests::{answers, logical_context, rows, values};

    #[tokio::test]
    async fn keys_of_a_joined_table_determine_no_others() {
        let context = logical_context(SessionConfig::new());
        let table = "CREATE TABLE t AS SELECT value / 2 AS k, value AS v FROM range(4)";
        rows(&context, table).await;
        let grouped = "(SELECT a.k, b.v, count(*) AS n FROM (SELECT k FROM t GROUP BY k) AS a \
                       JOIN t AS b ON a.k <= b.v GROUP BY a.k, b.v)";
        for (sql, right) in [
            (
                "SELECT * FROM {} ORDER BY k, v DESC",
                "0 3 1 0 2 1 0 1 1 0 0 1 1 3 1 1 2 1 1 1 1",
            ),
            ("SELECT DISTINCT k FROM {} ORDER BY k", "0 1"),
            ("SELECT count(*) FROM (SELECT k FROM {} GROUP BY k, v)", "7"),
            ("SELECT count(*) FROM (SELECT DISTINCT k, v FROM {})", "7"),
            (
                "SELECT k, count(*), sum(v) FROM {} GROUP BY k ORDER BY k",
                "0 4 6 1 3 6",
            ),
            (
                "WITH w AS {} SELECT k, count(*) FROM w GROUP BY k ORDER BY k",
                "0 4 1 3",
            ),
            (
                "SELECT count(*) FROM t LEFT JOIN {} AS g ON g.k = t.k",
                "14",
            ),
            (
                "SELECT DISTINCT k FROM (SELECT k, unnest(l) FROM (SELECT k, array_agg(v) AS l FROM t GROUP BY k)) ORDER BY k",
                "0 1",
            ),
            (
                "WITH RECURSIVE r AS (SELECT k FROM t GROUP BY k UNION ALL SELECT k - 1 FROM r WHERE k > 0) \
                 SELECT DISTINCT k FROM r ORDER BY k",
                "0 1",
            ),
            (
                "SELECT CAST(k AS TEXT) AS s, count(*) FROM (SELECT k / 2.0 AS k, max(v) AS v FROM t GROUP BY k / 2.0) \
                 GROUP BY CAST(k AS TEXT) ORDER BY s",
                "0.0 1 0.5 1",
            ),
            (
                "SELECT CAST(k AS INT) AS i, count(*) FROM (SELECT v / 4.0 AS k, max(v) AS v FROM t GROUP BY v / 4.0) \
                 GROUP BY CAST(k AS INT)",
                "0 4",
            ),
            (
                "SELECT i, v FROM (SELECT CAST(k AS INT) AS i, v FROM (SELECT v / 4.0 AS k, max(3 - v) AS v FROM t GROUP BY v / 4.0) \
                 GROUP BY CAST(k AS INT), v) ORDER BY i, v",
                "0 0 0 1 0 2 0 3",
            ),
            (
                "SELECT i, count(*) FROM (SELECT CAST(k AS INT) AS i, v FROM (SELECT v / 4.0 AS k, max(v) AS v FROM t GROUP BY v / 4.0) \
                 GROUP BY CAST(k AS INT), v) GROUP BY i",
                "0 4",
            ),
            (
                "SELECT v FROM (SELECT v / 4.0 AS k, max(3 - v) AS v FROM t GROUP BY v / 4.0) ORDER BY CAST(k AS INT), v",
                "0 1 2 3",
            ),
        ] {
            let sql = sql.replace("{}", grouped);
            assert_eq!(values(&context, &sql).await, right, "{sql}");
        }
        let table = "CREATE TABLE p(k INT PRIMARY KEY, v INT) AS VALUES (1, 2), (2, 3)";
        rows(&context, table).await;
        answers(
            &context,
            &[
                ("SELECT k, v FROM p GROUP BY k ORDER BY k", "1 2 2 3"),
                (
                    "SELECT CAST(k / k AS TEXT), sum(v) FROM p GROUP BY 1",
                    "1 5",
                ),
                (
                    "SELECT CAST(k AS BOOLEAN), sum(v) FROM p GROUP BY CAST(k AS BOOLEAN)",
                    "true 5",
                ),
            ],
        )
        .await;
        let sql = format!("SELECT k, v + 1 FROM {grouped} GROUP BY k");
        let refused = context.sql(&sql).await.expect_err("v is of several rows");
        assert!(refused.to_string().contains("GROUP BY"), "{refused}");
    }
}
