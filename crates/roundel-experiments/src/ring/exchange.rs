//! The same joins where rows are sent to who needs them: both relations are partitioned by their keys, or the one goes to all
//! hosts. Messages are moved by the endpoints of exchanges, and have lengths only; what rows cost is charged here.
//!
//! ```text
//!            each thread of a host
//!   own rows of R ─► scatter ─► sender ══► receiver ─► collect ─► build a table ┐
//!                       └─────── own share ──────────────►                      ▼
//!   own rows of S ─► scatter ─► sender ══► receiver ──────────────────────► probe it
//! ```
//!
//! As in queries, a table is built when all of its rows have come, and what comes of the other relation is taken afterwards:
//! until then its senders fill buffers, and wait. Where R goes to all hosts one thread of each builds the table, and S stays.

use super::costs::Costs;
use super::host::busy;
use super::simulation::{END_MAX, hardware};
use super::{HostPhases, RingJoin, RingMeasured, Way};
use crate::error::{Error, Result};
use crate::setting::{Setting, Transport};
use crate::transport::verbs::{SimulatedNodes, VerbsReceiver, VerbsSender, options};
use crate::transport::{Message as _, MessageBuffer as _, Receiver as _, Sender as _};
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_exchange::Design;
use roundel_exchange::wire::HEADER_LENGTH;
use roundel_verbs::sim::{Parameters, SimNode};
use roundel_verbs::{Context, Work, settle};
use std::sync::Arc;
use std::time::Duration;

/// What Roundel takes for so few connections.
const DESIGN: Design = Design::MemqSr;
/// Messages that a thread sends to a host, at most: of more rows they are larger than those of queries.
const MESSAGES: usize = 16;
/// Bytes of a message of queries. Those of the one relation are at most so many times as long as those of the other: each byte
/// of both stands for as many.
const MESSAGE_BYTES: usize = 64 << 10;
const LONGER: usize = 32;
/// Trains of packets that a message is sent in, about, where it has more packets.
const TRAINS: usize = 16;
/// Messages of a thread that wait for the thread of the same host that they are for.
const KEPT: usize = 2;
/// Bytes of the number of rows that stand in a message.
const NUMBER_BYTES: usize = size_of::<u64>();

/// The relations, in the order in which they are joined.
const BUILT: usize = 0;
const PROBED: usize = 1;

/// A relation that is sent.
#[derive(Clone, Copy)]
struct Sent {
    /// Rows of a host.
    own: u64,
    /// Whether each of them goes to all hosts.
    to_all: bool,
    message_bytes: usize,
}

/// What a task did.
#[derive(Default)]
struct Done {
    host: usize,
    /// Rows of either relation, once for each host that they are for.
    sent: [u64; 2],
    received: [u64; 2],
    bytes: u64,
    messages: u64,
    /// When the table was built, and when all was done, of a thread that joins.
    joined: Option<(Duration, Duration)>,
}

/// Runs a join that makes sense once.
///
/// # Errors
/// When hosts cannot reach each other, or rows are missing.
pub(super) fn run(join: &RingJoin) -> Result<RingMeasured> {
    let sides = sent(join);
    let longest = sides.iter().map(|side| side.message_bytes).max();
    let longest = longest.unwrap_or(MESSAGE_BYTES);
    let parameters = hardware(&join.fabric, longest, TRAINS)?;
    let costs = Arc::new(Costs::new(join, &parameters));
    let all = SimulatedNodes::new(parameters, join.fabric.seed(), join.hosts, join.threads);
    let mut ends: Vec<Vec<Vec<_>>> = Vec::new();
    ends.resize_with(join.hosts, || {
        (0..join.threads).map(|_| Vec::new()).collect()
    });
    for side in &sides {
        for (host, of_host) in open(&all, join, side)?.into_iter().enumerate() {
            for (thread, of_thread) in of_host.into_iter().enumerate() {
                ends[host][thread].push(of_thread);
            }
        }
    }
    let began = all.simulation.now();
    let (busy, done) = mpsc::unbounded::<Result<Done>>();
    for (host, ends) in ends.into_iter().enumerate() {
        let host = Host {
            number: host,
            node: all.nodes[host].clone(),
            join: Arc::new(join.clone()),
            costs: costs.clone(),
            parameters: all.parameters.clone(),
            busy: busy.clone(),
        };
        host.start(&sides, ends);
    }
    drop(busy);
    let done = all.finish(END_MAX, done)?;
    check(&done)?;
    let phases = |host| {
        let own = || done.iter().filter(|done| done.host == host);
        let joined = || own().filter_map(|done| done.joined);
        let built = joined().map(|(built, _)| built).max().unwrap_or(began);
        let ended = joined().map(|(_, ended)| ended).max().unwrap_or(began);
        HostPhases {
            set_up: (built - began).as_secs_f64(),
            join: (ended - built).as_secs_f64(),
            bytes: own().map(|done| done.bytes).sum(),
            elements: own().map(|done| done.messages).sum(),
            ..HostPhases::default()
        }
    };
    Ok(RingMeasured {
        hosts: (0..join.hosts).map(phases).collect(),
    })
}

