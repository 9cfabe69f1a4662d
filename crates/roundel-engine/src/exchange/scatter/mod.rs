//! The producer's side of a shuffle: a task's rows are hashed and scattered over the tasks of the next
//! stage, straight into messages.
//!
//! The consumers come one by one, each as soon as it is planned: one may never read, and rows go to all
//! of them. When all have come, and one of them reads, one task for each partition of the input reads
//! it and scatters; sooner would fill memory with rows that nobody is ready for. One that has left by
//! then counts as come. When all those tasks have ended, each consumer is told that no more comes.

mod by_hash;
mod plan;

use super::client::exchange_error;
use super::node::ExchangeNode;
use super::protocol::Failed;
use super::server::{failed, failed_with};
use by_hash::ByHash;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion_distributed::DistributedExt as _;
use futures::TryStreamExt as _;
use parking_lot::Mutex;
use plan::{ShuffleExec, replace_repartitioning};
use roundel_exchange::operator::Group;
use roundel_exchange::{Scatter, Shuffle};
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::{oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

/// A task's shuffle, which lives in the task's session.
#[derive(Default)]
pub(crate) struct ScatterState {
    /// The task's plan, which holds this session.
    plan: OnceLock<Weak<ShuffleExec>>,
    consumers: Mutex<Consumers>,
}

/// Those who have come.
#[derive(Default)]
struct Consumers {
    /// What sends to them, until it begins.
    shuffle: Option<Arc<Shuffle>>,
    /// By partition; empty before the first one has come.
    groups: Vec<Option<Group>>,
    waiting: Vec<oneshot::Sender<Arc<Scattering>>>,
    /// One of them reads.
    wanted: bool,
    begun: bool,
}

/// The tasks that scatter; dropped, they stop.
pub(super) struct Scattering {
    _tasks: Vec<AbortOnDropHandle<()>>,
    /// Tasks that have not ended, and why one has failed.
    left: watch::Receiver<Result<usize, Failed>>,
}

/// Has tasks of this session scatter their rows, if an exchange carries them.
pub(crate) fn scatter_in(config: &mut SessionConfig) {
    config.set_extension(Arc::new(ScatterState::default()));
    config.set_distributed_worker_plan_rewrite_handler(replace_repartitioning);
}

/// The shuffle of a task; none of one whose plan does not end in a repartitioning.
pub(super) fn of_task(context: &TaskContext) -> Option<Arc<ScatterState>> {
    let state = context.session_config().get_extension::<ScatterState>()?;
    state.plan.get().is_some().then_some(state)
}

impl ScatterState {
    fn set_plan(&self, plan: &Arc<ShuffleExec>) {
        // A task is planned once.
        let _ = self.plan.set(Arc::downgrade(plan));
    }

    fn plan(&self) -> Result<Arc<ShuffleExec>, Failed> {
        let plan = self.plan.get().and_then(Weak::upgrade);
        plan.ok_or_else(|| failed_with("the query has ended".to_owned()))
    }

    /// The schema of the rows.
    pub(super) fn schema(&self) -> Result<SchemaRef, Failed> {
        Ok(self.plan()?.schema())
    }

    /// A consumer of some of `total` partitions has come: `group` is how to send to it. The answer
    /// comes when all have.
    pub(super) fn join(
        &self,
        node: &Arc<ExchangeNode>,
        shuffle: &Arc<Shuffle>,
        group: &Group,
        partitions: Range<usize>,
        total: usize,
        context: &Arc<TaskContext>,
    ) -> Result<oneshot::Receiver<Arc<Scattering>>, Failed> {
        let mut consumers = self.consumers.lock();
        if consumers.groups.is_empty() {
            consumers.groups.resize_with(total, || None);
        }
        let fits = consumers.groups.len() == total && !consumers.begun;
        let own = consumers.groups.get_mut(partitions.clone());
        let Some(own) = own.filter(|own| fits && own.iter().all(Option::is_none)) else {
            return Err(failed_with(format!(
                "partitions {partitions:?} of {total} are not there to be asked for"
            )));
        };
        own.fill(Some(group.clone()));
        let (tell, told) = oneshot::channel();
        consumers.waiting.push(tell);
        consumers.shuffle.get_or_insert_with(|| shuffle.clone());
        self.begin_if_due(&mut consumers, node, context)?;
        Ok(told)
    }

    /// A consumer reads.
    pub(super) fn want(
        &self,
        node: &Arc<ExchangeNode>,
        context: &Arc<TaskContext>,
    ) -> Result<(), Failed> {
        let mut consumers = self.consumers.lock();
        consumers.wanted = true;
        self.begin_if_due(&mut consumers, node, context)
    }

    fn begin_if_due(
        &self,
        consumers: &mut Consumers,
        node: &Arc<ExchangeNode>,
        context: &Arc<TaskContext>,
    ) -> Result<(), Failed> {
        let all_have_come = consumers.groups.iter().all(Option::is_some);
        if consumers.begun || !consumers.wanted || !all_have_come {
            return Ok(());
        }
        let Some(shuffle) = consumers.shuffle.take() else {
            return Ok(());
        };
        consumers.begun = true;
        let groups = std::mem::take(&mut consumers.groups);
        let groups = groups.into_iter().flatten().collect::<Vec<_>>();
        let scattering = Arc::new(self.begin(node, &shuffle, &groups, context)?);
        for waiting in consumers.waiting.drain(..) {
            // Who does not wait has left.
            let _ = waiting.send(scattering.clone());
        }
        Ok(())
    }

    fn begin(
        &self,
        node: &Arc<ExchangeNode>,
        shuffle: &Arc<Shuffle>,
        groups: &[Group],
        context: &Arc<TaskContext>,
    ) -> Result<Scattering, Failed> {
        let plan = self.plan()?;
        let inputs = plan.input_partitions();
        let (tell, left) = watch::channel(Ok(inputs));
        let tell = Arc::new(tell);
        let mut tasks = Vec::with_capacity(inputs);
        for input in 0..inputs {
            let partitioner = ByHash::new(plan.keys(), groups.len());
            let first = input * groups.len() / inputs;
            let scatter = Scatter::new(
                shuffle.clone(),
                groups.iter().map(|group| group.by(input)).collect(),
                Box::new(partitioner),
                first,
            )
            .map_err(|error| failed(exchange_error(node, error)))?;
            let rows = ExecutedPlan::execute(&plan, input, context)?;
            let (node, tell) = (node.clone(), tell.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(async move {
                let ended = rows.scatter(scatter, &node).await;
                tell.send_modify(|left| match (&mut *left, ended) {
                    (Ok(count), Ok(())) => *count -= 1,
                    (Ok(_), Err(why)) => *left = Err(why),
                    (Err(_), _) => {}
                });
            })));
        }
        Ok(Scattering {
            _tasks: tasks,
            left,
        })
    }
}

