//! The producer's side of a broadcast: all consumers get the same rows, in messages that are filled once.
//!
//! A consumer asks when it reads. Consumers that have asked are served together, as one group. The task begins to send
//! to a group when all consumers have asked, or when the first of the group has waited for long enough. A consumer that
//! comes later is served in a later group. It gets all rows from the first one on, because the task keeps them.
//! Consumers on this worker take the batches as they are, and count as come.
//!
//! All consumers of a group wait for the slowest of them. A consumer that stops reading takes what comes to where its
//! memory is accounted for (`ExchangeOptions::coupled`). A consumer that is gone is left out.

use crate::failure::{exchange_error, failed, or_panicked, orphaned};
use crate::node::ExchangeNode;
use crate::protocol::Failed;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::future::{BoxFuture, FutureExt as _, Shared};
use futures::stream::TryStreamExt as _;
use parking_lot::Mutex;
use roundel_exchange::operator::Broadcast;
use roundel_exchange::{Destination, Shuffle};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

/// How long a consumer waits for others that might be sent the same messages. They run the same plan, and were started
/// together.
const GATHERING: Duration = Duration::from_millis(20);

/// The broadcast of a task, which lives in the task's session.
#[derive(Default)]
pub(crate) struct BroadcastState(Mutex<Consumers>);

/// Those who have come.
#[derive(Default)]
struct Consumers {
    /// How many, those of this worker included.
    come: usize,
    waiting: Vec<Waiting>,
    /// Number of groups of consumers that the task has begun to send to.
    round: usize,
}

struct Waiting {
    shuffle: Arc<Shuffle>,
    destination: Destination,
    /// Its view of the rows, from the first one on.
    rows: Vec<SendableRecordBatchStream>,
    tell: oneshot::Sender<Arc<Broadcasting>>,
}

/// How a consumer is sent to.
pub(super) struct Way<'a> {
    pub node: &'a Arc<ExchangeNode>,
    pub shuffle: &'a Arc<Shuffle>,
    pub destination: &'a Destination,
}

/// Has a task of this session gather the consumers of its broadcast, if it has one.
pub(crate) fn gather_in(config: &mut SessionConfig) {
    config.set_extension(Arc::new(BroadcastState::default()));
}

/// The broadcast of a task.
pub(super) fn of_task(context: &TaskContext) -> Option<Arc<BroadcastState>> {
    context.session_config().get_extension::<BroadcastState>()
}

impl BroadcastState {
    /// A consumer of this worker has come, which takes the rows by itself.
    pub(super) fn came_here(&self) {
        self.0.lock().come += 1;
    }

    /// One of so many consumers has come, with its view of the rows.
    pub(super) fn join(
        self: &Arc<Self>,
        way: Way<'_>,
        rows: Vec<SendableRecordBatchStream>,
        total: usize,
    ) -> Joined {
        let (tell, told) = oneshot::channel();
        let mut consumers = self.0.lock();
        let another = |waiting: &Waiting| !Arc::ptr_eq(&waiting.shuffle, way.shuffle);
        if consumers.waiting.first().is_some_and(another) {
            // It wants its rows another way.
            consumers.begin(way.node);
        }
        consumers.come += 1;
        consumers.waiting.push(Waiting {
            shuffle: way.shuffle.clone(),
            destination: way.destination.clone(),
            rows,
            tell,
        });
        if consumers.come >= total {
            consumers.begin(way.node);
        } else if consumers.waiting.len() == 1 {
            let round = consumers.round;
            tokio::spawn(begin_later(self.clone(), round, way.node.clone()));
        }
        Joined(told.boxed().shared())
    }
}

/// Waits for [`GATHERING`], and then begins to send to the consumers that have come, unless that has begun meanwhile.
async fn begin_later(state: Arc<BroadcastState>, round: usize, node: Arc<ExchangeNode>) {
    tokio::time::sleep(GATHERING).await;
    let mut consumers = state.0.lock();
    if consumers.round == round {
        consumers.begin(&node);
    }
}