/// What is sent of a join.
fn sent(join: &RingJoin) -> Vec<Sent> {
    let own = join.rows.of_host(join.hosts);
    let to_all = join.way == Way::Broadcast;
    let rows = match to_all {
        true => vec![own.spinning],
        false => vec![own.spinning, own.stationary],
    };
    let receivers = if to_all { 1 } else { join.hosts };
    let bytes = |rows: u64| rows as usize / join.threads / receivers * join.row_bytes / MESSAGES;
    let longest = rows.iter().map(|rows| bytes(*rows)).max().unwrap_or(0);
    let least = MESSAGE_BYTES.max(longest / LONGER);
    let side = |own: &u64| Sent {
        own: *own,
        to_all,
        message_bytes: bytes(*own).max(least),
    };
    rows.iter().map(side).collect()
}

/// The two sides of each thread of each host. Hosts have their own rows already.
fn open(
    all: &SimulatedNodes,
    join: &RingJoin,
    side: &Sent,
) -> Result<Vec<Vec<(VerbsSender, VerbsReceiver)>>> {
    let setting = Setting {
        nodes: join.hosts,
        threads: join.threads,
        message_bytes: Some(side.message_bytes),
        ..Setting::new(Transport::Design(DESIGN), join.fabric.clone())
    };
    let device = all.nodes[0].device();
    let options = options(
        &setting,
        DESIGN,
        device.capabilities(),
        Some(&all.parameters),
    )?;
    let (hosts, to_all) = (join.hosts, side.to_all);
    let groups = move |host| {
        let others: Vec<_> = others(host, hosts).collect();
        match to_all {
            true if hosts == 1 => Vec::new(),
            true => vec![others],
            false => others.into_iter().map(|other| vec![other]).collect(),
        }
    };
    let opened = all.open(&setting, &options, groups)?;
    Ok(opened.into_iter().map(|(ends, _)| ends).collect())
}

fn others(host: usize, hosts: usize) -> impl Iterator<Item = usize> {
    (0..hosts).filter(move |other| *other != host)
}

/// Whether all rows have come.
fn check(done: &[Done]) -> Result<()> {
    for side in [BUILT, PROBED] {
        let sent: u64 = done.iter().map(|done| done.sent[side]).sum();
        let received: u64 = done.iter().map(|done| done.received[side]).sum();
        if sent != received {
            return Err(Error::Wrong(format!(
                "{received} rows were received of {sent}"
            )));
        }
    }
    Ok(())
}

/// A host.
#[derive(Clone)]
struct Host {
    number: usize,
    node: SimNode,
    join: Arc<RingJoin>,
    costs: Arc<Costs>,
    parameters: Arc<Parameters>,
    busy: mpsc::UnboundedSender<Result<Done>>,
}

/// Who builds a table: takes how many rows each thread has for it, and says how many it has.
struct Table {
    rows: mpsc::UnboundedSender<u64>,
    built: oneshot::Receiver<u64>,
}

/// What comes of a relation, from other hosts and from this one.
struct Coming {
    receiver: VerbsReceiver,
    own: mpsc::Receiver<u64>,
}

impl Host {
    /// Begins all tasks: of each thread those that send, and one that joins.
    fn start(&self, sides: &[Sent], ends: Vec<Vec<(VerbsSender, VerbsReceiver)>>) {
        let mut tables = self.tables().into_iter();
        for (thread, ends) in ends.into_iter().enumerate() {
            let mut coming = Vec::new();
            for (side, (sender, receiver)) in ends.into_iter().enumerate() {
                let (to_own, own) = mpsc::channel(KEPT);
                coming.push(Coming { receiver, own });
                let (host, sent) = (self.clone(), sides[side]);
                self.begin(thread, async move {
                    host.send(thread, side, sent, sender, to_own).await
                });
            }
            if let Some(table) = tables.next() {
                let host = self.clone();
                self.begin(
                    thread,
                    async move { host.joins(thread, coming, table).await },
                );
            }
        }
    }

