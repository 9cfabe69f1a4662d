//! Checks a plan in stages against the invariant, before it runs.
//!
//! It looks at what was made, not at how: every node of every stage of several tasks, and whether the tasks' leaves
//! have each byte of each file exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion_distributed::{
    BroadcastExec, DistributedLeafExec, NetworkBoundaryExt as _, NetworkCoalesceExec,
};

use super::invariant::needs_one_task;
use crate::tables::memory_shard::{MemoryShardExec, Placement};
use crate::tables::scan::file_scan;

/// Refuses a plan whose answer may depend on the number of its tasks.
pub(super) fn check(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    check_stage(plan, 1)
}

/// Checks a node and what is below it, where its stage has so many tasks.
fn check_stage(node: &Arc<dyn ExecutionPlan>, tasks: usize) -> Result<()> {
    let mut inside = tasks;
    if let Some(boundary) = node.as_network_boundary() {
        if tasks > 1 && node.is::<NetworkCoalesceExec>() {
            return broken(
                node,
                "gives each of several tasks a part of what it gathers",
            );
        }
        inside = boundary.input_stage().task_count();
    } else if tasks > 1 {
        if let Some(why) = needs_one_task(node) {
            return broken(node, &format!("{why}, but its stage has several tasks"));
        }
        if node.children().is_empty() {
            check_leaf(node, tasks)?;
        }
    }
    let once = |below: &Arc<dyn ExecutionPlan>| {
        Ok(below.is_network_boundary() || below.is::<BroadcastExec>())
    };
    if node.is::<RecursiveQueryExec>() && node.exists(once)? {
        return broken(node, "runs a term again, whose rows can be had once");
    }
    node.children()
        .into_iter()
        .try_for_each(|child| check_stage(child, inside))
}

fn broken(node: &Arc<dyn ExecutionPlan>, why: &str) -> Result<()> {
    plan_err!("{} {why}", node.name())
}

/// The tasks of a leaf have each of its rows once.
fn check_leaf(leaf: &Arc<dyn ExecutionPlan>, tasks: usize) -> Result<()> {
    if let Some(shards) = leaf.downcast_ref::<MemoryShardExec>() {
        return match &shards.placement {
            Placement::Sharded { shards, .. } if *shards > tasks => {
                broken(leaf, "has more shards than tasks")
            }
            _ => Ok(()),
        };
    }
    let Some(spread) = leaf.downcast_ref::<DistributedLeafExec>() else {
        return broken(leaf, "gives all its rows to each of several tasks");
    };
    if let Some(why) = needs_one_task(spread.original()) {
        return broken(leaf, &format!("{why}, but its stage has several tasks"));
    }
    if spread.variants().len() != tasks {
        return broken(leaf, "has another number of parts");
    }
    let Some(whole) = bytes_of([spread.original()]) else {
        return Ok(());
    };
    match bytes_of(spread.variants()) {
        Some(parts) if parts == whole => Ok(()),
        _ => broken(leaf, "does not have each byte of its files once"),
    }
}

/// Bytes of each file that scans read, as ranges in order that do not touch; `None` of what is no scan of files, and of one
/// that reads a byte twice.
fn bytes_of<'a>(
    scans: impl IntoIterator<Item = &'a Arc<dyn ExecutionPlan>>,
) -> Option<BTreeMap<String, Vec<(u64, u64)>>> {
    let mut files: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for scan in scans {
        let scan = file_scan(scan)?;
        for file in scan.file_groups.iter().flat_map(|group| group.iter()) {
            let range = match &file.range {
                Some(range) => (
                    u64::try_from(range.start).ok()?,
                    u64::try_from(range.end).ok()?,
                ),
                None => (0, file.object_meta.size),
            };
            let path = file.object_meta.location.to_string();
            files.entry(path).or_default().push(range);
        }
    }
    for ranges in files.values_mut() {
        ranges.sort_unstable();
        let mut united: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges.drain(..).filter(|(start, end)| start < end) {
            match united.last_mut() {
                Some(last) if start < last.1 => return None,
                Some(last) if start == last.1 => last.1 = end,
                _ => united.push((start, end)),
            }
        }
        *ranges = united;
    }
    files.retain(|_, ranges| !ranges.is_empty());
    Some(files)
}
