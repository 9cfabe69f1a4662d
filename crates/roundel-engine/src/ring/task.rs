//! What a task of a ring does: takes its rows of both inputs, or the place that one of them is pinned to, finds its
//! neighbours, and joins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, Time};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, displayable};
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use roundel_ring::join::set_up_spinning;
use roundel_ring::{
    Cyclo, Demand, JoinSpec, Output, Phases, Pinned, Place, QueryId, RingError, TokioThreads,
};
use roundel_verbs::TokioContext;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use super::meeting::{RingWorker, ring_error};
use super::pinnable::name_on;
use super::pins::made;
use crate::EngineError;
use crate::settings::{RingSettings, fabric_of};

/// Longest wait for all neighbours of a place that a relation is pinned to: their tasks come as soon as this one, unless
/// the query is over by then.
const MEETING_MAX: Duration = Duration::from_secs(30);

/// What is wanted of a task.
#[derive(Default)]
pub(super) struct Wants {
    /// All of its partitions have been given up.
    pub no_rows: AtomicBool,
    /// So has its plan: the query is over.
    pub nothing: CancellationToken,
}

/// Where the time goes, in EXPLAIN ANALYZE.
#[derive(Clone)]
pub(super) struct Times {
    set_up: Time,
    join: Time,
    synchronisation: Time,
}

impl Times {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let time = |name: &'static str| MetricBuilder::new(metrics).subset_time(name, 0);
        Self {
            set_up: time("set_up_time"),
            join: time("join_time"),
            synchronisation: time("synchronisation_time"),
        }
    }

    fn add(&self, phases: &Phases) {
        self.set_up.add_duration(phases.set_up);
        self.join.add_duration(phases.join);
        self.synchronisation.add_duration(phases.synchronisation);
    }
}

/// What a task of a ring does.
#[derive(Clone)]
pub(super) struct TaskOfRing {
    pub spec: JoinSpec,
    /// The side that spins first.
    pub inputs: [Arc<dyn ExecutionPlan>; 2],
    pub place: Place,
    pub urls: Vec<Url>,
    pub ring: Uuid,
    /// The name of what spins, where it stays pinned.
    pub pinned: Option<Uuid>,
    /// Ends when the query does.
    pub over: CancellationToken,
    pub context: Arc<TaskContext>,
    pub output: Arc<Taken>,
    pub times: Times,
}

impl TaskOfRing {
    /// Does the task's part of the join, to the end.
    pub(super) async fn run(self) -> Result<()> {
        let cyclo = Cyclo {
            spec: self.spec.clone(),
            threads: self.threads(),
            context: Arc::new(TokioContext::current()),
            output: self.output.clone(),
        };
        let memory = Mutex::new(self.memory("CycloJoin"));
        let [spinning, stationary] = &self.inputs;
        let stationary = collect(stationary, &self.context, &memory);
        let phases = if let (Some(relation), true) = (self.pinned, self.place.hosts > 1) {
            let ring = self.ring_of(relation);
            let (ring, stationary) = futures::try_join!(ring, stationary)?;
            let query = QueryId(self.ring.as_u128());
            let joined = ring.pinned.join(query, &cyclo, stationary).await;
            if let Err(RingError::Lost { .. } | RingError::Unpinned) = joined {
                // A query that starts again needs another one at once.
                let worker = self.worker()?;
                let (relation, ring) = (ring.relation, ring.id);
                worker.unpin(relation, ring, self.place, &self.urls).await;
            }
            joined
        } else {
            let spinning = collect(spinning, &self.context, &memory);
            let (spinning, stationary) = futures::try_join!(spinning, stationary)?;
            match self.place.hosts {
                1 => cyclo.run_alone(spinning, stationary).await,
                _ => {
                    let config = self.context.session_config().options();
                    let options = RingSettings::of(config)?.options;
                    let fabric = fabric_of(config)?;
                    let worker = self.worker()?;
                    let ring = worker.join(fabric, self.ring, self.place, &self.urls, options);
                    cyclo.run(ring.await?, spinning, stationary).await
                }
            }
        };
        let phases = phases.map_err(|error| failed(error, &self.urls))?;
        self.times.add(&phases);
        Ok(())
    }

    fn threads(&self) -> Arc<TokioThreads> {
        Arc::new(TokioThreads(
            self.context.session_config().target_partitions(),
        ))
    }

    fn memory(&self, consumer: &str) -> MemoryReservation {
        MemoryConsumer::new(format!("{consumer}[{}]", self.place.number))
            .register(self.context.memory_pool())
    }

    fn worker(&self) -> Result<Arc<RingWorker>> {
        let worker = self.context.session_config().get_extension::<RingWorker>();
        worker.ok_or_else(|| internal_datafusion_err!("a ring outside of the workers"))
    }

