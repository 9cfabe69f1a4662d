//! Whether workers can read the stages of a plan.
//!
//! A node without an encoding, a function that only this process has, or a node that cannot be built again from
//! its encoding would otherwise fail on a worker, after a time-out, while the query runs. Here each stage is encoded
//! and decoded as a worker would do it.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::not_impl_err;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Literal, TryCastExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{DistributedCodec, DistributedLeafExec, NetworkBoundaryExt as _};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::DeduplicatingProtoConverter;

use super::order::{REVERSED, window};
use crate::Extensions;
use crate::rules::replace_nodes;

/// Refuses a plan with a stage that a worker could not read, which has these extensions. `worker` is one that nothing was set for.
pub(super) fn check(
    plan: &Arc<dyn ExecutionPlan>,
    config: &SessionConfig,
    worker: &TaskContext,
    extensions: &Extensions,
) -> Result<()> {
    if !plan.is_network_boundary() {
        return plan
            .children()
            .into_iter()
            .try_for_each(|child| check(child, config, worker, extensions));
    }
    // The stages below travel within the one above here, and are decoded with it.
    let stage = replace_nodes(Arc::clone(plan), |node| {
        let leaf = node.downcast_ref::<DistributedLeafExec>();
        Ok(leaf.and_then(|leaf| leaf.variants().first().cloned()))
    })?;
    if stage.exists(|node| Ok(has_empty_grouping_sets(node)))? {
        return not_impl_err!("grouping sets without a column have no encoding");
    }
    if stage.exists(|node| Ok(node.is::<LazyMemoryExec>() && node.schema().fields().is_empty()))? {
        return not_impl_err!("the encoding of a series whose rows are only counted loses that");
    }
    let codec = DistributedCodec::new_combined_with_user(config);
    let bytes = physical_plan_to_bytes_with_proto_converter(
        Arc::clone(&stage),
        &codec,
        &DeduplicatingProtoConverter::default(),
    )?;
    let arrived = |worker: &TaskContext| {
        let converter = DeduplicatingProtoConverter::default();
        physical_plan_from_bytes_with_proto_converter(&bytes, worker, &codec, &converter)
    };
    let Err(why) = check_same(&stage, &arrived(worker)?) else {
        return Ok(());
    };
    // Some functions differ by settings, which travel with a plan.
    let config = SessionConfig::from(config.options().as_ref().clone());
    let told = extensions.as_on_workers(config)?;
    check_same(&stage, &arrived(&told.task_ctx())?).map_err(|_| why)
}

/// A node that arrived has the columns, partitions, functions and types of the one that was sent.
fn check_same(sent: &Arc<dyn ExecutionPlan>, arrived: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let partitions = |plan: &Arc<dyn ExecutionPlan>| plan.output_partitioning().partition_count();
    let children = (sent.children(), arrived.children());
    if sent.name() != arrived.name()
        || partitions(sent) != partitions(arrived)
        || sent.fetch() != arrived.fetch()
        || sent.schema().fields() != arrived.schema().fields()
        || children.0.len() != children.1.len()
        || parts(sent)? != parts(arrived)?
        || is_ordered(sent)? && !is_ordered(arrived)?
    {
        return not_impl_err!("{} does not arrive as it is sent", sent.name());
    }
    children
        .0
        .into_iter()
        .zip(children.1)
        .try_for_each(|(sent, arrived)| check_same(sent, arrived))
}

/// Whether the inputs of a node have the order that it needs.
fn is_ordered(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let required = node.required_input_ordering();
    for (input, required) in node.children().into_iter().zip(required) {
        if let Some(required) = required
            && !input
                .equivalence_properties()
                .ordering_satisfy_requirement(required.into_single())?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an expression may lose on its way: a function travels as its name, a constant without some types, and a window
/// without FILTER and IGNORE NULLS.
#[derive(PartialEq)]
enum Part {
    Type(DataType),
    Scalar(ScalarUDF),
    Aggregate(AggregateUDF),
    /// How often its function's text has each of [`MARKS_OF_WINDOWS`].
    Window([usize; 4]),
}

/// What no method of a window's function tells, as it is in its debug text.
const MARKS_OF_WINDOWS: [&str; 4] = [
    "filter: Some(",
    "ignore_nulls: true",
    "is_distinct: true",
    REVERSED,
];

/// The functions, constants and casts of a node's expressions.
fn parts(node: &Arc<dyn ExecutionPlan>) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    node.apply_expressions(&mut |expression| {
        expression.apply(|expression| {
            if let Some(literal) = expression.downcast_ref::<Literal>() {
                parts.push(Part::Type(literal.value().data_type()));
            } else if let Some(cast) = expression.downcast_ref::<CastExpr>() {
                parts.push(Part::Type(cast.cast_type().clone()));
            } else if let Some(cast) = expression.downcast_ref::<TryCastExpr>() {
                parts.push(Part::Type(cast.cast_type().clone()));
            } else if let Some(call) = expression.downcast_ref::<ScalarFunctionExpr>() {
                parts.push(Part::Scalar(call.fun().clone()));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let functions = aggregate.aggr_expr().iter();
        parts.extend(functions.map(|function| Part::Aggregate(function.fun().clone())));
    }
    let windows = window(node).map(|(functions, _)| functions);
    for function in windows.unwrap_or_default() {
        let text = format!("{function:?}");
        let counts = MARKS_OF_WINDOWS.map(|mark| text.matches(mark).count());
        parts.push(Part::Window(counts));
    }
    Ok(parts)
}

/// Whether a node groups by nothing, as a grouping set: of these the encoding loses how many there are.
fn has_empty_grouping_sets(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| {
            let group_by = aggregate.group_expr();
            group_by.has_grouping_set() && group_by.expr().is_empty()
        })
}
