//! [`CycloJoinExec`]: a join of all rows of all tasks of a stage, on a ring of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, internal_datafusion_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::utils::{JoinFilter, build_join_schema};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, PlanProperties,
};
use datafusion_distributed::DistributedTaskContext;
use futures::{FutureExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use roundel_ring::cost::Ways;
use roundel_ring::{Algorithm, JoinSpec, JoinType as RingJoin, Place, Window};
use tokio::sync::mpsc;
use url::Url;
use uuid::Uuid;

use super::condition::algorithm;
use super::predicate::FilterPredicate;
use super::task::{Taken, TaskOfRing, Times, Wants};
use crate::PARTITIONS_PER_TASK_MIN;

/// Batches of the result that wait to be taken, before those that join wait too.
const WAITING_MAX: usize = 16;

/// Columns of both sides that are equal, in pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Of the left side, and of the right one.
    pub columns: Vec<[usize; 2]>,
    /// Whether a null is equal to a null.
    pub nulls_equal: bool,
}

/// Joins what all tasks of its stage have of both inputs: the rows of the one side spin past those of the other.
#[derive(Debug)]
pub(crate) struct CycloJoinExec {
    inputs: [Arc<dyn ExecutionPlan>; 2],
    pub(super) keys: Keys,
    pub(super) filter: Option<JoinFilter>,
    pub(super) join_type: JoinType,
    pub(super) spins: JoinSide,
    algorithm: Algorithm,
    /// The worker of each task.
    hosts: Arc<[Url]>,
    /// What tells the ring from others.
    pub(super) ring: Uuid,
    /// What was thought of its cost when it was planned.
    ways: Option<Ways>,
    /// The name of what spins, where it stays pinned.
    pub(super) pinned: Option<Uuid>,
    /// Whether it has a task on each worker, however little there is to read; for the planner only.
    spread: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// The task's rows, once one of its partitions was asked for. Each partition that takes some gets the next ones.
    rows: Mutex<Option<Arc<Rows>>>,
}

/// Rows of the result, which all partitions take from.
struct Rows {
    batches: tokio::sync::Mutex<mpsc::Receiver<Result<RecordBatch>>>,
    /// Partitions that have not been given up yet.
    left: AtomicUsize,
    wants: Arc<Wants>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rows")
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.wants.nothing.cancel();
    }
}

/// A partition that takes rows, until it is dropped.
struct Taker(Arc<Rows>);

impl Taker {
    async fn next(&self) -> Option<Result<RecordBatch>> {
        self.0.batches.lock().await.recv().await
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wants.no_rows.store(true, Ordering::Relaxed);
            // A task that waits for room goes on; no other partition is left to hold the lock.
            if let Ok(mut batches) = self.0.batches.try_lock() {
                batches.close();
            }
        }
    }
}

