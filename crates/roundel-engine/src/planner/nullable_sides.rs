//! Forgets what is the same in all rows of a side of an outer join, where that side may be NULL.
//!
//! Of the rows of `a LEFT JOIN b ON … AND b.x = 0`, some have NULL for `b.x`. DataFusion takes it for the same in all of them, as it is in
//! the side by itself, and leaves out a sort by it: when it plans, and again when a sort runs. So the rows of such a side pass
//! a node that says nothing of constants, and travels to workers.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, Statistics, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    ExecutionPlanProperties as _, PlanProperties, ReplaceChildrenOptions,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use crate::node_rule::{Rule, node_rule};

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
                Arc::new(NullableSideExec::new(Arc::clone(side)))
            } else {
                Arc::clone(side)
            }
        });
        let sides = sides.collect();
        if !changed {
            return Ok(None);
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Arc::clone(node).replace_children(sides, options).map(Some)
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

/// Passes rows on as they are, and says of them in which order they come, and not what is the same in all.
#[derive(Debug)]
struct NullableSideExec {
    side: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl NullableSideExec {
    fn new(side: Arc<dyn ExecutionPlan>) -> Self {
        let orders = side.equivalence_properties().oeq_class().clone();
        let known = EquivalenceProperties::new_with_orderings(side.schema(), orders);
        let properties = PlanProperties::clone(side.properties()).with_eq_properties(known);
        Self {
            side,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for NullableSideExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NullableSideExec")
    }
}

impl ExecutionPlan for NullableSideExec {
    fn name(&self) -> &str {
        "NullableSideExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.side]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(side), true) => Ok(Arc::new(Self::new(side))),
            _ => internal_err!("NullableSideExec has one child"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.side.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(pushed))
    }
}

/// Encodes and decodes [`NullableSideExec`], which is nothing but its place.
#[derive(Debug)]
pub(crate) struct NullableSideCodec;

impl PhysicalExtensionCodec for NullableSideCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match inputs {
            [side] if bytes.is_empty() => Ok(Arc::new(NullableSideExec::new(Arc::clone(side)))),
            _ => internal_err!("NullableSideExec has one child, and no bytes"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        match node.is::<NullableSideExec>() {
            true => Ok(()),
            false => internal_err!("no codec for {}", node.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::nullable_sides;

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
            let state = SessionStateBuilder::new()
                .with_default_features()
                .with_config(config)
                .with_physical_optimizer_rules(rules)
                .build();
            let context = SessionContext::from(state);
            for table in [
                "CREATE TABLE a AS SELECT value AS k FROM range(10)",
                "CREATE TABLE b AS SELECT value AS n, value % 2 AS m FROM range(10)",
            ] {
                let made = context.sql(table).await.expect("plans");
                made.collect().await.expect("a table");
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
                let frame = context.sql(&sql).await.expect("plans");
                let rows = frame.collect().await.expect("runs");
                let rows = pretty_format_batches(&rows).expect("text").to_string();
                assert!(rows.contains(&format!("| {expected} ")), "{sql}\n{rows}");
            }
        }
    }
}
