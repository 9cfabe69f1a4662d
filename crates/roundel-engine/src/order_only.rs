//! The node that forgets what is known of rows but their order, and how it travels. The planner puts it where DataFusion would be wrong.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, Statistics, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr,
};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, PlanProperties,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

/// Passes rows on as they are, and says of them in which order they come; not what is the same in all, nor what is unique.
#[derive(Debug)]
pub(crate) struct OrderOnlyExec {
    input: Arc<dyn ExecutionPlan>,
    order: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
}

impl OrderOnlyExec {
    /// Above these rows. Those of a window and of a filter are in the order of its input, those of a join in the order of one side, and
    /// those of an aggregate with grouping sets, which has NULL for some keys, in none.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let order = if has_grouping_sets(&input) {
            None
        } else if keeps_columns(&input) {
            input.children()[0].output_ordering().cloned()
        } else {
            order_of_join(&input).unwrap_or_else(|| input.output_ordering().cloned())
        };
        let mut known = EquivalenceProperties::new(input.schema());
        known.add_orderings(order.clone());
        let properties = PlanProperties::clone(input.properties()).with_eq_properties(known);
        Self {
            input,
            order,
            properties: Arc::new(properties),
        }
    }
}

/// Whether a node has the columns of its input in their places, in the order of its input.
fn keeps_columns(node: &Arc<dyn ExecutionPlan>) -> bool {
    let filter = node.downcast_ref::<FilterExec>();
    filter.is_some_and(|filter| filter.projection().is_none())
        || node.is::<BoundedWindowAggExec>()
        || node.is::<WindowAggExec>()
}

/// The order in which the rows of an inner join come, as far as it is that of the side whose order the join keeps; none for
/// other nodes.
pub(crate) fn order_of_join(node: &Arc<dyn ExecutionPlan>) -> Option<Option<LexOrdering>> {
    let (kind, projection) = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        (join.join_type(), join.projection.as_deref())
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        (join.join_type(), join.projection().as_deref())
    } else {
        let join = node.downcast_ref::<SortMergeJoinExec>()?;
        (&join.join_type(), None)
    };
    if *kind != JoinType::Inner {
        return None;
    }
    let lefts = node.children()[0].schema().fields().len();
    let kept = node.maintains_input_order();
    let is_kept = |column: &Column| {
        let at = column.index();
        let at = projection.map_or(at, |projection| projection[at]);
        kept[usize::from(at >= lefts)]
    };
    let order = node.output_ordering().into_iter().flatten();
    let order = order.take_while(|key| collect_columns(&key.expr).iter().all(is_kept));
    Some(LexOrdering::new(order.cloned()))
}

/// Whether a node gives a row for each of several sets of keys, in which the other keys are NULL.
pub(crate) fn has_grouping_sets(node: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = node.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| aggregate.group_expr().has_grouping_set())
}

impl DisplayAs for OrderOnlyExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderOnlyExec")
    }
}

impl ExecutionPlan for OrderOnlyExec {
    fn name(&self) -> &str {
        "OrderOnlyExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// No sort may be moved to where more is known of the rows. So this node says that it does not keep their order, and asks for
    /// the one that they have.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(OrderingRequirements::from)]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
            (Some(input), true) => Ok(Arc::new(Self::new(input))),
            _ => internal_err!("OrderOnlyExec has one child"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
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

/// Encodes and decodes [`OrderOnlyExec`], which is nothing but its place.
#[derive(Debug)]
pub(crate) struct OrderOnlyCodec;

impl PhysicalExtensionCodec for OrderOnlyCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match inputs {
            [input] if bytes.is_empty() => Ok(Arc::new(OrderOnlyExec::new(Arc::clone(input)))),
            _ => internal_err!("OrderOnlyExec has one child, and no bytes"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        match node.is::<OrderOnlyExec>() {
            true => Ok(()),
            false => internal_err!("no codec for {}", node.name()),
        }
    }
}