    fn begin(&self, thread: usize, task: impl Future<Output = Result<Done>> + Send + 'static) {
        let busy = self.busy.clone();
        let task = async move {
            let done = task.await;
            // Whoever waits for it has failed otherwise.
            let _ = busy.unbounded_send(done);
        };
        self.node.spawn(thread, task.boxed());
    }

    /// A table of each thread, or one of them all.
    fn tables(&self) -> Vec<Table> {
        let threads = self.join.threads;
        let (count, sharing) = match self.join.way {
            Way::Broadcast => (1, threads),
            Way::Repartition | Way::Cyclo => (threads, 1),
        };
        let table = |thread: usize| {
            let (rows, counted) = mpsc::unbounded::<u64>();
            let (tell, built): (Vec<_>, Vec<_>) =
                (0..sharing).map(|_| oneshot::channel::<u64>()).unzip();
            let (host, context) = (self.clone(), self.node.context_of(thread));
            let build = async move {
                let rows: u64 = counted.collect::<Vec<_>>().await.into_iter().sum();
                host.busy(&*context, host.costs.build(rows as f64)).await;
                for tell in tell {
                    // Whoever is gone has said why.
                    let _ = tell.send(rows);
                }
            };
            self.node.spawn(thread, build.boxed());
            built.into_iter().map(move |built| Table {
                rows: rows.clone(),
                built,
            })
        };
        (0..count).flat_map(table).collect()
    }

    /// Sends what a thread has of a relation: a message to each host in turn, each time around in another order.
    async fn send(
        &self,
        thread: usize,
        side: usize,
        sent: Sent,
        mut sender: VerbsSender,
        mut to_own: mpsc::Sender<u64>,
    ) -> Result<Done> {
        let hosts = self.join.hosts;
        let context = self.node.context_of(thread);
        let mut random = self.random(thread, side);
        let mut done = Done {
            host: self.number,
            ..Done::default()
        };
        // By group, and last those that stay here. What goes to all is not divided.
        let own = part(sent.own, thread, self.join.threads);
        let mut left: Vec<u64> = match sent.to_all {
            true => vec![own],
            false => (0..hosts).map(|_| share(own, hosts, &mut random)).collect(),
        };
        let here = hosts - 1;
        let most = self.rows_of(sent.message_bytes);
        let mut order: Vec<usize> = (0..left.len()).collect();
        while left.iter().any(|rows| *rows > 0) {
            order.shuffle(&mut random);
            for &group in &order {
                let rows = left[group].min(most);
                if rows == 0 {
                    continue;
                }
                left[group] -= rows;
                done.sent[side] += rows * if sent.to_all { hosts as u64 } else { 1 };
                let scatter = match sent.to_all {
                    true => 0.0,
                    false => self.costs.scatter(rows as f64),
                };
                if hosts > 1 && (sent.to_all || group != here) {
                    let mut buffer = sender.acquire(group).await?;
                    let code = self.costs.code(self.costs.bytes(rows));
                    self.busy(&*context, scatter + code).await;
                    buffer.write(0, &rows.to_le_bytes());
                    let length = self.length(rows).min(buffer.capacity());
                    sender.put(buffer, group, length, rows as u32).await?;
                } else {
                    self.busy(&*context, scatter).await;
                }
                if sent.to_all || group == here {
                    // Whoever is gone has said why.
                    let _ = to_own.send(rows).await;
                }
            }
        }
        drop(to_own);
        sender.finish().await?;
        Ok(done)
    }

    /// Collects what comes for a table, has it built, and finds the partners of the other relation's rows.
    async fn joins(&self, thread: usize, coming: Vec<Coming>, table: Table) -> Result<Done> {
        let context = self.node.context_of(thread);
        let mut done = Done {
            host: self.number,
            ..Done::default()
        };
        let mut coming = coming.into_iter();
        let Table { rows, built } = table;
        if let Some(built) = coming.next() {
            done.received[BUILT] = self.take(thread, built, false, &mut done).await?;
        }
        // Whoever is gone has said why.
        let _ = rows.unbounded_send(done.received[BUILT]);
        drop(rows);
        built.await.map_err(|_| stopped())?;
        let built = context.now();
        match coming.next() {
            Some(probed) => {
                done.received[PROBED] = self.take(thread, probed, true, &mut done).await?;
            }
            None => {
                let own = self.join.rows.of_host(self.join.hosts).stationary;
                let own = part(own, thread, self.join.threads) as f64;
                let spinning = self.join.rows.spinning as f64;
                // Nobody else wants the core.
                context.charge(self.cycles(self.costs.probe(own, spinning)));
                settle(&*context).await;
            }
        }
        done.joined = Some((built, context.now()));
        Ok(done)
    }

