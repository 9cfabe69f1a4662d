//! Runs the two sides of every thread of a node.

use super::relation::Partitioning;
use super::turns::Turns;
use super::{Consumer, Relation, RowsIn, RowsOut};
#[cfg(feature = "mpi")]
use super::{RowsFromMessages, RowsToMessages};
use crate::clock;
use crate::error::{Error, Result};
use crate::measured::{NodeMeasured, Rows, Sides};
use crate::setting::{Pattern, Setting};
#[cfg(feature = "mpi")]
use crate::transport::mpi;
use crate::transport::qperf::Pairs;
use crate::transport::runtime::ThreadRuntime;
use parking_lot::Mutex;
use roundel_exchange::account::waiting_for;
use roundel_exchange::frame::RowSource;
use roundel_exchange::{Account, RowsByPartition, Spending};
use roundel_verbs::TokioContext;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// The threads of a node, waiting for the start; after their end they serve their endpoints until they are
/// stopped.
pub struct Threads {
    setting: Arc<Setting>,
    node: usize,
    started: watch::Sender<bool>,
    stopped: watch::Sender<bool>,
    done: Vec<oneshot::Receiver<Result<Done>>>,
    spent: Arc<Mutex<Sides>>,
    handles: Vec<JoinHandle<()>>,
}

/// What a thread did.
struct Done {
    ended: f64,
    received: Rows,
    sent: Vec<Rows>,
}

/// What a thread is to do.
pub struct Job {
    /// The setting of the run.
    pub setting: Arc<Setting>,
    /// The node of the thread.
    pub node: usize,
    /// Its part of the relation.
    pub relation: Arc<Relation>,
    /// Of all threads of the node.
    spent: Arc<Mutex<Sides>>,
    started: watch::Receiver<bool>,
    stopped: watch::Receiver<bool>,
}

impl Threads {
    /// None yet, of node `node`.
    pub fn new(setting: &Arc<Setting>, node: usize) -> Self {
        Self {
            setting: setting.clone(),
            node,
            started: watch::Sender::new(false),
            stopped: watch::Sender::new(false),
            done: Vec::new(),
            spent: Arc::default(),
            handles: Vec::new(),
        }
    }

    /// Adds the two sides of a thread, with the runtime that serves it: both are its
    /// tasks then, and have a thread each without.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn add_sides<O: RowsOut + Send + 'static, I: RowsIn + Send + 'static>(
        &mut self,
        relation: Arc<Relation>,
        (out, input, runtime): (O, I, Option<ThreadRuntime>),
    ) -> Result<()> {
        match runtime {
            Some(runtime) => {
                let both =
                    async |job: &Job, (out, input): &mut (O, I)| both_sides(job, out, input).await;
                self.add(relation, Some(runtime), (out, input), both)
            }
            None => {
                let receives = async |job: &Job, input: &mut I| {
                    let received = receive(job, input, None).await?;
                    Ok((Vec::new(), received))
                };
                self.add(relation.clone(), None, input, receives)?;
                let sends = async |job: &Job, out: &mut O| {
                    let sent = send(job, out, None).await?;
                    Ok((sent, Rows::default()))
                };
                self.add(relation, None, out, sends)
            }
        }
    }

    /// Adds a thread that does `work`, on a runtime or blocking. What it works with is dropped when it is
    /// stopped.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn add<T: Send + 'static>(
        &mut self,
        relation: Arc<Relation>,
        runtime: Option<ThreadRuntime>,
        mut with: T,
        work: impl AsyncFnOnce(&Job, &mut T) -> Result<(Vec<Rows>, Rows)> + Send + 'static,
    ) -> Result<()> {
        let (tell, told) = oneshot::channel();
        let job = Job {
            setting: self.setting.clone(),
            node: self.node,
            relation,
            spent: self.spent.clone(),
            started: self.started.subscribe(),
            stopped: self.stopped.subscribe(),
        };
        let thread = move || match runtime {
            None => futures::executor::block_on(job.run(&mut with, work, tell)),
            Some(runtime) => {
                runtime.block_on(job.run(&mut with, work, tell));
                let _inside = runtime.enter();
                drop(with);
            }
        };
        let builder = std::thread::Builder::new().name(format!("worker {}", self.handles.len()));
        let handle = builder.spawn(thread).map_err(Error::io("start a thread"))?;
        self.handles.push(handle);
        self.done.push(told);
        Ok(())
    }

    /// Lets them begin and waits until all have ended. What only their node knows is left at 0.
    ///
    /// # Errors
    /// Those of the first that failed.
    pub async fn run(&mut self) -> Result<NodeMeasured> {
        let cpu = clock::cpu();
        let mut measured = NodeMeasured {
            started: clock::monotonic(),
            ..NodeMeasured::default()
        };
        self.started.send_replace(true);
        let all = self.done.drain(..).map(async |told| match told.await {
            Ok(done) => done,
            Err(_) => Err(Error::Wrong("a thread ended without a word".into())),
        });
        for done in futures::future::try_join_all(all).await? {
            measured.ended = measured.ended.max(done.ended);
            measured.received.add(done.received);
            let nodes = measured.sent.len().max(done.sent.len());
            measured.sent.resize(nodes, Rows::default());
            for (sum, sent) in measured.sent.iter_mut().zip(done.sent) {
                sum.add(sent);
            }
        }
        measured.cpu_seconds = clock::cpu() - cpu;
        measured.spent = std::mem::take(&mut *self.spent.lock());
        Ok(measured)
    }

    /// Ends them: they drop what they have opened.
    pub async fn stop(self) {
        self.stopped.send_replace(true);
        let join = move || {
            self.handles
                .into_iter()
                .for_each(|handle| drop(handle.join()))
        };
        // A thread that has panicked has said so.
        let _ = tokio::task::spawn_blocking(join).await;
    }
}

