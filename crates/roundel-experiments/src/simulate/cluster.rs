//! Runs a plan.

use super::plan::Plan;
use super::rows::{Account, batch, schema};
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::try_join_all;
use parking_lot::Mutex;
use rand::Rng as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use roundel_exchange::operator::Group;
use roundel_exchange::{
    Buffers, Destination, ExchangeError, ExchangeOptions, Fabric, MemoryBudget, Receive,
    ReceiveLink, Shuffle, Unlimited,
};
use roundel_verbs::sim::{Parameters, SimNode, Simulation, Trouble};
use roundel_verbs::{Arena, ArenaOptions, Context, Transport, WaitPolicy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// All has ended by then, well or with an error.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long it takes the others to learn that a node is lost, from outside of the exchange.
const DETECTION: Duration = Duration::from_secs(1);
/// An error comes at most so long after the node was lost that is its reason.
const ERROR_WITHIN: Duration = Duration::from_secs(5);
/// Memory of a node.
const ARENA: ArenaOptions = ArenaOptions {
    segment_bytes: 1 << 20,
    registered_bytes_max: 64 << 20,
};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The error, if one came that may come.
    pub error: Option<String>,
    /// Virtual time.
    pub took: Duration,
    /// Hash of all events.
    pub trace: u64,
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Rows are missing, repeated, or not those that were sent; or an error came without reason.
    #[error("wrong: {0}")]
    Wrong(String),
    /// Tasks wait for what will not happen.
    #[error("no progress: {0}")]
    NoProgress(String),
    /// Something panicked.
    #[error("crashed: {0}")]
    Crashed(String),
}

impl Broken {
    /// Whether it is the same kind of thing.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What the tasks of a run tell.
#[derive(Clone)]
struct Told(Arc<Mutex<Verdict>>);

#[derive(Default)]
struct Verdict {
    wrong: Option<String>,
    error: Option<String>,
}

/// A node with its exchange.
struct Node {
    host: SimNode,
    context: Arc<dyn Context>,
    arena: Arena,
    shuffle: Arc<Shuffle>,
    receive: Receive,
    /// Both by node.
    destinations: Vec<Destination>,
    links: Vec<ReceiveLink>,
}

/// Runs a plan to its end.
///
/// # Errors
/// When something is broken.
pub fn run(plan: &Plan) -> Result<Ended, Broken> {
    match catch_unwind(AssertUnwindSafe(|| run_once(plan))) {
        Ok(ended) => ended,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Broken::Crashed(text.unwrap_or_default()))
        }
    }
}

fn run_once(plan: &Plan) -> Result<Ended, Broken> {
    let simulation = Simulation::new(Parameters::edr(), plan.seed);
    let nodes = open(plan, &simulation).map_err(|error| Broken::Wrong(error.to_string()))?;
    let arenas: Vec<Arena> = nodes.iter().map(|node| node.arena.clone()).collect();
    simulation.set_faults(plan.faults.clone());
    let told = Told(Arc::default());
    let (busy, idle) = mpsc::unbounded::<()>();
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 1);
    for source in 0..nodes.len() {
        start_source(plan, &nodes, source, &told, &busy, &mut random)
            .map_err(|error| Broken::Wrong(error.to_string()))?;
        start_readers(plan, &nodes, source, &told, &busy, &mut random)
            .map_err(|error| Broken::Wrong(error.to_string()))?;
    }
    watch(plan, &nodes, &told);
    drop(busy);
    let observer = simulation.add_node(1);
    let over = told.clone();
    let ended = simulation.run_until(&observer, DEADLINE, idle.collect::<Vec<()>>(), || {
        over.is_over()
    });
    let took = simulation.now();
    let unwanted = simulation.unwanted();
    let trace = simulation.trace();
    drop(nodes);
    drop(simulation);
    let verdict = std::mem::take(&mut *told.0.lock());
    if let Some(wrong) = verdict.wrong {
        return Err(Broken::Wrong(wrong));
    }
    if let (None, Err(stopped)) = (&verdict.error, ended) {
        return Err(Broken::NoProgress(format!("{stopped:?} after {took:?}")));
    }
    if let Some(error) = &verdict.error {
        check_error(plan, error, took)?;
    }
    let receives_missing = match plan.design.transport() {
        Transport::UnreliableDatagram => unwanted.datagrams,
        _ => unwanted.requests,
    };
    if receives_missing > 0 && !plan.may_repeat() && verdict.error.is_none() {
        return Err(Broken::Wrong(format!(
            "{receives_missing} messages came without a receive for them: credit beyond what was posted"
        )));
    }
    for (node, arena) in arenas.iter().enumerate() {
        let allocated = arena.usage().allocated;
        if allocated > 0 {
            return Err(Broken::Wrong(format!(
                "node {node} has {allocated} bytes of buffers at the end"
            )));
        }
    }
    Ok(Ended {
        error: verdict.error,
        took,
        trace,
    })
}

