//! The tasks that read a stage's rows and scatter them.

use super::by_hash::{ByHash, HeavyCounts};
use super::plan::ShuffleExec;
use super::{ExchangeNode, Failed, exchange_error, failed, or_panicked, orphaned};
use crate::key_hashes::KeyHashes;
use crate::skew::Sampling;
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::stream::Fuse;
use futures::{StreamExt as _, TryStreamExt as _};
use roundel_exchange::account::waiting_for;
use roundel_exchange::operator::Group;
use roundel_exchange::skew::Router;
use roundel_exchange::{Account, Scatter, Shuffle, Spending};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

/// How long tasks with a sample are kept when all consumers who have come have left, and others have not come yet.
const EARLY_KEPT: Duration = Duration::from_secs(2);

/// The tasks that scatter; dropped, they stop.
pub(crate) struct Scattering {
    _tasks: Vec<AbortOnDropHandle<()>>,
    /// Where the tasks send to; set once all consumers have come.
    go: watch::Sender<Option<Destinations>>,
    /// Tasks that have not ended, and why one has failed.
    left: watch::Receiver<Result<usize, Failed>>,
    /// What each task spends its time on.
    accounts: Vec<Account>,
}

/// All consumers, by partition.
#[derive(Clone)]
pub(super) struct Destinations {
    pub shuffle: Arc<Shuffle>,
    pub groups: Arc<[Group]>,
}

impl Scattering {
    /// Starts the tasks, which wait to be told where to send.
    pub(super) fn start(
        plan: &Arc<ShuffleExec>,
        node: &Arc<ExchangeNode>,
        sampling: Option<Sampling>,
        context: &Arc<TaskContext>,
    ) -> Result<Arc<Self>, Failed> {
        let inputs = plan.input_partitions();
        let (tell, left) = watch::channel(Ok(inputs));
        let tell = Arc::new(tell);
        let go = watch::Sender::new(None);
        let sampling = sampling.map(Arc::new);
        let accounts: Vec<_> = (0..inputs).map(|_| node.account()).collect();
        let mut tasks = Vec::with_capacity(inputs);
        for (input, account) in accounts.iter().enumerate() {
            let task = Input {
                rows: plan.execute(input, context.clone()).map_err(failed)?.fuse(),
                metrics: plan.metrics_of(input),
                number: (input, inputs),
                plan: Arc::clone(plan),
                node: node.clone(),
            };
            let (sampling, go, tell) = (sampling.clone(), go.subscribe(), tell.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(account.measure(
                async move {
                    let ended = or_panicked(task.scatter(sampling.as_deref(), go)).await;
                    tell.send_modify(|left| match (&mut *left, ended) {
                        (Ok(count), Ok(())) => *count -= 1,
                        (Ok(_), Err(why)) => *left = Err(why),
                        (Err(_), _) => {}
                    });
                },
            ))));
        }
        Ok(Arc::new(Self {
            _tasks: tasks,
            go,
            left,
            accounts,
        }))
    }

    /// Has the tasks send.
    pub(super) fn go(&self, destinations: Destinations) {
        for account in &self.accounts {
            destinations.shuffle.account(account.clone());
        }
        self.go.send_replace(Some(destinations));
    }

    /// Waits until all rows have been sent.
    async fn ended(&self) -> Result<(), Failed> {
        let mut left = self.left.clone();
        let ended = left.wait_for(|left| !matches!(left, Ok(1..))).await;
        match ended {
            Ok(left) => left.clone().map(|_| ()),
            Err(_) => Err(orphaned("a task that scattered ended early")),
        }
    }
}

/// A consumer that has come.
pub(crate) struct Joined {
    begun: oneshot::Receiver<Arc<Scattering>>,
    early: Early,
}

/// Keeps tasks that began early alive.
struct Early(Option<Arc<Scattering>>);

impl Joined {
    pub(super) fn new(
        begun: oneshot::Receiver<Arc<Scattering>>,
        early: Option<Arc<Scattering>>,
    ) -> Self {
        Self {
            begun,
            early: Early(early),
        }
    }

    /// Waits until all rows have been sent.
    pub(crate) async fn ended(mut self) -> Result<(), Failed> {
        match self.begun.await {
            Ok(scattering) => {
                self.early.0 = None;
                scattering.ended().await
            }
            Err(_) => Err(orphaned("the query has ended")),
        }
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        // Others may be about to come, and a plan cannot be executed twice.
        if let Some(early) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                tokio::time::sleep(EARLY_KEPT).await;
                drop(early);
            });
        }
    }
}

/// One partition of the rows.
struct Input {
    /// May end while a sample is taken, and is asked again.
    rows: Fuse<SendableRecordBatchStream>,
    metrics: BaselineMetrics,
    /// Which one it is, of how many.
    number: (usize, usize),
    plan: Arc<ShuffleExec>,
    node: Arc<ExchangeNode>,
}

impl Input {
    async fn scatter(
        mut self,
        sampling: Option<&Sampling>,
        mut go: watch::Receiver<Option<Destinations>>,
    ) -> Result<(), Failed> {
        let mut keys = KeyHashes::new(self.plan.keys());
        let (first, routes) = match sampling {
            Some(sampling) => sampling.first_batches(&mut self.rows, &mut keys).await?,
            None => (Vec::new(), None),
        };
        let come = waiting_for(Spending::Reader, go.wait_for(Option::is_some));
        let destinations = match come.await {
            Ok(told) => told.clone(),
            Err(_) => None,
        };
        let Some(Destinations { shuffle, groups }) = destinations else {
            return Err(orphaned("the query has ended"));
        };
        let (number, inputs) = self.number;
        let turn = number * groups.len() / inputs;
        // All tasks have the same heavy keys: one tells how many.
        let tells = number == 0 && sampling.is_some_and(Sampling::is_of_first_task);
        let counts = routes.as_ref().map(|routes| {
            if tells {
                let heavy = self.plan.count("heavy_keys", number);
                heavy.add(routes.spread.len());
            }
            HeavyCounts {
                spread: self.plan.count("rows_spread", number),
                to_all: self.plan.count("rows_broadcast", number),
            }
        });
        let router = Router::new(groups.len(), routes, turn);
        let partitioner = ByHash::new(keys, router, counts);
        let mut scatter = Scatter::new(
            shuffle,
            groups.iter().map(|group| group.by(number)).collect(),
            Box::new(partitioner),
            turn,
        )
        .map_err(|error| failed(exchange_error(self.node.name(), error)))?;
        let mut first = first.into_iter();
        loop {
            let next = match first.next() {
                Some(batch) => Some(batch),
                None => self.rows.try_next().await.map_err(failed)?,
            };
            let Some(batch) = next else { break };
            if !self.send(&mut scatter, &batch).await? {
                break;
            }
        }
        self.metrics.done();
        Ok(())
    }

    /// Returns whether more rows are wanted.
    async fn send(&mut self, scatter: &mut Scatter, batch: &RecordBatch) -> Result<bool, Failed> {
        self.metrics.record_output(batch.num_rows());
        if batch.num_rows() == 0 {
            return Ok(true);
        }
        let sent = scatter.send(batch).await;
        sent.map_err(|error| failed(exchange_error(self.node.name(), error)))
    }
}