impl Job {
    /// Does the work when it is time and waits to be stopped.
    async fn run<T>(
        mut self,
        with: &mut T,
        work: impl AsyncFnOnce(&Self, &mut T) -> Result<(Vec<Rows>, Rows)>,
        tell: oneshot::Sender<Result<Done>>,
    ) {
        if self.started.wait_for(|started| *started).await.is_err() {
            return;
        }
        let done = work(&self, with).await.map(|(sent, received)| Done {
            ended: clock::monotonic(),
            sent,
            received,
        });
        if tell.send(done).is_ok() {
            // Whatever it hears, it is to end.
            let _ = self.stopped.wait_for(|stopped| *stopped).await;
        }
    }

    /// The consumer of a thread, if the run begins now.
    fn consumer(&self) -> Consumer {
        let consumer = Consumer::new(self.setting.work_of(self.node));
        match self.setting.work_midway {
            Some(rounds) => {
                let quarter = Duration::from_secs_f64(self.setting.seconds / 4.0);
                let now = Instant::now();
                consumer.with_midway(now + quarter..now + 3 * quarter, rounds)
            }
            None => consumer,
        }
    }

    /// When no scan begins any more, if the run begins now.
    pub fn until(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.setting.seconds)
    }
}

/// Scans of a relation, one after the other.
pub(super) struct Scan {
    partitioning: Partitioning,
    targets: Vec<u32>,
    rows: RowsByPartition,
    /// The group to begin with, so that not all threads send to one at a time.
    first: usize,
}

impl Scan {
    pub(super) fn new(partitioning: Partitioning, first: usize) -> Self {
        Self {
            partitioning,
            targets: Vec::new(),
            rows: RowsByPartition::default(),
            first,
        }
    }

    /// Sends all rows of a relation.
    pub(super) async fn run(
        &mut self,
        relation: &Relation,
        out: &mut impl RowsOut,
        turns: Option<&Turns>,
    ) -> Result<()> {
        let groups = self.partitioning.groups;
        for batch in &relation.batches {
            self.partitioning.targets(batch, &mut self.targets);
            let source = RowSource::new(batch)
                .ok_or_else(|| Error::Setting("rows of nested columns".into()))?;
            let numbers = source.needs_numbers();
            let sorted = self.rows.sort(&self.targets, groups, numbers);
            sorted.map_err(|group| Error::Wrong(format!("there is no group {group}")))?;
            for turn in 0..groups {
                let group = (self.first + turn) % groups;
                out.send(group, batch, &source, self.rows.of(group)).await?;
            }
            self.first += 1;
            if let Some(turns) = turns {
                turns.give().await;
            }
        }
        Ok(())
    }
}