/// Whether an error may be, and came in time.
fn check_error(plan: &Plan, error: &str, took: Duration) -> Result<(), Broken> {
    if !plan.may_fail() {
        return Err(Broken::Wrong(format!("an error without reason: {error}")));
    }
    let [moment] = &plan.faults.moments[..] else {
        return Ok(());
    };
    if moment.what.is_final() && took > moment.at + ERROR_WITHIN {
        return Err(Broken::NoProgress(format!(
            "node {} was lost at {:?}, and the error came at {took:?}: {error}",
            moment.node, moment.at
        )));
    }
    let alone = plan.faults.loss + plan.faults.corruption == 0.0 && plan.faults.packets.is_empty();
    let name = name(moment.node);
    if moment.what == Trouble::Crash && alone && !error.contains(&name) {
        return Err(Broken::Wrong(format!(
            "{name} was lost, and the error says: {error}"
        )));
    }
    Ok(())
}

fn name(node: usize) -> String {
    format!("node {node}")
}

fn options(plan: &Plan, host: &SimNode) -> ExchangeOptions {
    let mut options = ExchangeOptions::new(plan.design, plan.threads, host.device().capabilities());
    options.message_bytes = plan.message_bytes;
    let buffers = plan.buffers.map_or(Buffers::Adaptive, Buffers::Fixed);
    options.window = buffers.window(plan.message_bytes);
    options.ordered = plan.ordered;
    options.on_loss = plan.on_loss;
    // Batches come out as they went in.
    options.batch_rows = 1;
    options
}

/// Nodes, each linked with all.
fn open(plan: &Plan, simulation: &Simulation) -> Result<Vec<Node>, ExchangeError> {
    let budget: Arc<dyn MemoryBudget> = Arc::new(Unlimited);
    let mut nodes = Vec::new();
    for number in 0..plan.nodes {
        let host = simulation.add_node(plan.threads);
        let fabric = Fabric::on(host.device(), ARENA, host.context())?;
        if plan.awake {
            fabric.channel.set_wait_policy(WaitPolicy::Poll);
        }
        let options = options(plan, &host);
        nodes.push(Node {
            context: host.context(),
            arena: fabric.arena.clone(),
            shuffle: Arc::new(Shuffle::open(&fabric, &options, 1, number as u32)?),
            receive: Receive::open(&fabric, &options, &budget)?,
            destinations: Vec::new(),
            links: Vec::new(),
            host,
        });
    }
    for target in 0..nodes.len() {
        for source in 0..nodes.len() {
            let receive = &nodes[target].receive;
            let (link, offers) = receive.offer(&name(source), plan.read_by(target))?;
            let (destination, answers) = nodes[source].shuffle.accept(&offers, &name(target))?;
            receive.connect(&link, &answers)?;
            nodes[target].links.push(link);
            nodes[source].destinations.push(destination);
        }
    }
    Ok(nodes)
}

/// Now and then, lets time pass.
async fn dawdle(context: &dyn Context, most: Duration, random: &mut ChaCha8Rng) {
    if !most.is_zero() && random.random_bool(0.3) {
        let nanos = random.random_range(0..most.as_nanos() as u64);
        context.sleep(Duration::from_nanos(nanos)).await;
    }
}

