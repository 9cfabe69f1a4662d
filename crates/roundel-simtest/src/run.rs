//! Runs a plan.

use crate::join::{self, Joining};
use crate::keyed::by_partition;
use crate::nodes::{Node, Sides, name, open};
use crate::plan::{Pattern, Plan, dawdle};
use crate::rows::{Account, batch, schema};
use arrow::array::RecordBatch;
use futures::channel::mpsc;
use futures::future::{BoxFuture, Shared, try_join_all};
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_exchange::ExchangeError;
use roundel_exchange::operator::Broadcast;
use roundel_verbs::sim::{Parameters, Simulation, Trouble};
use roundel_verbs::{Arena, Transport};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// All has ended by then, well or with an error.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long it takes the others to learn that a node is lost, from outside of the exchange.
const DETECTION: Duration = Duration::from_secs(1);
/// An error comes at most so long after the node was lost that is its reason.
const ERROR_WITHIN: Duration = Duration::from_secs(5);

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
    let joining = Joining::of(plan);
    let (busy, idle) = mpsc::unbounded::<()>();
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ 1);
    for (number, node) in nodes.iter().enumerate() {
        // When the node has read the exchange before.
        let mut read: Turn = std::future::ready(()).boxed().shared();
        for (exchange, sides) in node.exchanges.iter().enumerate() {
            let place = Place {
                node,
                number,
                exchange,
                joining: joining.as_ref(),
            };
            start_source(plan, &place, sides, &told, &busy, &mut random)
                .map_err(|error| Broken::Wrong(error.to_string()))?;
            let ended = start_readers(plan, &place, sides, &told, &busy, &read, &mut random)
                .map_err(|error| Broken::Wrong(error.to_string()))?;
            if plan.multiplexer.is_some_and(|shared| shared.in_turn) {
                read = ended;
            }
        }
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
    if let (Some(joining), None) = (&joining, &verdict.error) {
        joining.check().map_err(Broken::Wrong)?;
    }
    let receives_missing = match plan.transport() {
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

/// Where a task belongs.
struct Place<'a> {
    node: &'a Node,
    number: usize,
    exchange: usize,
    /// The join that the exchange is an input of.
    joining: Option<&'a Arc<Joining>>,
}

/// The sending threads of a node. The last of them to end says so to all.
fn start_source(
    plan: &Plan,
    place: &Place<'_>,
    sides: &Sides,
    told: &Told,
    busy: &mpsc::UnboundedSender<()>,
    random: &mut ChaCha8Rng,
) -> Result<(), ExchangeError> {
    let (mut groups, mut broadcast) = (Vec::new(), None);
    for members in plan.groups() {
        let members = members.iter();
        let members: Vec<_> = members
            .map(|member| sides.destinations[*member].clone())
            .collect();
        if plan.pattern == Pattern::Broadcast {
            broadcast = Some(Arc::new(Broadcast::new(sides.shuffle.clone(), members)?));
        } else {
            groups.push(sides.shuffle.group(&members)?);
        }
    }
    let (feeding, fed) = mpsc::unbounded::<()>();
    for thread in 0..plan.threads {
        let mut random = ChaCha8Rng::seed_from_u64(random.random());
        let (shuffle, context) = (sides.shuffle.clone(), place.node.context.clone());
        let source = plan.source(place.exchange, place.number);
        let (plan, groups, feeding) = (plan.clone(), groups.clone(), feeding.clone());
        let broadcast = broadcast.clone();
        let (told, busy) = (told.clone(), busy.clone());
        let joining = place.joining.cloned();
        let task = (
            place.exchange,
            (place.number * plan.threads + thread) as u64,
        );
        let feed = async move {
            let sent = async {
                if let Some(joining) = joining {
                    let by_partition = by_partition(&groups, plan.threads);
                    return joining
                        .scatter(&plan, task, shuffle, by_partition, &*context, &mut random)
                        .await;
                }
                for number in 0..plan.batches {
                    if let Some(broadcast) = &broadcast {
                        dawdle(&*context, plan.dawdle, &mut random).await;
                        let partition = plan.partitions(0).start + thread as u32;
                        let batch = batch(source, partition, number, plan.rows);
                        broadcast.send(thread, partition, &batch).await?;
                    }
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
        place.node.host.spawn(thread, Box::pin(feed));
    }
    drop(feeding);
    let (shuffle, destinations) = (sides.shuffle.clone(), sides.destinations.clone());
    let (told, busy) = (told.clone(), busy.clone());
    let finish = async move {
        fed.collect::<Vec<()>>().await;
        let all = destinations.iter().map(|to| shuffle.finish(to));
        told.error(try_join_all(all).await.map(|_| ()));
        drop(busy);
    };
    place.node.host.spawn(0, Box::pin(finish));
    Ok(())
}

/// What a reader makes of what comes.
enum Expected {
    /// All rows of a source and partition.
    Sent(Account),
    /// Rows of an input of a join for a partition, of which it is known in the end whether they are all.
    Joined(Arc<Joining>, usize, u32),
}

impl Expected {
    fn add(&mut self, got: &RecordBatch) -> Result<(), String> {
        match self {
            Self::Sent(account) => account.add(got),
            Self::Joined(joining, input, partition) => joining.arrived(*input, *partition, got),
        }
    }

    fn close(&self) -> Result<(), String> {
        match self {
            Self::Sent(account) => account.close(),
            Self::Joined(joining, ..) => {
                joining.ended();
                Ok(())
            }
        }
    }
}

/// Ends when it is somebody's turn.
type Turn = Shared<BoxFuture<'static, ()>>;

/// The readers of a node: one for each source and partition. They begin when it is their turn; what is returned ends with
/// them.
fn start_readers(
    plan: &Plan,
    place: &Place<'_>,
    sides: &Sides,
    told: &Told,
    busy: &mpsc::UnboundedSender<()>,
    turn: &Turn,
    random: &mut ChaCha8Rng,
) -> Result<Turn, ExchangeError> {
    let (reading, read) = mpsc::unbounded::<()>();
    for (source, link) in sides.links.iter().enumerate() {
        let source = plan.source(place.exchange, source);
        for partition in plan.read_by(place.number) {
            let schema = match place.joining {
                Some(_) => join::schema(),
                None => schema(),
            };
            let mut stream = sides.receive.stream(link, partition, &schema)?;
            let mut random = ChaCha8Rng::seed_from_u64(random.random());
            let connected = plan.transport() == Transport::ReliableConnection;
            let ordered = plan.ordered || connected;
            let mut account = match place.joining {
                Some(joining) => Expected::Joined(joining.clone(), place.exchange, partition),
                None => Expected::Sent(Account::new(
                    source,
                    partition,
                    plan.batches,
                    plan.rows,
                    ordered,
                )),
            };
            let (context, most) = (place.node.context.clone(), plan.dawdle);
            let (told, busy, turn) = (told.clone(), (busy.clone(), reading.clone()), turn.clone());
            let read = async move {
                turn.await;
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
            place.node.host.spawn(partition as usize, Box::pin(read));
        }
    }
    let ended = async move { drop(read.collect::<Vec<()>>().await) };
    Ok(ended.boxed().shared())
}

/// What a control plane does: it tells each node which other one is lost.
fn watch(plan: &Plan, nodes: &[Node], told: &Told) {
    let lost = plan
        .faults
        .moments
        .iter()
        .filter(|moment| moment.what.is_final());
    for moment in lost {
        let survivors = nodes.iter().enumerate();
        let survivors = survivors.filter(|(number, _)| *number != moment.node);
        let sides =
            survivors.flat_map(|(_, node)| node.exchanges.iter().map(move |one| (node, one)));
        for (node, sides) in sides {
            let error = ExchangeError::PeerFailed {
                peer: name(moment.node),
                reason: "it is lost".into(),
            };
            let abort = sides.links[moment.node].aborter();
            let (shuffle, to) = (
                Arc::downgrade(&sides.shuffle),
                sides.destinations[moment.node].clone(),
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