/// Scans and sends until the time is over; returns what went to each node.
pub(super) async fn send(
    job: &Job,
    out: &mut impl RowsOut,
    turns: Option<&Turns>,
) -> Result<Vec<Rows>> {
    let until = job.until();
    let over = || Instant::now() >= until;
    send_until(&job.setting, job.node, &job.relation, out, turns, over).await
}

/// Scans and sends until it is over, and once at least; returns what went to each node.
pub(crate) async fn send_until(
    setting: &Setting,
    first: usize,
    relation: &Relation,
    out: &mut impl RowsOut,
    turns: Option<&Turns>,
    over: impl Fn() -> bool,
) -> Result<Vec<Rows>> {
    let partitioning = Partitioning::new(setting);
    let mut scan = Scan::new(partitioning, first);
    let mut scans = 0;
    while scans == 0 || !over() {
        scan.run(relation, out, turns).await?;
        scans += 1;
    }
    out.finish().await?;
    let times = |rows: &Rows| Rows {
        count: rows.count * scans,
        keys: rows.keys.wrapping_mul(scans),
    };
    let of_scan = partitioning.rows(relation);
    Ok(by_node(setting, of_scan.iter().map(times).collect()))
}

/// What went to each node, of what went to each group.
pub(crate) fn by_node(setting: &Setting, groups: Vec<Rows>) -> Vec<Rows> {
    match setting.pattern {
        Pattern::Repartition => groups,
        Pattern::Broadcast => vec![groups[0]; setting.nodes],
    }
}

/// Both sides as tasks of this thread, which has a runtime.
async fn both_sides(
    job: &Job,
    out: &mut impl RowsOut,
    input: &mut impl RowsIn,
) -> Result<(Vec<Rows>, Rows)> {
    let turns = Turns::default();
    let [sending, receiving] = [(); 2].map(|()| Account::new(Arc::new(TokioContext::current())));
    let done = turns
        .join(
            sending.measure(send(job, out, Some(&turns))),
            receiving.measure(receive(job, input, Some(&turns))),
        )
        .await;
    job.spent.lock().add(&sending, &receiving);
    done
}

/// Takes what comes, to the end. While the other side goes on, it does not ask to be woken, which would cost
/// it and those who send to it a call of the system each time.
async fn receive(job: &Job, input: &mut impl RowsIn, turns: Option<&Turns>) -> Result<Rows> {
    let mut consumer = job.consumer();
    loop {
        if let Some(batch) = input.take()? {
            consumer.take(&batch);
            continue;
        }
        if let Some(turns) = turns
            && turns.are_given()
        {
            waiting_for(Spending::Processor, turns.pause()).await;
            continue;
        }
        match input.next().await? {
            Some(batch) => consumer.take(&batch),
            None => return Ok(consumer.rows()),
        }
    }
}

/// Consumes the batches of the relation again and again: what is left when nothing is moved.
pub async fn consume_alone(job: &Job, _: &mut ()) -> Result<(Vec<Rows>, Rows)> {
    let mut consumer = job.consumer();
    let until = job.until();
    loop {
        job.relation
            .batches
            .iter()
            .for_each(|batch| consumer.take(batch));
        if Instant::now() >= until {
            return Ok((Vec::new(), consumer.rows()));
        }
    }
}

/// Sends until the time is over and takes what comes, to the end. A message counts as a row.
pub async fn over_qperf(job: &Job, pairs: &mut Pairs) -> Result<(Vec<Rows>, Rows)> {
    let until = job.until();
    pairs.run(|| Instant::now() >= until, |_| ()).await
}

/// Sends a few bytes to the other node of a pair, or answers it, until the time is over; a message counts as a
/// row.
pub async fn ping_pong(job: &Job, pairs: &mut Pairs) -> Result<(Vec<Rows>, Rows)> {
    let began = Instant::now();
    let until = Duration::from_secs_f64(job.setting.seconds);
    pairs.ping_pong(job.node, until, || began.elapsed()).await
}

/// Runs both sides of a thread, in it.
#[cfg(feature = "mpi")]
pub async fn over_mpi(job: &Job, thread: &mut mpi::Thread) -> Result<(Vec<Rows>, Rows)> {
    let (sender, receiver) = thread.sides();
    let groups = Partitioning::new(&job.setting).groups;
    let mut out = RowsToMessages::new(sender, groups);
    let mut input = RowsFromMessages::new(receiver, job.relation.schema.clone())?;
    both_sides(job, &mut out, &mut input).await
}