    /// Takes all that comes of a relation, to find its partners in a table or to build one; how many rows there were.
    async fn take(
        &self,
        thread: usize,
        coming: Coming,
        probes: bool,
        done: &mut Done,
    ) -> Result<u64> {
        let Coming {
            mut receiver,
            mut own,
        } = coming;
        // By a task of its own: one that looks for completions is always ahead.
        let (tell, told) = oneshot::channel();
        let (host, context) = (self.clone(), self.node.context_of(thread));
        let from_here = async move {
            let mut rows = 0;
            while let Some(number) = own.next().await {
                host.found(&*context, number, probes).await;
                rows += number;
            }
            // Whoever is gone has said why.
            let _ = tell.send(rows);
        };
        self.node.spawn(thread, from_here.boxed());
        let context = self.node.context_of(thread);
        let mut rows = 0;
        while let Some(message) = receiver.get().await? {
            let mut copy = vec![0; message.length()];
            message.copy_to(&mut copy)?;
            let number = copy.first_chunk::<NUMBER_BYTES>();
            let number = number.ok_or_else(|| Error::Wrong("a message is too short".into()))?;
            let number = u64::from_le_bytes(*number);
            let bytes = self.costs.bytes(number);
            self.busy(&*context, self.costs.code(bytes)).await;
            receiver.release(message);
            self.found(&*context, number, probes).await;
            rows += number;
            done.bytes += bytes as u64;
            done.messages += 1;
        }
        Ok(rows + told.await.map_err(|_| stopped())?)
    }

    /// Works on rows that have come.
    async fn found(&self, context: &dyn Context, rows: u64, probes: bool) {
        if probes {
            let spinning = self.join.rows.spinning as f64;
            let probe = self.costs.probe(rows as f64, spinning);
            self.busy(context, probe).await;
        }
    }

    async fn busy(&self, context: &dyn Context, nanoseconds: f64) {
        busy(&self.parameters, context, nanoseconds).await;
    }

    fn cycles(&self, nanoseconds: f64) -> Work {
        let cycle = self.parameters.cpu.cycle.as_picos() as f64 / 1e3;
        Work::Cycles((nanoseconds / cycle).round() as u64)
    }

    /// Rows that a message has room for.
    fn rows_of(&self, message_bytes: usize) -> u64 {
        let payload = self
            .parameters
            .length_of(self.parameters.bytes_for(message_bytes))
            - HEADER_LENGTH;
        (payload / self.join.row_bytes).max(1) as u64
    }

    /// Bytes of the payload of a message that stands for so many rows.
    fn length(&self, rows: u64) -> usize {
        let bytes = HEADER_LENGTH + self.costs.bytes(rows);
        (self.parameters.bytes_for(bytes) - HEADER_LENGTH).max(NUMBER_BYTES)
    }

    fn random(&self, thread: usize, side: usize) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.join.seed);
        // Streams of a generator have nothing to do with each other.
        let thread = self.number * self.join.threads + thread;
        random.set_stream((2 * thread + side) as u64);
        random
    }
}

fn stopped() -> Error {
    Error::Wrong("a host stopped".into())
}

/// How many of a host's rows are a thread's.
fn part(rows: u64, thread: usize, threads: usize) -> u64 {
    let before = |thread: usize| rows * thread as u64 / threads as u64;
    before(thread + 1) - before(thread)
}

/// How many of a thread's rows hashes have for one of so many hosts: about as many for each. The sum of twelve random numbers
/// is as good as normal.
fn share(rows: u64, hosts: usize, random: &mut ChaCha8Rng) -> u64 {
    let mean = rows as f64 / hosts as f64;
    let deviation = (mean * (1.0 - 1.0 / hosts as f64)).sqrt();
    let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    (mean + deviation * normal).max(0.0).round() as u64
}
