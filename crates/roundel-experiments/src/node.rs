//! A node of a run: a process that opens its endpoints, scans and sends, takes what comes, and reports.

use crate::clock;
use crate::error::{Error, Result};
use crate::kept::{THIS_PROGRAM, sum_of};
use crate::measured::{Endpoints, NodeMeasured};
use crate::meeting::Meeting;
use crate::ring::{self, RingJoin};
use crate::setting::{Setting, Transport};
#[cfg(feature = "mpi")]
use crate::transport::mpi;
use crate::transport::runtime::ThreadRuntime;
use crate::transport::{AskEndpoints, Opened, Receiver, Sender, qperf, sockets, verbs};
#[cfg(feature = "mpi")]
use crate::workload::over_mpi;
use crate::workload::{
    self, Partitioning, Relation, RowsFromMessages, RowsFromTuples, RowsIn, RowsOut,
    RowsToMessages, RowsToTuples, Threads, check_partitioning, consume_alone, grpc,
    partition_alone,
};
use roundel_verbs::rendezvous::LostPeer;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The variable in which a node that `mpirun` starts finds its task. Others read it from their standard input, as a line.
pub(crate) const TASK: &str = "ROUNDEL_EXPERIMENT_NODE";
/// Where a process that `mpirun` started finds its number.
const MPI_RANK: &str = "OMPI_COMM_WORLD_RANK";

/// Most bytes of a task.
const TASK_BYTES_MAX: u64 = 1 << 20;
/// How often registered memory is looked at in a run, where it is.
const MEMORY_LOOKS: u32 = 100;
/// Longest wait for the news that another node is gone, once something has failed.
const LOSS_HEARD_MAX: Duration = Duration::from_secs(1);

/// What all nodes of a run do.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Job {
    Setting(Box<Setting>),
    Ring(Box<RingJoin>),
}

impl Job {
    fn check(&self) -> Result<()> {
        match self {
            Self::Setting(setting) => setting.check(),
            Self::Ring(join) => join.check(),
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        match self {
            Self::Setting(setting) => setting.nodes,
            Self::Ring(join) => join.hosts,
        }
    }

    /// Whether `mpirun` starts the nodes, and with how many threads of each.
    pub(crate) fn threads_of_mpi(&self) -> Option<usize> {
        match self {
            Self::Setting(setting) if setting.transport == Transport::Mpi => Some(setting.threads),
            Self::Setting(_) | Self::Ring(_) => None,
        }
    }

    /// Seconds that it takes by itself, besides what there is to set up: of a join nobody knows.
    pub(crate) fn seconds(&self) -> f64 {
        match self {
            Self::Setting(setting) => setting.seconds,
            Self::Ring(_) => 0.0,
        }
    }
}

/// What a node is told when it is started.
#[derive(Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) job: Job,
    /// Its number, unless `mpirun` numbers it.
    pub(crate) node: Option<usize>,
    /// Where the run meets.
    pub(crate) meet: SocketAddr,
    /// The secret of the run.
    pub(crate) token: String,
    /// The program that has to run, where it may be another one on this host.
    pub(crate) program: Option<String>,
}

/// A node, as the process that runs an experiment starts it. On failure it says why, in a line of standard
/// error that begins with `error: `, and fails. It ends when another process of the run does.
pub fn node_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let task = task()?;
    if let Some(wanted) = &task.program {
        let own = sum_of(Path::new(THIS_PROGRAM)).map_err(Error::io("read this program"))?;
        if own != *wanted {
            let wrong = format!("this host has the program {own}, and not {wanted}: copy it there");
            return Err(Error::Setting(wrong));
        }
    }
    task.job.check()?;
    let numbered = || std::env::var(MPI_RANK).ok()?.parse().ok();
    let node = task.node.or_else(numbered);
    let node = node.ok_or_else(|| Error::Setting("this node has no number".into()))?;
    // Of the nodes that `mpirun` starts, node 0 has its standard input, and takes the others along.
    if task.node.is_some() || node == 0 {
        end_with_run()?;
    }
    let runtime = ThreadRuntime::new()?;
    // Threads that are busy with a peer that is gone end with the process.
    runtime.block_on(work(task, node))
}

/// What this node is to do.
fn task() -> Result<Task> {
    let json = match std::env::var(TASK) {
        Ok(json) => json,
        Err(_) if io::stdin().is_terminal() => String::new(),
        Err(_) => {
            let mut line = Vec::new();
            let read = io::stdin()
                .lock()
                .take(TASK_BYTES_MAX)
                .read_until(b'\n', &mut line);
            read.map_err(Error::io("read what this node is to do"))?;
            String::from_utf8_lossy(&line).into_owned()
        }
    };
    if json.is_empty() {
        let told = "this is for `roundel-lab` to start, which says what to do";
        return Err(Error::Setting(told.into()));
    }
    serde_json::from_str(&json)
        .map_err(|error| Error::Setting(format!("what this node is to do cannot be read: {error}")))
}

