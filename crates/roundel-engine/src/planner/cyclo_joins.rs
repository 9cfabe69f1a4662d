//! Which joins run on a ring, when there are several workers, and a fabric that rings can run over.
//!
//! By default these are the joins without an equality to be partitioned by, unless it is estimated to be cheaper to
//! send one side to all workers, and the joins that are estimated to be cheaper on a ring. With `SET roundel.join` they
//! are all joins that can run on one, or none.

mod choice;

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use datafusion_distributed::DistributedConfig;
use roundel_ring::cost::Way;
use url::Url;
use uuid::Uuid;

use crate::Fabric;
use crate::membership::Membership;
use crate::ring::{CycloJoinExec, Keys, known_rates, name_of_pinned};
use crate::rules::{Rule, replace_nodes, rule};
use crate::settings::{JoinChoice, RingSettings, Spin, fabric_of};
use crate::tables::memory_shard::{MemoryShardExec, Placement};
use choice::{Guess, Hosts, Sides, smaller, statistics};

/// Puts joins on rings.
pub(crate) fn cyclo_joins(membership: Arc<Membership>) -> Rule {
    rule("CycloJoins", move |plan, config| {
        let settings = RingSettings::of(config)?;
        let live: Vec<Url> = membership.live().into_iter().map(|(url, _)| url).collect();
        let fabric = fabric_of(config)?;
        // A ring has a task on each worker.
        let tasks_max = DistributedConfig::from_config_options(config)?.max_tasks_per_stage;
        let too_few = tasks_max > 0 && tasks_max < live.len();
        let rings = fabric != Fabric::Grpc && live.len() > 1 && !too_few;
        let hosts = known_rates(fabric).map(|rates| Hosts {
            count: live.len(),
            threads: threads(&live, config.execution.target_partitions),
            threads_alone: threads(
                live.get(..1).unwrap_or_default(),
                config.execution.target_partitions,
            ),
            rates,
        });
        let on_ring =
            |node: &Arc<dyn ExecutionPlan>| on_ring(node, &live, hosts.as_ref(), settings.spin);
        let plan_of = |ring: OnRing| ring.with(fabric, &settings)?.plan();
        replace_nodes(plan, |node| match settings.join {
            JoinChoice::Auto if rings => on_ring(node)?
                .filter(|ring| is_best(node, ring.guess.as_ref()))
                .map(plan_of)
                .transpose(),
            JoinChoice::Cyclo if rings => on_ring(node)?.map(plan_of).transpose(),
            JoinChoice::Repartition => in_mode(node, PartitionMode::Partitioned),
            JoinChoice::Broadcast => in_mode(node, PartitionMode::CollectLeft),
            JoinChoice::Auto | JoinChoice::Cyclo => Ok(None),
        })
    })
}

/// Whether a join that can be on a ring should be, by what is estimated of it.
fn is_best(node: &Arc<dyn ExecutionPlan>, guess: Option<&Guess>) -> bool {
    let chosen = guess.map(|guess| guess.ways.choice() == Way::Cyclo);
    let Some(join) = node.downcast_ref::<HashJoinExec>() else {
        // Without keys, and without a guess, the ring is what does not end badly.
        return chosen.unwrap_or(true);
    };
    // Rows that are where they belong need no exchange.
    let placed = [join.left(), join.right()]
        .into_iter()
        .any(|side| matches!(side.output_partitioning(), Partitioning::Hash(..)));
    !placed && chosen.unwrap_or(false)
}

/// Threads that a worker has to join with: those of one host share its processors.
fn threads(live: &[Url], wanted: usize) -> f64 {
    let neighbours = |url: &Url| {
        live.iter()
            .filter(|other| other.host() == url.host())
            .count()
    };
    let together = live.iter().map(neighbours).max().unwrap_or(1);
    // Hosts are taken to be like this one.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors as f64 / together as f64).min(wanted as f64)
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

/// A join on a ring.
struct OnRing {
    join: CycloJoinExec,
    guess: Option<Guess>,
    /// Columns of the join that a projection above it keeps, in its order; all of them when `None`.
    projection: Option<Vec<usize>>,
}

impl OnRing {
    /// The same join with the settings of a session. The spinning relation stays pinned where that is asked for and
    /// possible. The join runs on all workers where that is asked for, or may be worth it.
    fn with(self, fabric: Fabric, settings: &RingSettings) -> Result<Self> {
        let relation = match settings.pin {
            Some(_) => name_of_pinned(self.join.spinning(), fabric, settings.options)?,
            None => None,
        };
        let worth = self.guess.is_none_or(|guess| guess.is_worth_spreading());
        let spread = settings.join == JoinChoice::Cyclo || worth;
        Ok(Self {
            join: self.join.with_pinned(relation).with_spread(spread),
            ..self
        })
    }

    fn plan(self) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.join.schema();
        let join: Arc<dyn ExecutionPlan> = Arc::new(self.join);
        let Some(columns) = self.projection else {
            return Ok(join);
        };
        let columns = columns.iter().map(|column| {
            let name = schema.field(*column).name().clone();
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&name, *column));
            (column, name)
        });
        let columns: Vec<_> = columns.collect();
        Ok(Arc::new(ProjectionExec::try_new(columns, join)?))
    }
}

/// The same join on a ring, if it can be there.
fn on_ring(
    node: &Arc<dyn ExecutionPlan>,
    live: &[Url],
    known: Option<&Hosts>,
    spin: Spin,
) -> Result<Option<OnRing>> {
    let Some(join) = Join::of(node) else {
        return Ok(None);
    };
    if matches!(join.join_type, JoinType::LeftMark | JoinType::RightMark) {
        return Ok(None);
    }
    let Some(hosts) = hosts(join.inputs, live)? else {
        return Ok(None);
    };
    let smaller = smaller(join.inputs);
    let spins = match spin {
        Spin::Smaller => smaller,
        Spin::Larger => smaller.negate(),
    };
    let cyclo = CycloJoinExec::try_new(
        join.inputs.map(Arc::clone),
        join.keys,
        join.filter.cloned(),
        join.join_type,
        spins,
        hosts,
        Uuid::new_v4(),
    )?;
    let [left, right] = join.inputs;
    let sides = Sides {
        inputs: match spins {
            JoinSide::Right => [right, left],
            _ => [left, right],
        },
        algorithm: cyclo.algorithm(),
        tested: join.filter.is_some(),
        result: statistics(node).and_then(|known| known.num_rows.get_value().copied()),
    };
    let guess = known.and_then(|hosts| Guess::of(&sides, hosts));
    Ok(Some(OnRing {
        join: cyclo.with_ways(guess.map(|guess| guess.ways)),
        guess,
        projection: join.projection.map(<[usize]>::to_vec),
    }))
}

/// The workers of a join, by task: those that hold its tables' shards first. None where they are on different ones.
fn hosts(inputs: [&Arc<dyn ExecutionPlan>; 2], live: &[Url]) -> Result<Option<Arc<[Url]>>> {
    let mut placed: Option<Arc<[Url]>> = None;
    let mut conflict = false;
    for side in inputs {
        side.apply(|node| {
            if let Some(leaf) = node.downcast_ref::<MemoryShardExec>()
                && let Placement::Sharded { workers, .. } = &leaf.placement
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
