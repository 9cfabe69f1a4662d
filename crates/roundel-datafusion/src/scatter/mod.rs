//! The producer's side of a shuffle: a task's rows are hashed and scattered over the tasks of the next
//! stage, straight into messages.
//!
//! The consumers come one by one, each as soon as it is planned: one may never read, and rows go to all
//! of them. When all have come, and one of them reads, one task for each partition of the input reads
//! it and scatters; sooner would fill memory with rows that nobody is ready for. One that has left by
//! then counts as come. When all those tasks have ended, each consumer is told that no more comes.
//!
//! Where heavy keys of a join are looked for, the tasks begin when the first consumer has come: they take their sample,
//! and wait with it. The other input of the join may need to know what is in it before anybody reads this one.

mod by_hash;
mod plan;
mod tasks;

use crate::calls::Channels;
use crate::failure::{exchange_error, failed, failed_with, or_panicked, orphaned};
use crate::node::ExchangeNode;
use crate::protocol::Failed;
use crate::settings::QuerySettings;
use crate::skew::Sampling;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion_distributed::{DistributedExt as _, TaskKey};
use parking_lot::Mutex;
use plan::{ShuffleExec, replace_repartitioning};
use roundel_exchange::Shuffle;
use roundel_exchange::operator::Group;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use tasks::{Destinations, Scattering};
use tokio::sync::oneshot;

pub(super) use tasks::Joined;

/// A task's shuffle, which lives in the task's session.
pub(crate) struct ScatterState {
    /// The task's plan, which holds this session.
    plan: OnceLock<Weak<ShuffleExec>>,
    consumers: Mutex<Consumers>,
    channels: Channels,
}

/// Those who have come.
#[derive(Default)]
struct Consumers {
    /// What sends to them, until it begins.
    shuffle: Option<Arc<Shuffle>>,
    /// By partition; empty before the first one has come.
    groups: Vec<Option<Group>>,
    waiting: Vec<oneshot::Sender<Arc<Scattering>>>,
    /// Tasks that take a sample, and wait; those who have come hold them.
    early: Option<Weak<Scattering>>,
    /// One of them reads.
    wanted: bool,
    begun: bool,
}

/// How a consumer is sent to.
pub(super) struct Way<'a> {
    pub node: &'a Arc<ExchangeNode>,
    pub shuffle: &'a Arc<Shuffle>,
    pub group: &'a Group,
}

/// Has tasks of this session, whose rows an exchange carries, scatter them.
pub(crate) fn scatter_in(config: &mut SessionConfig, channels: &Channels) {
    config.set_extension(Arc::new(ScatterState {
        plan: OnceLock::new(),
        consumers: Mutex::default(),
        channels: channels.clone(),
    }));
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
        plan.ok_or_else(|| orphaned("the query has ended"))
    }

    /// The schema of the rows.
    pub(super) fn schema(&self) -> Result<SchemaRef, Failed> {
        Ok(self.plan()?.schema())
    }

    /// A consumer of some of `total` partitions has come. Its rows are sent once all consumers have come.
    pub(super) fn join(
        &self,
        way: Way<'_>,
        partitions: Range<usize>,
        total: usize,
        task: TaskKey,
        context: &Arc<TaskContext>,
    ) -> Result<Joined, Failed> {
        let mut consumers = self.consumers.lock();
        let first = consumers.groups.is_empty();
        if first {
            consumers.groups.resize_with(total, || None);
        }
        let fits = consumers.groups.len() == total && !consumers.begun;
        let own = consumers.groups.get_mut(partitions.clone());
        let Some(own) = own.filter(|own| fits && own.iter().all(Option::is_none)) else {
            return Err(failed_with(format!(
                "partitions {partitions:?} of {total} are not there to be asked for"
            )));
        };
        own.fill(Some(way.group.clone()));
        let mut early = None;
        if first {
            let sampling = self.sampling(task, total, context)?;
            if sampling.as_ref().is_some_and(Sampling::reads_early) {
                let scattering = Scattering::start(&self.plan()?, way.node, sampling, context)?;
                consumers.early = Some(Arc::downgrade(&scattering));
                early = Some(scattering);
            }
        } else if let Some(scattering) = &consumers.early {
            early = scattering.upgrade();
        }
        let (tell, told) = oneshot::channel();
        consumers.waiting.push(tell);
        consumers.shuffle.get_or_insert_with(|| way.shuffle.clone());
        let joined = Joined::new(told, early);
        self.begin_if_due(&mut consumers, way.node, task, context)?;
        Ok(joined)
    }

    /// A consumer reads.
    pub(super) fn want(
        &self,
        node: &Arc<ExchangeNode>,
        task: TaskKey,
        context: &Arc<TaskContext>,
    ) -> Result<(), Failed> {
        let mut consumers = self.consumers.lock();
        consumers.wanted = true;
        self.begin_if_due(&mut consumers, node, task, context)
    }

    fn begin_if_due(
        &self,
        consumers: &mut Consumers,
        node: &Arc<ExchangeNode>,
        task: TaskKey,
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
        let groups: Arc<[Group]> = groups.into_iter().flatten().collect();
        let scattering = match consumers.early.take() {
            Some(early) => early
                .upgrade()
                .ok_or_else(|| orphaned("all who were to get a task's rows have left"))?,
            None => {
                let sampling = self.sampling(task, groups.len(), context)?;
                Scattering::start(&self.plan()?, node, sampling, context)?
            }
        };
        scattering.go(Destinations { shuffle, groups });
        for waiting in consumers.waiting.drain(..) {
            // A consumer that does not wait any more has left.
            let _ = waiting.send(scattering.clone());
        }
        Ok(())
    }

    /// The task's part in finding the heavy keys of the join that it feeds, if there is one.
    fn sampling(
        &self,
        task: TaskKey,
        partitions: usize,
        context: &Arc<TaskContext>,
    ) -> Result<Option<Sampling>, Failed> {
        let settings = QuerySettings::of(context.session_config());
        let Some(role) = settings.as_ref().and_then(|of| of.role_of(task.stage_id)) else {
            return Ok(None);
        };
        let inputs = self.plan()?.input_partitions();
        let sampling = Sampling::new(role, task, inputs, partitions, &self.channels);
        Ok(Some(sampling))
    }
}