/// The sending threads of a node. The last of them to end says so to all.
fn start_source(
    plan: &Plan,
    nodes: &[Node],
    source: usize,
    told: &Told,
    busy: &mpsc::UnboundedSender<()>,
    random: &mut ChaCha8Rng,
) -> Result<(), ExchangeError> {
    let node = &nodes[source];
    let groups: Vec<Group> = plan
        .groups()
        .iter()
        .map(|members| {
            let members: Vec<_> = members
                .iter()
                .map(|member| node.destinations[*member].clone())
                .collect();
            node.shuffle.group(&members)
        })
        .collect::<Result<_, _>>()?;
    let (feeding, fed) = mpsc::unbounded::<()>();
    for thread in 0..plan.threads {
        let mut random = ChaCha8Rng::seed_from_u64(random.random());
        let (shuffle, context) = (node.shuffle.clone(), node.context.clone());
        let (plan, groups, feeding) = (plan.clone(), groups.clone(), feeding.clone());
        let (told, busy) = (told.clone(), busy.clone());
        let feed = async move {
            let sent = async {
                for number in 0..plan.batches {
                    for (index, group) in groups.iter().enumerate() {
                        dawdle(&*context, plan.dawdle, &mut random).await;
                        let partition = plan.partitions(index).start + thread as u32;
                        let batch = batch(source, partition, number, plan.rows);
                        shuffle.send(group, partition, &batch).await?;
                    }
                }
                Ok(())
            };
            told.error(sent.await);
            drop((feeding, busy));
        };
        node.host.spawn(thread, Box::pin(feed));
    }
    drop(feeding);
    let (shuffle, destinations) = (node.shuffle.clone(), node.destinations.clone());
    let (told, busy) = (told.clone(), busy.clone());
    let finish = async move {
        fed.collect::<Vec<()>>().await;
        let all = destinations.iter().map(|to| shuffle.finish(to));
        told.error(try_join_all(all).await.map(|_| ()));
        drop(busy);
    };
    node.host.spawn(0, Box::pin(finish));
    Ok(())
}

/// The readers of a node: one for each source and partition.
fn start_readers(
    plan: &Plan,
    nodes: &[Node],
    target: usize,
    told: &Told,
    busy: &mpsc::UnboundedSender<()>,
    random: &mut ChaCha8Rng,
) -> Result<(), ExchangeError> {
    let node = &nodes[target];
    for (source, link) in node.links.iter().enumerate() {
        for partition in plan.read_by(target) {
            let mut stream = node.receive.stream(link, partition, &schema())?;
            let mut random = ChaCha8Rng::seed_from_u64(random.random());
            let connected = plan.design.transport() == Transport::ReliableConnection;
            let ordered = plan.ordered || connected;
            let mut account = Account::new(source, partition, plan.batches, plan.rows, ordered);
            let (context, most) = (node.context.clone(), plan.dawdle);
            let (told, busy) = (told.clone(), busy.clone());
            let read = async move {
                while let Some(got) = stream.next().await {
                    match got {
                        Ok(batch) => told.wrong(account.add(&batch)),
                        Err(error) => {
                            told.error(Err(error));
                            return;
                        }
                    }
                    dawdle(&*context, most, &mut random).await;
                }
                told.wrong(account.close());
                drop(busy);
            };
            node.host.spawn(partition as usize, Box::pin(read));
        }
    }
    Ok(())
}

/// What a control plane does: it tells each node which other one is lost.
fn watch(plan: &Plan, nodes: &[Node], told: &Told) {
    let lost = plan
        .faults
        .moments
        .iter()
        .filter(|moment| moment.what.is_final());
    for moment in lost {
        for (survivor, node) in nodes.iter().enumerate() {
            if survivor == moment.node {
                continue;
            }
            let error = ExchangeError::PeerFailed {
                peer: name(moment.node),
                reason: "it is lost".into(),
            };
            let abort = node.links[moment.node].aborter();
            let (shuffle, to) = (
                Arc::downgrade(&node.shuffle),
                node.destinations[moment.node].clone(),
            );
            let (context, at) = (node.context.clone(), moment.at + DETECTION);
            let told = told.clone();
            let tell = async move {
                context.sleep(at).await;
                abort(&error);
                if let Some(shuffle) = shuffle.upgrade() {
                    shuffle.close(&to, Some(error.clone()));
                }
                // Whoever waits for nothing of it has no other way to learn.
                told.error(Err(error));
            };
            node.host.spawn(0, Box::pin(tell));
        }
    }
}

impl Told {
    fn wrong(&self, found: Result<(), String>) {
        if let Err(wrong) = found {
            self.0.lock().wrong.get_or_insert(wrong);
        }
    }

    fn error(&self, ended: Result<(), ExchangeError>) {
        if let Err(error) = ended {
            self.0.lock().error.get_or_insert(error.to_string());
        }
    }

    /// Whether nothing is to be learnt any more: an error ends the whole exchange.
    fn is_over(&self) -> bool {
        let verdict = self.0.lock();
        verdict.wrong.is_some() || verdict.error.is_some()
    }
}