/// Ends this process when the one that started it is gone, even if that was before they met: standard
/// input closes.
fn end_with_run() -> Result<()> {
    let wait = || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(1);
    };
    let started = std::thread::Builder::new()
        .name("lifeline".into())
        .spawn(wait);
    started.map(drop).map_err(Error::io("start a thread"))
}

async fn work(task: Task, node: usize) -> Result<()> {
    let mut meeting = Meeting::join(task.meet, node, task.job.nodes(), &task.token).await?;
    let lost = meeting.lost();
    let meeting = &mut meeting;
    let measure = async {
        match task.job {
            Job::Setting(setting) => {
                let measured = measure(&Arc::from(setting), meeting).await?;
                meeting.report(&measured).await
            }
            Job::Ring(join) => {
                let measured = ring::measure(&join, meeting).await?;
                meeting.report(&measured).await
            }
        }
    };
    let mut lost = std::pin::pin!(lost);
    let error = tokio::select! {
        biased;
        done = measure => match done {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
        lost = &mut lost => return Err(of_loss(lost)),
    };
    // What failed here may be that another node is gone: then that is what is to be said. This node's own
    // connection stays open meanwhile, else it might be taken for the one that was lost first.
    match tokio::time::timeout(LOSS_HEARD_MAX, lost).await {
        Ok(lost) => Err(of_loss(lost)),
        Err(_) => Err(error),
    }
}

fn of_loss(lost: LostPeer) -> Error {
    match lost.rank {
        0 => Error::Wrong("the process that started this one is gone".into()),
        rank => Error::Node {
            node: rank - 1,
            reason: lost.reason,
        },
    }
}

/// The threads of a node, and what is asked of its endpoints.
struct Prepared {
    threads: Threads,
    endpoints: AskEndpoints,
    /// Ends after the threads.
    #[cfg(feature = "mpi")]
    mpi: Option<mpi::Process>,
    /// Bytes of what a row is here.
    row_bytes: usize,
    setup_seconds: f64,
}

async fn measure(setting: &Arc<Setting>, meeting: &mut Meeting) -> Result<NodeMeasured> {
    let relations: Vec<_> = (0..setting.threads)
        .map(|thread| Arc::new(Relation::generate(setting, meeting.node(), thread)))
        .collect();
    if setting.transport == Transport::Partition {
        check_partitioning(setting, &relations[0]).await?;
    }
    meeting.barrier().await?;
    let mut prepared = prepare(setting, relations, meeting).await?;
    meeting.barrier().await?;
    // Hosts have clocks of their own.
    let began = clock::monotonic();
    let mut memory = Vec::new();
    let measured = {
        let watch = watch_memory(setting, &prepared.endpoints, &mut memory);
        tokio::select! {
            biased;
            measured = prepared.threads.run() => measured?,
            never = watch => match never {},
        }
    };
    // Who is done before others still answers them.
    meeting.barrier().await?;
    let endpoints = (prepared.endpoints)();
    let stopping = clock::monotonic();
    prepared.threads.stop().await;
    Ok(NodeMeasured {
        setup_seconds: prepared.setup_seconds,
        teardown_seconds: clock::monotonic() - stopping,
        started: measured.started - began,
        ended: measured.ended - began,
        received_bytes: measured.received.count * prepared.row_bytes as u64,
        endpoints,
        memory,
        ..measured
    })
}

/// Notes registered memory where it is to be watched; ends never.
async fn watch_memory(
    setting: &Setting,
    endpoints: &AskEndpoints,
    memory: &mut Vec<(f64, u64)>,
) -> Infallible {
    if setting.work_midway.is_none() {
        return std::future::pending().await;
    }
    let began = clock::monotonic();
    let interval = Duration::from_secs_f64(setting.seconds / f64::from(MEMORY_LOOKS));
    loop {
        tokio::time::sleep(interval).await;
        memory.push((clock::monotonic() - began, endpoints().registered_bytes));
    }
}

async fn prepare(
    setting: &Arc<Setting>,
    relations: Vec<Arc<Relation>>,
    meeting: &mut Meeting,
) -> Result<Prepared> {
    let mut prepared = Prepared {
        threads: Threads::new(setting, meeting.node()),
        endpoints: Box::new(Endpoints::default),
        #[cfg(feature = "mpi")]
        mpi: None,
        row_bytes: setting.tuple_bytes,
        setup_seconds: 0.0,
    };
    let beginning = clock::monotonic();
    match setting.transport {
        Transport::Design(design) => {
            let opened = verbs::open(setting, design, meeting).await?;
            prepared.over_messages(setting, relations, opened)?;
        }
        Transport::ZeroCopy(design) => {
            let opened = verbs::open(setting, design, meeting).await?;
            let bytes = setting.tuple_bytes;
            prepared.over(relations, opened, |sender, receiver| {
                let rows = RowsFromTuples::new(receiver, bytes);
                Ok((RowsToTuples::new(sender, bytes), rows))
            })?;
        }
        Transport::Sockets => {
            let opened = sockets::open(setting, meeting).await?;
            prepared.over_messages(setting, relations, opened)?;
        }
        #[cfg(feature = "mpi")]
        Transport::Mpi => {
            let (process, opened) = mpi::open(setting, meeting).await?;
            prepared.mpi = Some(process);
            for (relation, thread) in relations.into_iter().zip(opened) {
                prepared.threads.add(relation, None, thread, over_mpi)?;
            }
        }
        Transport::MpiProcesses => return setting.check().map(|()| prepared),
        #[cfg(not(feature = "mpi"))]
        Transport::Mpi => return setting.check().map(|()| prepared),
        Transport::Grpc => {
            let opened = grpc::open(setting, meeting).await?;
            prepared.add_all(relations, opened)?;
        }
        Transport::Qperf => {
            let opened = qperf::open(setting, meeting).await?;
            for (relation, (pairs, runtime)) in relations.into_iter().zip(opened) {
                prepared.row_bytes = pairs.message_bytes();
                prepared
                    .threads
                    .add(relation, Some(runtime), pairs, workload::over_qperf)?;
            }
        }
        Transport::PingPong => {
            let opened = qperf::open(setting, meeting).await?;
            let of = |(pairs, _): &(qperf::Pairs, _)| pairs.round_trips.clone();
            let round_trips: Vec<_> = opened.iter().map(of).collect();
            prepared.endpoints = Box::new(move || Endpoints {
                round_trip: round_trips
                    .iter()
                    .map(|all| qperf::Pairs::round_trip(all))
                    .fold(0.0, f64::max),
                ..Endpoints::default()
            });
            for (relation, (pairs, runtime)) in relations.into_iter().zip(opened) {
                prepared
                    .threads
                    .add(relation, Some(runtime), pairs, workload::ping_pong)?;
            }
        }
        Transport::Partition => {
            for relation in relations {
                prepared.threads.add(relation, None, (), partition_alone)?;
            }
        }
        Transport::Consume => {
            for relation in relations {
                prepared.threads.add(relation, None, (), consume_alone)?;
            }
        }
    }
    prepared.setup_seconds = clock::monotonic() - beginning;
    Ok(prepared)
}

impl Prepared {
    fn over_messages<S: Sender<Buffer: Send> + Send + 'static, R: Receiver + Send + 'static>(
        &mut self,
        setting: &Setting,
        relations: Vec<Arc<Relation>>,
        opened: Opened<S, R>,
    ) -> Result<()> {
        let groups = Partitioning::new(setting).groups;
        self.over(relations, opened, |sender, receiver| {
            let rows = RowsFromMessages::new(receiver, Relation::schema(setting))?;
            Ok((RowsToMessages::new(sender, groups), rows))
        })
    }

    fn over<S, R, O: RowsOut + Send + 'static, I: RowsIn + Send + 'static>(
        &mut self,
        relations: Vec<Arc<Relation>>,
        opened: Opened<S, R>,
        mut rows: impl FnMut(S, R) -> Result<(O, I)>,
    ) -> Result<()> {
        let threads = opened.threads.into_iter().map(|ends| {
            let (out, input) = rows(ends.sender, ends.receiver)?;
            Ok((out, input, ends.runtime))
        });
        self.endpoints = opened.endpoints;
        self.add_all(relations, threads.collect::<Result<_>>()?)
    }

    fn add_all<O: RowsOut + Send + 'static, I: RowsIn + Send + 'static>(
        &mut self,
        relations: Vec<Arc<Relation>>,
        threads: Vec<(O, I, Option<ThreadRuntime>)>,
    ) -> Result<()> {
        for (relation, ends) in relations.into_iter().zip(threads) {
            self.threads.add_sides(relation, ends)?;
        }
        Ok(())
    }
}
