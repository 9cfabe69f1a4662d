//! The invariant of stages: to run a stage in n tasks and unite what they give is to run it once.
//!
//! Each task of a stage has a part of the rows of its leaves. So a node may run in several tasks if it treats
//! rows one by one, or if the rows that it must see together are in one task: those with equal keys, which a
//! shuffle brought together, or all rows of a side of a join, which a broadcast gave to every task.
//!
//! DataFusion plans for the partitions of one process. A node that it makes for one partition would have one in each task here:
//! a limit, a global aggregate, a window without a partition, a join of two sides that were not shuffled.
//! datafusion-distributed puts a boundary below each node that gathers several partitions, but nothing where
//! there was only one. Such nodes, and with them their whole stage, get one task.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::{Distribution, Partitioning};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::InterleaveExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use datafusion_distributed::{
    BroadcastExec, DesiredTaskCountEvent, DesiredTaskCountEventResponse, NetworkBoundaryExt as _,
    NetworkBroadcastExec, NetworkShuffleExec,
};

use crate::tables::memory_shard::MemoryShardExec;

/// Limits the stage of a node that needs it to one task.
pub(crate) fn desired_task_count(
    event: DesiredTaskCountEvent<'_>,
) -> Option<Result<DesiredTaskCountEventResponse>> {
    needs_one_task(event.plan).map(|_| Ok(DesiredTaskCountEventResponse::maximum(1)))
}

/// Why a node is right in one task only; `None` if any number will do. It holds for plans with boundaries, and for
/// those that have none yet.
pub(super) fn needs_one_task(node: &Arc<dyn ExecutionPlan>) -> Option<&'static str> {
    if node.is_network_boundary() || node.is::<BroadcastExec>() {
        return None;
    }
    let partitions = node.output_partitioning().partition_count();
    if node.is::<CoalescePartitionsExec>() || node.is::<SortPreservingMergeExec>() {
        return (!is_replicated(node)).then_some("gathers all rows");
    }
    if node.fetch().is_some() && partitions == 1 {
        return Some("limits the rows of all tasks");
    }
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        // Of one partition the shuffle keeps the order, which a plan may rely on; of several tasks it does not.
        let one = repartition.input().output_partitioning().partition_count() == 1;
        let keyed = matches!(repartition.partitioning(), Partitioning::Hash(..));
        let ordered = node.output_ordering().is_some();
        return (keyed && one && ordered).then_some("shuffles rows whose order counts");
    }
    if node.is::<InterleaveExec>() && !node.children().into_iter().all(is_placed) {
        return Some("unites rows that were not shuffled");
    }
    let required = node.input_distribution_requirements().into_per_child();
    for (child, required) in node.children().into_iter().zip(required) {
        match required {
            Distribution::UnspecifiedDistribution => {}
            Distribution::SinglePartition if is_replicated(child) => {}
            Distribution::SinglePartition => return Some("needs all rows"),
            _ if is_placed(child) => {}
            _ => return Some("needs all rows of a key, which were not shuffled"),
        }
    }
    None
}

/// Whether each task has all rows of a plan. With a limit each would have some of its own.
fn is_replicated(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<CoalescePartitionsExec>()
        .is_some_and(|gather| {
            let input = gather.input();
            let broadcast = input.is::<BroadcastExec>() || input.is::<NetworkBroadcastExec>();
            broadcast && gather.fetch().is_none()
        })
}

/// Whether all rows with the same keys are in the same task, as the partitioning of a plan says of partitions.
fn is_placed(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
        return matches!(repartition.partitioning(), Partitioning::Hash(..));
    }
    if plan.is_network_boundary() {
        return plan.is::<NetworkShuffleExec>();
    }
    if plan.is::<MemoryShardExec>() {
        return matches!(plan.output_partitioning(), Partitioning::Hash(..));
    }
    let children = plan.children();
    let required = plan.input_distribution_requirements().into_per_child();
    let mut inputs = children
        .into_iter()
        .zip(required)
        .filter(|(_, required)| !matches!(required, Distribution::SinglePartition))
        .peekable();
    inputs.peek().is_some() && inputs.all(|(child, _)| is_placed(child))
}
