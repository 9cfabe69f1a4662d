//! Which joins run on a ring. By themselves those that have no equality to be partitioned by, when there are several
//! workers, a fabric that rings can run over, and no side so small that all workers may have it; or all that can, or none,
//! as `SET roundel.join` has it.

use std::sync::Arc;

use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::common::{JoinSide, JoinType, NullEquality, Statistics, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use url::Url;
use uuid::Uuid;

use super::exec::{CycloJoinExec, Keys};
use crate::Fabric;
use crate::channel::{ExchangeConfig, fabric_of};
use crate::cluster::membership::Membership;
use crate::tables::memory_shard::MemoryShardExec;
use crate::tables::placement::Placement;

/// Rows that all workers may have, rather than a ring being made for them.
const FEW_ROWS: usize = 1000;

/// How joins of rows on several workers are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinChoice {
    /// As suits each.
    Auto,
    /// On a ring, wherever that can be.
    Cyclo,
    /// With both sides partitioned by the keys, where there are any.
    Repartition,
    /// With the one side sent to all workers.
    Broadcast,
}

impl JoinChoice {
    fn of(config: &ConfigOptions) -> Result<Self> {
        let set = config.extensions.get::<ExchangeConfig>();
        Ok(match set.map_or("auto", |set| set.join.as_str()) {
            "auto" => Self::Auto,
            "cyclo" => Self::Cyclo,
            "repartition" => Self::Repartition,
            "broadcast" => Self::Broadcast,
            other => {
                return plan_err!(
                    "unknown roundel.join {other:?}: use auto, cyclo, repartition or broadcast"
                );
            }
        })
    }
}

/// Puts joins on rings.
#[derive(Debug)]
pub(crate) struct CycloJoins(pub(crate) Arc<Membership>);

impl PhysicalOptimizerRule for CycloJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let choice = JoinChoice::of(config)?;
        let live: Vec<Url> = self.0.live().into_iter().map(|(url, _)| url).collect();
        let rings = fabric_of(config)? != Fabric::Grpc && live.len() > 1;
        plan.transform_up(|node| {
            let replaced = match choice {
                JoinChoice::Auto if rings => match node.downcast_ref::<NestedLoopJoinExec>() {
                    Some(join) if !few(join.left()) && !few(join.right()) => on_ring(&node, &live)?,
                    _ => None,
                },
                JoinChoice::Cyclo if rings => on_ring(&node, &live)?,
                JoinChoice::Repartition => in_mode(&node, PartitionMode::Partitioned)?,
                JoinChoice::Broadcast => in_mode(&node, PartitionMode::CollectLeft)?,
                JoinChoice::Auto | JoinChoice::Cyclo => None,
            };
            Ok(match replaced {
                Some(join) => Transformed::yes(join),
                None => Transformed::no(node),
            })
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

/// The same join by hashes, in another mode.
fn in_mode(
    node: &Arc<dyn ExecutionPlan>,
    mode: PartitionMode,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    match node.downcast_ref::<HashJoinExec>() {
        // One null among the rows that are not to be found decides for all partitions.
        Some(join) if !join.null_aware && *join.partition_mode() != mode => {
            let join = join.builder().with_partition_mode(mode);
            Ok(Some(Arc::new(join.build()?)))
        }
        _ => Ok(None),
    }
}

/// A join, whatever DataFusion does it by.
struct Join<'a> {
    inputs: [&'a Arc<dyn ExecutionPlan>; 2],
    keys: Keys,
    filter: Option<&'a JoinFilter>,
    join_type: JoinType,
    projection: Option<&'a [usize]>,
}

impl<'a> Join<'a> {
    fn of(node: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            return Some(Self {
                inputs: [join.left(), join.right()],
                keys: Keys::default(),
                filter: join.filter(),
                join_type: *join.join_type(),
                projection: join.projection().as_deref(),
            });
        }
        if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
            return Some(Self {
                inputs: [join.left(), join.right()],
                keys: Keys::default(),
                filter: None,
                join_type: JoinType::Inner,
                projection: None,
            });
        }
        let join = node.downcast_ref::<HashJoinExec>()?;
        let column = |key: &Arc<dyn PhysicalExpr>, side: &Arc<dyn ExecutionPlan>| {
            let index = key.downcast_ref::<Column>()?.index();
            Some((index, side.schema().field(index).data_type().clone()))
        };
        let mut keys = Keys {
            nulls_equal: join.null_equality() == NullEquality::NullEqualsNull,
            ..Keys::default()
        };
        for (left, right) in join.on() {
            let (left, right) = (column(left, join.left())?, column(right, join.right())?);
            if left.1 != right.1 {
                return None;
            }
            keys.columns.push([left.0, right.0]);
        }
        (!join.null_aware).then_some(Self {
            inputs: [join.left(), join.right()],
            keys,
            filter: join.filter(),
            join_type: *join.join_type(),
            projection: join.projection.as_deref(),
        })
    }
}

/// The same join on a ring, if it can be there.
fn on_ring(node: &Arc<dyn ExecutionPlan>, live: &[Url]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = Join::of(node) else {
        return Ok(None);
    };
    if matches!(join.join_type, JoinType::LeftMark | JoinType::RightMark) {
        return Ok(None);
    }
    let Some(hosts) = hosts(join.inputs, live)? else {
        return Ok(None);
    };
    let cyclo = CycloJoinExec::try_new(
        join.inputs.map(Arc::clone),
        join.keys,
        join.filter.cloned(),
        join.join_type,
        smaller(join.inputs),
        hosts,
        Uuid::new_v4(),
    )?;
    let cyclo: Arc<dyn ExecutionPlan> = Arc::new(cyclo);
    let Some(columns) = join.projection else {
        return Ok(Some(cyclo));
    };
    let schema = cyclo.schema();
    let columns = columns.iter().map(|column| {
        let name = schema.field(*column).name().clone();
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&name, *column));
        (column, name)
    });
    let columns: Vec<_> = columns.collect();
    Ok(Some(Arc::new(ProjectionExec::try_new(columns, cyclo)?)))
}

fn statistics(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Statistics>> {
    let all = StatisticsArgs::new().with_partition(None);
    StatisticsContext::new().compute(plan.as_ref(), &all).ok()
}

/// Whether a side is known to have few rows.
fn few(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let rows = statistics(plan).and_then(|known| known.num_rows.get_value().copied());
    rows.is_some_and(|rows| rows <= FEW_ROWS)
}

/// The side that has fewer bytes, as far as that is known, or else rows; else the left one.
fn smaller(inputs: [&Arc<dyn ExecutionPlan>; 2]) -> JoinSide {
    let size = |plan: &Arc<dyn ExecutionPlan>| {
        let statistics = statistics(plan);
        let bytes = statistics
            .as_ref()
            .and_then(|known| known.total_byte_size.get_value().copied());
        let rows = statistics.and_then(|known| known.num_rows.get_value().copied());
        (bytes, rows)
    };
    let [left, right] = inputs.map(size);
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
fn hosts(inputs: [&Arc<dyn ExecutionPlan>; 2], live: &[Url]) -> Result<Option<Arc<[Url]>>> {
    let mut placed: Option<Arc<[Url]>> = None;
    let mut conflict = false;
    for side in inputs {
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