impl CycloJoinExec {
    pub(crate) fn try_new(
        inputs: [Arc<dyn ExecutionPlan>; 2],
        keys: Keys,
        filter: Option<JoinFilter>,
        join_type: JoinType,
        spins: JoinSide,
        hosts: Arc<[Url]>,
        ring: Uuid,
    ) -> Result<Self> {
        if ring_join(join_type, spins).is_none() || spins == JoinSide::None || hosts.is_empty() {
            return internal_err!("a {join_type} join cannot run on a ring");
        }
        let (schema, _) = build_join_schema(&inputs[0].schema(), &inputs[1].schema(), &join_type);
        let partitions = inputs
            .iter()
            .map(|input| input.output_partitioning().partition_count());
        let partitions = partitions.max().unwrap_or(1).max(PARTITIONS_PER_TASK_MIN);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self {
            algorithm: match keys.columns.is_empty() {
                true => algorithm(filter.as_ref(), spins),
                false => keys.algorithm(spins),
            },
            inputs,
            keys,
            filter,
            join_type,
            spins,
            hosts,
            ring,
            ways: None,
            pinned: None,
            spread: false,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            rows: Mutex::default(),
        })
    }

    /// The same, for whose cost there are estimates.
    pub(crate) fn with_ways(self, ways: Option<Ways>) -> Self {
        Self { ways, ..self }
    }

    /// The same, whose spinning side stays pinned under this name.
    pub(crate) fn with_pinned(self, pinned: Option<Uuid>) -> Self {
        Self { pinned, ..self }
    }

    /// The same, with a task on each worker.
    pub(crate) fn with_spread(self, spread: bool) -> Self {
        Self { spread, ..self }
    }

    /// How many tasks it wants, if not as many as its inputs.
    pub(crate) fn desired_tasks(&self) -> Option<usize> {
        self.spread.then_some(self.hosts.len())
    }

    pub(crate) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The input that spins.
    pub(crate) fn spinning(&self) -> &Arc<dyn ExecutionPlan> {
        self.sides()[0]
    }

    /// The worker of each task: there may be more of them than tasks.
    pub(crate) fn hosts(&self) -> &Arc<[Url]> {
        &self.hosts
    }

    /// The sides, that which spins first.
    fn sides(&self) -> [&Arc<dyn ExecutionPlan>; 2] {
        let [left, right] = &self.inputs;
        match self.spins {
            JoinSide::Right => [right, left],
            _ => [left, right],
        }
    }

    fn spec(&self) -> Result<JoinSpec> {
        let [spinning, stationary] = self.sides();
        let join_type = ring_join(self.join_type, self.spins);
        let filter = self.filter.clone();
        Ok(JoinSpec {
            join_type: join_type
                .ok_or_else(|| internal_datafusion_err!("no join of a ring: {}", self.join_type))?,
            algorithm: self.algorithm.clone(),
            predicate: filter.map(|filter| Arc::new(FilterPredicate::new(filter, self.spins)) as _),
            spinning: spinning.schema(),
            stationary: stationary.schema(),
        })
    }

    /// Where the columns of the result are in what the ring makes: spinning ones first.
    fn order(&self) -> Option<Vec<usize>> {
        let has_pairs = ring_join(self.join_type, self.spins)?.has_pairs();
        let [spinning, stationary] = self.sides().map(|side| side.schema().fields().len());
        (self.spins == JoinSide::Right && has_pairs).then(|| {
            (spinning..spinning + stationary)
                .chain(0..spinning)
                .collect()
        })
    }

    /// Starts the join of the whole task, when the first of its partitions is asked for.
    fn start(&self, context: &Arc<TaskContext>) -> Result<Arc<Rows>> {
        let task = DistributedTaskContext::from_ctx(context);
        let (batches, taken) = mpsc::channel(WAITING_MAX);
        let wants = Arc::<Wants>::default();
        let work = TaskOfRing {
            spec: self.spec()?,
            inputs: self.sides().map(Arc::clone),
            place: Place {
                number: task.task_index,
                hosts: task.task_count,
            },
            urls: (0..task.task_count)
                .map(|place| self.hosts[place % self.hosts.len()].clone())
                .collect(),
            ring: self.ring,
            pinned: self.pinned,
            over: wants.nothing.clone(),
            context: Arc::clone(context),
            output: Arc::new(Taken {
                batches: batches.clone(),
                wants: Arc::clone(&wants),
                schema: self.schema(),
                order: self.order(),
            }),
            times: Times::new(&self.metrics),
        };
        let over = wants.nothing.clone();
        // The join goes on when nobody wants rows of this task any more, since others of the ring may still want
        // theirs. It ends when the query is over.
        tokio::spawn(async move {
            let run = std::panic::AssertUnwindSafe(work.run()).catch_unwind();
            let Some(run) = over.run_until_cancelled(run).await else {
                return;
            };
            let run = run.unwrap_or_else(|_| internal_err!("the task of a ring panicked"));
            if let Err(error) = run {
                let _ = batches.send(Err(error)).await;
            }
        });
        Ok(Arc::new(Rows {
            batches: tokio::sync::Mutex::new(taken),
            left: AtomicUsize::new(self.properties.output_partitioning().partition_count()),
            wants,
        }))
    }
}