impl Scattering {
    /// Waits until all rows have been sent.
    pub(super) async fn ended(&self) -> Result<(), Failed> {
        let mut left = self.left.clone();
        let ended = left.wait_for(|left| !matches!(left, Ok(1..))).await;
        match ended {
            Ok(left) => left.clone().map(|_| ()),
            Err(_) => Err(failed_with("a task that scattered ended early".to_owned())),
        }
    }
}

/// One partition of the rows.
struct ExecutedPlan {
    rows: SendableRecordBatchStream,
    metrics: BaselineMetrics,
}

impl ExecutedPlan {
    fn execute(
        plan: &Arc<ShuffleExec>,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<Self, Failed> {
        Ok(Self {
            rows: plan.execute(partition, context.clone()).map_err(failed)?,
            metrics: plan.metrics_of(partition),
        })
    }

    async fn scatter(mut self, mut scatter: Scatter, node: &ExchangeNode) -> Result<(), Failed> {
        while let Some(batch) = self.rows.try_next().await.map_err(failed)? {
            self.metrics.record_output(batch.num_rows());
            if batch.num_rows() == 0 {
                continue;
            }
            let sent = scatter.send(&batch).await;
            let wanted = sent.map_err(|error| failed(exchange_error(node, error)))?;
            if !wanted {
                break;
            }
        }
        self.metrics.done();
        Ok(())
    }
}
