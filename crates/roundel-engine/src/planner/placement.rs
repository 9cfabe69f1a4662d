//! How a stage is placed that reads memory tables or runs on a ring.
//!
//! Three handlers of datafusion-distributed's planner: how many tasks a stage wants, what its leaf
//! becomes, and on which workers its tasks run.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedGetterExt as _,
    NetworkBoundaryExt as _, NetworkCoalesceExec, RouteTasksEvent, RouteTasksEventResponse,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};
use url::Url;

use crate::ring::CycloJoinExec;
use crate::tables::memory_shard::{MemoryShardExec, Placement};

/// A sharded table wants one task for each shard; a replicated one is content with any. A ring may want all workers.
pub(crate) fn desired_task_count(
    event: DesiredTaskCountEvent<'_>,
) -> Option<Result<DesiredTaskCountEventResponse>> {
    if let Some(join) = event.plan.downcast_ref::<CycloJoinExec>() {
        let tasks = join.desired_tasks()?;
        return Some(Ok(DesiredTaskCountEventResponse::desired(tasks)));
    }
    let leaf = event.plan.downcast_ref::<MemoryShardExec>()?;
    let tasks = match &leaf.placement {
        Placement::Replicated => 1,
        Placement::Sharded { shards, .. } => *shards,
    };
    Some(Ok(DesiredTaskCountEventResponse::desired(tasks)))
}

/// Where a stage may have one task only, its sharded tables are read by a stage of their own and
/// gathered.
pub(crate) fn scale_up_leaf(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let leaf = event.plan.downcast_ref::<MemoryShardExec>()?;
    let Placement::Sharded { shards, .. } = &leaf.placement else {
        return None;
    };
    match event.task_count {
        1 => Some(
            NetworkCoalesceExec::try_new(Arc::clone(event.plan), *shards, 1)
                .map(|gather| ScaleUpLeafNodeEventResponse::new(Arc::new(gather))),
        ),
        tasks if tasks < *shards => Some(internal_err!(
            "memory table {} has {shards} shards, but its stage may have only {tasks} tasks",
            leaf.scan.table
        )),
        _ => None,
    }
}

/// Runs task i of a stage that reads sharded tables where their shard i is.
pub(crate) fn route_tasks(event: RouteTasksEvent<'_>) -> Option<Result<RouteTasksEventResponse>> {
    route(&event).transpose()
}

fn route(event: &RouteTasksEvent<'_>) -> Result<Option<RouteTasksEventResponse>> {
    let mut placed: Option<Arc<[Url]>> = None;
    let mut ring: Option<Arc<[Url]>> = None;
    let mut conflict = false;
    event.plan.apply(|node| {
        if node.is_network_boundary() {
            // The nodes below run in another stage.
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Some(leaf) = node.downcast_ref::<MemoryShardExec>()
            && let Placement::Sharded { workers, .. } = &leaf.placement
        {
            match &placed {
                None => placed = Some(Arc::clone(workers)),
                Some(others) => conflict |= others != workers,
            }
        }
        if let Some(join) = node.downcast_ref::<CycloJoinExec>() {
            match &ring {
                None => ring = Some(Arc::clone(join.hosts())),
                Some(others) => conflict |= others != join.hosts(),
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // Tasks of a ring find each other where its plan says; shards are among its first hosts.
    if let Some(ring) = &ring {
        conflict |= placed.is_some_and(|placed| !ring.starts_with(&placed));
        placed = Some(Arc::clone(ring));
    }
    let Some(placed) = placed else {
        return Ok(None);
    };
    if conflict {
        return internal_err!(
            "one stage reads memory tables that were loaded on different workers"
        );
    }
    let config = event.task_ctx.session_config();
    let live = config.get_distributed_worker_resolver()?.get_urls()?;
    let spare = match &ring {
        Some(ring) => ring.to_vec(),
        None => live
            .into_iter()
            .cycle()
            .skip(placed.len())
            .take(event.task_count)
            .collect(),
    };
    let urls = placed
        .iter()
        .chain(spare.iter().cycle())
        .take(event.task_count)
        .cloned();
    Ok(Some(RouteTasksEventResponse::new(urls.collect())))
}