    /// This task's place of the ring that a relation is pinned to, which is made if it is not there.
    async fn ring_of(&self, relation: Uuid) -> Result<PinnedPlace> {
        let worker = self.worker()?;
        let settings = RingSettings::of(self.context.session_config().options())?;
        let relation = name_on(relation, &self.urls);
        let keep = settings.pin.unwrap_or_default();
        let id = worker
            .ring_of(relation, self.ring, keep, &self.urls)
            .await?;
        let rows_of = displayable(self.inputs[0].as_ref())
            .indent(true)
            .to_string();
        let make = || made(self.clone().pin(Arc::clone(&worker), relation, id));
        let place = worker.pins.at(id, self.place.number, rows_of, make)?;
        Ok(PinnedPlace {
            relation,
            id,
            pinned: place.await?,
        })
    }

    /// Makes a place of a ring that a relation is pinned to, and has it kept.
    async fn pin(
        self,
        worker: Arc<RingWorker>,
        relation: Uuid,
        ring: Uuid,
    ) -> Result<Arc<Pinned>, EngineError> {
        let memory = Mutex::new(self.memory("Pinned"));
        let pinned = match self.pinned_at(&worker, ring, &memory).await {
            Ok(pinned) => Arc::new(pinned),
            Err(error) => {
                worker.unpin(relation, ring, self.place, &self.urls).await;
                return Err(error);
            }
        };
        let memory = memory.into_inner();
        memory.resize(pinned.bytes());
        let keeps = worker
            .pins
            .clone()
            .keep(relation, ring, Arc::clone(&pinned), memory);
        tokio::spawn(keeps);
        Ok(pinned)
    }

    async fn pinned_at(
        &self,
        worker: &RingWorker,
        ring: Uuid,
        memory: &Mutex<MemoryReservation>,
    ) -> Result<Pinned, EngineError> {
        let config = self.context.session_config().options();
        let (fabric, options) = (fabric_of(config)?, RingSettings::of(config)?.options);
        let meets = worker.join(fabric, ring, self.place, &self.urls, options);
        let meets = async {
            let met = tokio::time::timeout(MEETING_MAX, meets).await;
            met.map_err(|_| given_up("a neighbour did not come"))?
        };
        // Rows that are not loaded to their end are not the relation.
        let loads = collect(&self.inputs[0], &self.context, memory);
        let loads = async {
            let loaded = self.over.run_until_cancelled(loads).await;
            loaded
                .ok_or_else(|| given_up("the query that began it is over"))?
                .map_err(EngineError::from)
        };
        let (ring, rows) = futures::try_join!(meets, loads)?;
        let threads = self.threads();
        let pins = async {
            let rows = set_up_spinning(&self.spec, rows, 0, &*threads).await?;
            let context = Arc::new(TokioContext::current());
            let schema = Arc::clone(&self.spec.spinning);
            Pinned::pin(ring, schema, rows, &*threads, context).await
        };
        pins.await.map_err(|error| ring_error(error, &self.urls))
    }
}

/// A place of a ring that a relation is pinned to: the name of the relation on its hosts, and that of the ring.
struct PinnedPlace {
    relation: Uuid,
    id: Uuid,
    pinned: Arc<Pinned>,
}

/// A query that waits for a place that is not made starts again.
fn given_up(why: &str) -> EngineError {
    EngineError::LinkBroken(format!("a relation was not pinned: {why}"))
}

fn failed(error: RingError, urls: &[Url]) -> DataFusionError {
    match error {
        RingError::Arrow(error) => error.into(),
        error => DataFusionError::from(ring_error(error, urls)),
    }
}

/// All rows of all partitions of an input.
async fn collect(
    input: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    memory: &Mutex<MemoryReservation>,
) -> Result<Vec<RecordBatch>> {
    let partitions = 0..input.output_partitioning().partition_count();
    let collected = partitions.map(|partition| {
        let batches = input.execute(partition, Arc::clone(context));
        async move {
            let kept = batches?.map(|batch| {
                let batch = batch?;
                memory.lock().try_grow(batch.get_array_memory_size())?;
                Ok::<_, DataFusionError>(batch)
            });
            kept.try_collect::<Vec<_>>().await
        }
    });
    let collected = futures::future::try_join_all(collected).await?;
    Ok(collected.into_iter().flatten().collect())
}

/// Hands rows on to the partitions.
pub(super) struct Taken {
    pub batches: mpsc::Sender<Result<RecordBatch>>,
    pub wants: Arc<Wants>,
    pub schema: SchemaRef,
    pub order: Option<Vec<usize>>,
}

impl Output for Taken {
    fn take(&self, rows: RecordBatch) -> Result<(), RingError> {
        let rows = match &self.order {
            Some(order) => rows.project(order)?,
            None => rows,
        };
        // Columns of the plan have names of their own, and may be said to have no nulls.
        let rows = rows.with_schema(Arc::clone(&self.schema))?;
        // Nobody may want them.
        let _ = self.batches.blocking_send(Ok(rows));
        Ok(())
    }

    fn demand(&self) -> Demand {
        if self.wants.nothing.is_cancelled() {
            Demand::Nothing
        } else if self.wants.no_rows.load(Ordering::Relaxed) {
            Demand::NoRows
        } else {
            Demand::Rows
        }
    }
}
