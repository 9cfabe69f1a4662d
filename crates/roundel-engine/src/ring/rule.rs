//! Which joins run on a ring: those that have no equality to be partitioned by, when there are several workers and a
//! fabric that rings can run over.

use std::sync::Arc;

use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::common::{JoinSide, JoinType};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use url::Url;
use uuid::Uuid;

use super::exec::CycloJoinExec;
use crate::Fabric;
use crate::channel::fabric_of;
use crate::cluster::membership::Membership;
use crate::tables::memory_shard::MemoryShardExec;
use crate::tables::placement::Placement;

/// Puts joins on rings.
#[derive(Debug)]
pub(crate) struct CycloJoins(pub(crate) Arc<Membership>);

impl PhysicalOptimizerRule for CycloJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if fabric_of(config)? == Fabric::Grpc {
            return Ok(plan);
        }
        let live: Vec<Url> = self.0.live().into_iter().map(|(url, _)| url).collect();
        if live.len() < 2 {
            return Ok(plan);
        }
        plan.transform_up(|node| match node.downcast_ref::<NestedLoopJoinExec>() {
            Some(join) => match on_ring(join, &live)? {
                Some(join) => Ok(Transformed::yes(join)),
                None => Ok(Transformed::no(node)),
            },
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "CycloJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn on_ring(join: &NestedLoopJoinExec, live: &[Url]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if matches!(join.join_type(), JoinType::LeftMark | JoinType::RightMark) {
        return Ok(None);
    }
    let Some(hosts) = hosts(join, live)? else {
        return Ok(None);
    };
    let cyclo = CycloJoinExec::try_new(
        [Arc::clone(join.left()), Arc::clone(join.right())],
        join.filter().cloned(),
        *join.join_type(),
        smaller(join),
        hosts,
        Uuid::new_v4(),
    )?;
    let cyclo: Arc<dyn ExecutionPlan> = Arc::new(cyclo);
    let Some(columns) = join.projection() else {
        return Ok(Some(cyclo));
    };
    let schema = cyclo.schema();
    let columns = columns.iter().map(|column| {
        let name = schema.field(*column).name().clone();
        let column = datafusion::physical_expr::expressions::Column::new(&name, *column);
        (Arc::new(column) as _, name)
    });
    let columns: Vec<(Arc<dyn datafusion::physical_expr::PhysicalExpr>, String)> =
        columns.collect();
    Ok(Some(Arc::new(ProjectionExec::try_new(columns, cyclo)?)))
}

/// The side that has fewer bytes, as far as that is known, or else rows; else the left one.
fn smaller(join: &NestedLoopJoinExec) -> JoinSide {
    let size = |plan: &Arc<dyn ExecutionPlan>| {
        let all = StatisticsArgs::new().with_partition(None);
        let statistics = StatisticsContext::new().compute(plan.as_ref(), &all).ok();
        let bytes = statistics
            .as_ref()
            .and_then(|known| known.total_byte_size.get_value().copied());
        let rows = statistics.and_then(|known| known.num_rows.get_value().copied());
        (bytes, rows)
    };
    let (left, right) = (size(join.left()), size(join.right()));
    let right_is_smaller = match (left, right) {
        ((Some(left), _), (Some(right), _)) => right < left,
        ((_, Some(left)), (_, Some(right))) => right < left,
        _ => false,
    };
    if right_is_smaller {
        JoinSide::Right
    } else {
        JoinSide::Left
    }
}

/// The workers of a join, by task: those that hold its tables' shards first. None where they are on different ones.
fn hosts(join: &NestedLoopJoinExec, live: &[Url]) -> Result<Option<Arc<[Url]>>> {
    let (mut placed, mut conflict): (Option<Arc<[Url]>>, bool) = (None, false);
    for side in [join.left(), join.right()] {
        side.apply(|node| {
            if let Some(leaf) = node.downcast_ref::<MemoryShardExec>()
                && let Placement::Sharded { workers, .. } = leaf.placement()
            {
                match &placed {
                    None => placed = Some(Arc::clone(workers)),
                    Some(others) => conflict |= others != workers,
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if conflict {
        return Ok(None);
    }
    let mut hosts = placed.map(|placed| placed.to_vec()).unwrap_or_default();
    for url in live {
        if !hosts.contains(url) {
            hosts.push(url.clone());
        }
    }
    Ok(Some(hosts.into()))
}