impl Consumers {
    /// Sends to those who wait.
    fn begin(&mut self, node: &Arc<ExchangeNode>) {
        self.round += 1;
        let (mut members, mut tellers, mut rows_to) = (Vec::new(), Vec::new(), None);
        for waiting in self.waiting.drain(..) {
            members.push(waiting.destination);
            tellers.push(waiting.tell);
            // All of them have the same shuffle, and the same rows.
            rows_to = Some((waiting.shuffle, waiting.rows));
        }
        let Some((shuffle, rows)) = rows_to else {
            return;
        };
        let broadcasting = Broadcasting::start(node, shuffle, members, rows);
        for tell in tellers {
            // A consumer that does not wait any more has left.
            let _ = tell.send(broadcasting.clone());
        }
    }
}

/// The tasks that send to some consumers, one for each partition; dropped, they stop.
struct Broadcasting {
    _tasks: Vec<AbortOnDropHandle<()>>,
    /// By lane, partitions that have not been sent; or why one could not be.
    left: watch::Receiver<Result<Vec<usize>, Failed>>,
}

impl Broadcasting {
    fn start(
        node: &Arc<ExchangeNode>,
        shuffle: Arc<Shuffle>,
        members: Vec<Destination>,
        rows: Vec<SendableRecordBatchStream>,
    ) -> Arc<Self> {
        let lanes = members.first().map_or(1, Destination::lanes);
        let lane_of = move |partition: usize| partition % lanes;
        let mut counts = vec![0; lanes];
        (0..rows.len()).for_each(|partition| counts[lane_of(partition)] += 1);
        let broadcast = match Broadcast::new(shuffle.clone(), members) {
            Ok(broadcast) => Arc::new(broadcast),
            Err(error) => {
                let (_, left) = watch::channel(Err(failed(exchange_error(node.name(), error))));
                return Arc::new(Self {
                    _tasks: Vec::new(),
                    left,
                });
            }
        };
        let (tell, left) = watch::channel(Ok(counts));
        let tell = Arc::new(tell);
        let tasks = rows.into_iter().enumerate().map(|(partition, rows)| {
            let account = node.account();
            shuffle.account(account.clone());
            let (node, broadcast, tell) = (node.clone(), broadcast.clone(), tell.clone());
            AbortOnDropHandle::new(tokio::spawn(account.measure(async move {
                let sent = or_panicked(send(&node, &broadcast, partition, rows)).await;
                tell.send_modify(|left| match (&mut *left, sent) {
                    (Ok(counts), Ok(())) => counts[lane_of(partition)] -= 1,
                    (Ok(_), Err(why)) => *left = Err(why),
                    (Err(_), _) => {}
                });
            })))
        });
        Arc::new(Self {
            _tasks: tasks.collect(),
            left,
        })
    }

    /// Waits until the partitions of a lane have been sent.
    async fn ended(&self, lane: usize) -> Result<(), Failed> {
        let mut left = self.left.clone();
        let ended = |left: &Result<Vec<usize>, Failed>| match left {
            Ok(counts) => counts.get(lane).is_none_or(|count| *count == 0),
            Err(_) => true,
        };
        let ended = left.wait_for(ended).await.map(|left| left.clone());
        match ended {
            Ok(left) => left.map(drop),
            Err(_) => Err(orphaned("a task that broadcast ended early")),
        }
    }
}

/// Sends a partition to all who are left.
async fn send(
    node: &ExchangeNode,
    broadcast: &Broadcast,
    partition: usize,
    mut rows: SendableRecordBatchStream,
) -> Result<(), Failed> {
    while let Some(batch) = rows.try_next().await.map_err(failed)? {
        if batch.num_rows() == 0 {
            continue;
        }
        let sent = broadcast.send(partition, partition as u32, &batch).await;
        if !sent.map_err(|error| failed(exchange_error(node.name(), error)))? {
            break;
        }
    }
    Ok(())
}

/// A consumer that has come.
#[derive(Clone)]
pub(super) struct Joined(
    Shared<BoxFuture<'static, Result<Arc<Broadcasting>, oneshot::error::RecvError>>>,
);

impl Joined {
    /// Waits until the partitions of a lane have been sent.
    pub(super) async fn ended(self, lane: usize) -> Result<(), Failed> {
        match self.0.await {
            Ok(broadcasting) => broadcasting.ended(lane).await,
            Err(_) => Err(orphaned("the query has ended")),
        }
    }
}