impl Keys {
    fn algorithm(&self, spins: JoinSide) -> Algorithm {
        let of_side = |side: JoinSide| {
            let columns = self.columns.iter();
            columns
                .map(|[left, right]| {
                    if side == JoinSide::Right {
                        *right
                    } else {
                        *left
                    }
                })
                .collect()
        };
        Algorithm::Hash {
            spinning: of_side(spins),
            stationary: of_side(spins.negate()),
            nulls_equal: self.nulls_equal,
        }
    }
}

/// Whether a plan has a join on a ring.
pub(crate) fn is_on_ring(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<CycloJoinExec>()))
}

/// The same join as the ring names it.
fn ring_join(join_type: JoinType, spins: JoinSide) -> Option<RingJoin> {
    let with_left_spinning = match join_type {
        JoinType::Inner => RingJoin::Inner,
        JoinType::Left => RingJoin::Spinning,
        JoinType::Right => RingJoin::Stationary,
        JoinType::Full => RingJoin::Full,
        JoinType::LeftSemi => RingJoin::SpinningSemi,
        JoinType::LeftAnti => RingJoin::SpinningAnti,
        JoinType::RightSemi => RingJoin::StationarySemi,
        JoinType::RightAnti => RingJoin::StationaryAnti,
        JoinType::LeftMark | JoinType::RightMark => return None,
    };
    Some(match spins {
        JoinSide::Right => with_left_spinning.swapped(),
        _ => with_left_spinning,
    })
}

impl DisplayAs for CycloJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.spins == JoinSide::Right {
            "right"
        } else {
            "left"
        };
        write!(
            f,
            "CycloJoinExec: join_type={}, spins={side}, ",
            self.join_type
        )?;
        match &self.algorithm {
            Algorithm::Hash { .. } => {
                f.write_str("hash on ")?;
                let name = |side: usize, column: usize| {
                    let schema = self.inputs[side].schema();
                    format!("{}@{column}", schema.field(column).name())
                };
                let keys = self.keys.columns.iter();
                let keys =
                    keys.map(|[left, right]| format!("({}, {})", name(0, *left), name(1, *right)));
                f.write_str(&keys.collect::<Vec<_>>().join(", "))?;
            }
            Algorithm::Merge { window, .. } => match window {
                Window::Whole { low, high } | Window::WholeSum { low, high, .. } => {
                    write!(f, "sort-merge {low:?} to {high:?}")?;
                }
                Window::Real { low, high } | Window::RealSum { low, high, .. } => {
                    write!(f, "sort-merge {low:?} to {high:?}")?;
                }
            },
            Algorithm::NestedLoops => f.write_str("nested loops")?,
        }
        if let Some(filter) = &self.filter {
            write!(f, ", filter={}", filter.expression())?;
        }
        if self.pinned.is_some() {
            f.write_str(", pinned")?;
        }
        match &self.ways {
            Some(ways) => write!(f, ", estimated: {ways}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for CycloJoinExec {
    fn name(&self) -> &str {
        "CycloJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // All partitions of a task are taken together.
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match &self.filter {
            Some(filter) => f(filter.expression()),
            None => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok(inputs) = <[_; 2]>::try_from(children) else {
            return internal_err!("a CycloJoinExec has two inputs");
        };
        let same = Self::try_new(
            inputs,
            self.keys.clone(),
            self.filter.clone(),
            self.join_type,
            self.spins,
            Arc::clone(&self.hosts),
            self.ring,
        )?;
        let same = same.with_ways(self.ways).with_pinned(self.pinned);
        Ok(Arc::new(same.with_spread(self.spread)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = {
            let mut rows = self.rows.lock();
            match &*rows {
                Some(rows) => Arc::clone(rows),
                None => Arc::clone(rows.insert(self.start(&context)?)),
            }
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = futures::stream::unfold(Taker(rows), |taker| async move {
            let batch = taker.next().await?;
            Some((batch, taker))
        });
        let batches = batches.inspect_ok(move |batch| metrics.record_output(batch.num_rows()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
