//! All nodes of a setting in simulation: each has a thread for each side of each of its threads. Endpoints are opened,
//! connected and driven by the same code as in processes; what is simulated besides is what the operators cost.

mod alone;
mod cost;
mod flow;
mod rows;

use crate::error::{Error, Result};
use crate::measured::{Endpoints, Measured, NodeMeasured, Rows, Sides};
use crate::setting::{SOCKET_MESSAGE_BYTES, Setting, Transport};
use crate::transport::AskEndpoints;
use crate::transport::qperf::Pairs;
use crate::transport::verbs::{SimulatedNodes, VerbsReceiver, VerbsSender, options};
use crate::workload::by_node;
use cost::{Cost, Costly, Path};
use flow::{Flow, Times};
use futures::FutureExt as _;
use futures::channel::mpsc;
use parking_lot::Mutex;
use roundel_exchange::{Account, Design};
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::sim::{Nic, Parameters, SimNode};
use std::sync::Arc;
use std::time::Duration;

/// How often registered memory is looked at, where it is watched.
const MEMORY_LOOKS: u32 = 100;
/// Longest virtual time in which what was sent arrives.
const END_MAX: Duration = Duration::from_secs(60);
/// What models of other transports run over: one for a node, and one for each of its threads.
const MODEL_DESIGN: Design = Design::SemqSr;
const MODEL_DESIGN_OF_THREADS: Design = Design::MemqSr;

/// What a thread did.
struct Done {
    node: usize,
    sent: Vec<Rows>,
    received: Rows,
    /// While they were counted.
    received_bytes: u64,
}

/// What both sides of a node's threads spend their time on.
struct Accounts {
    sending: Account,
    receiving: Account,
}

impl Accounts {
    fn new(node: &SimNode) -> Self {
        Self {
            sending: Account::new(node.context()),
            receiving: Account::new(node.context()),
        }
    }
}

/// What is run, and the nodes that run it.
struct Cluster {
    setting: Arc<Setting>,
    all: SimulatedNodes,
}

fn is_of_datagrams(design: Design) -> bool {
    design.transport() == roundel_verbs::Transport::UnreliableDatagram
}

/// Runs a setting once.
pub(super) fn run(setting: &Setting) -> Result<Measured> {
    let parameters = setting.fabric.parameters();
    let parameters =
        parameters.ok_or_else(|| Error::Setting(format!("{} is not simulated", setting.fabric)))?;
    let parameters = match setting.transport {
        // Tuples are too short to stand for longer ones.
        Transport::ZeroCopy(_) => parameters.with_payload_times(1),
        Transport::Design(design) if is_of_datagrams(design) => {
            let length = setting
                .message_bytes
                .unwrap_or(parameters.link.packet_bytes);
            let bytes = parameters.bytes_for(length);
            parameters.with_memory_of_datagrams(bytes)
        }
        // Models run over connections, whatever the NIC has.
        Transport::Sockets | Transport::Mpi | Transport::MpiProcesses => Parameters {
            nic: Nic {
                transports: &[roundel_verbs::Transport::ReliableConnection],
                ..parameters.nic
            },
            ..parameters
        },
        _ => parameters,
    };
    let cluster = Cluster {
        all: SimulatedNodes::new(
            parameters,
            setting.fabric.seed(),
            setting.nodes,
            2 * setting.threads,
        ),
        setting: Arc::new(setting.clone()),
    };
    match setting.transport {
        Transport::Design(design) | Transport::ZeroCopy(design) => {
            cluster.run_exchange(setting, design, |_| vec![Path::Verbs])
        }
        Transport::Sockets => {
            let messages = Setting {
                message_bytes: setting.message_bytes.or(Some(SOCKET_MESSAGE_BYTES)),
                ..setting.clone()
            };
            cluster.run_exchange(&messages, MODEL_DESIGN, |_| vec![Path::Tcp])
        }
        Transport::Mpi => cluster.run_exchange(setting, MODEL_DESIGN, |node| {
            vec![Path::mpi(node, &cluster.all.parameters)]
        }),
        Transport::MpiProcesses => cluster.run_exchange(setting, MODEL_DESIGN_OF_THREADS, |node| {
            let processes = 0..setting.threads;
            processes
                .map(|_| Path::mpi(node, &cluster.all.parameters))
                .collect()
        }),
        Transport::Qperf | Transport::PingPong => cluster.run_qperf(),
        Transport::Partition | Transport::Consume => cluster.run_alone(),
        Transport::Grpc => Err(Error::Setting("gRPC is not simulated".into())),
    }
}

impl Cluster {
    fn run_exchange(
        &self,
        setting: &Setting,
        design: Design,
        paths: impl Fn(&SimNode) -> Vec<Path>,
    ) -> Result<Measured> {
        let device = self.all.nodes[0].device();
        let options = options(
            setting,
            design,
            device.capabilities(),
            Some(&self.all.parameters),
        )?;
        // Bytes that a message stands for and does not have.
        let message_bytes = options.message_bytes;
        let unseen = (self.all.parameters.length_of(message_bytes) - message_bytes) as u64;
        let groups = setting.groups();
        let opened = self.all.open(setting, &options, move |_| groups.clone())?;
        let times = self.times();
        let (busy, done) = mpsc::unbounded::<Result<Done>>();
        let mut asked = Vec::new();
        for (node, (ends, ask)) in opened.into_iter().enumerate() {
            let cost = self.cost(node);
            let paths = paths(&self.all.nodes[node]).into_iter();
            let costs: Vec<_> = paths
                .map(|path| Cost {
                    path,
                    ..cost.clone()
                })
                .collect();
            let ask = Arc::new(Mutex::new(ask));
            let watched = self.watch_memory(node, times, ask.clone(), unseen);
            let accounts = Accounts::new(&self.all.nodes[node]);
            self.start(node, ends, times, &costs, &accounts, &busy);
            asked.push((ask, cost.spent, watched, accounts));
        }
        drop(busy);
        let ended = self.finish(done)?;
        let nodes = asked
            .iter()
            .enumerate()
            .map(|(node, (ask, spent, watched, accounts))| {
                let mut endpoints = (ask.lock())();
                let spent = *spent.lock();
                endpoints.blocked_for_buffers = spent.for_buffers.as_secs_f64();
                endpoints.in_kernel = spent.in_kernel.as_secs_f64();
                endpoints.registered_bytes += endpoints.buffers * unseen;
                let mut sides = Sides::default();
                sides.add(&accounts.sending, &accounts.receiving);
                NodeMeasured {
                    spent: sides,
                    memory: std::mem::take(&mut *watched.lock()),
                    ..self.measured(node, times, &ended, endpoints)
                }
            });
        Ok(Measured::of(nodes.collect()))
    }

    /// Those of a run that begins now.
    fn times(&self) -> Times {
        Times {
            begin: self.all.simulation.now(),
            length: Duration::from_secs_f64(self.setting.seconds),
        }
    }

    /// Notes registered memory of a node where it is to be watched, until nobody is sent to.
    fn watch_memory(
        &self,
        node: usize,
        times: Times,
        ask: Arc<Mutex<AskEndpoints>>,
        unseen: u64,
    ) -> Arc<Mutex<Vec<(f64, u64)>>> {
        let memory = Arc::<Mutex<Vec<_>>>::default();
        if self.setting.work_midway.is_none() {
            return memory;
        }
        let (context, into) = (self.all.nodes[node].context(), memory.clone());
        let watch = async move {
            while context.now() < times.until() {
                context.sleep(times.length / MEMORY_LOOKS).await;
                let now = (context.now() - times.begin).as_secs_f64();
                let endpoints = (ask.lock())();
                let bytes = endpoints.registered_bytes + endpoints.buffers * unseen;
                into.lock().push((now, bytes));
            }
        };
        self.all.nodes[node].spawn(0, Box::pin(watch));
        memory
    }

    /// Begins both sides of each thread of a node, which belong in turn to its processes.
    fn start(
        &self,
        node: usize,
        ends: Vec<(VerbsSender, VerbsReceiver)>,
        times: Times,
        costs: &[Cost],
        accounts: &Accounts,
        busy: &mpsc::UnboundedSender<Result<Done>>,
    ) {
        let setting = &self.setting;
        for (thread, (sender, receiver)) in ends.into_iter().enumerate() {
            let cost = &costs[thread % costs.len()];
            let sending = self.of_thread(cost, node, thread);
            let receiving = self.of_thread(cost, node, setting.threads + thread);
            let sender = Costly {
                end: sender,
                cost: sending,
            };
            let seed = setting.fabric.seed_of(node * setting.threads + thread);
            let of_sender = setting.clone();
            let real = self.all.parameters.payload_times == 1 && sender.cost.copies;
            let flow = Flow {
                tuple_bytes: setting.tuple_bytes,
                work: setting.work_of(node),
                work_midway: setting.work_midway,
                times,
                groups: setting.groups().len(),
                seed,
            };
            let send = async move {
                let (mut sender, setting) = (sender, of_sender);
                let sent = match real {
                    true => rows::send(&setting, node, thread, &flow, sender).await?,
                    false => by_node(&setting, flow.send(&mut sender).await?),
                };
                Ok(Done {
                    node,
                    sent,
                    received: Rows::default(),
                    received_bytes: 0,
                })
            };
            let send = accounts.sending.measure(send);
            self.begin(node, thread, busy, send.boxed());
            // Of those that poll sockets there is one in a node.
            if matches!(cost.path, Path::Tcp) && thread > 0 {
                continue;
            }
            let setting = setting.clone();
            let receive = async move {
                let cost = receiving.clone();
                let mut receiver = Costly {
                    end: receiver,
                    cost: receiving,
                };
                let (received, received_bytes) = match real {
                    true => rows::receive(&setting, &flow, receiver).await?,
                    false => flow.receive(&mut receiver, &cost).await?,
                };
                Ok(Done {
                    node,
                    sent: Vec::new(),
                    received,
                    received_bytes,
                })
            };
            let receive = accounts.receiving.measure(receive);
            self.begin(node, self.setting.threads + thread, busy, receive.boxed());
        }
    }

    fn of_thread(&self, cost: &Cost, node: usize, thread: usize) -> Cost {
        Cost {
            context: self.all.nodes[node].context_of(thread),
            ..cost.clone()
        }
    }

    fn cost(&self, node: usize) -> Cost {
        Cost {
            context: self.all.nodes[node].context(),
            parameters: self.all.parameters.clone(),
            path: Path::Verbs,
            spent: Arc::default(),
            members: self.setting.groups()[0].len(),
            copies: !matches!(self.setting.transport, Transport::ZeroCopy(_)),
        }
    }

    fn begin(
        &self,
        node: usize,
        thread: usize,
        busy: &mpsc::UnboundedSender<Result<Done>>,
        task: BoxFuture<'static, Result<Done>>,
    ) {
        let busy = busy.clone();
        let task = async move {
            let done = task.await;
            // Whoever waits for it has failed otherwise.
            let _ = busy.unbounded_send(done);
        };
        self.all.nodes[node].spawn(thread, Box::pin(task));
    }

    /// Runs everything to its end, or to the first failure.
    fn finish(&self, done: mpsc::UnboundedReceiver<Result<Done>>) -> Result<Vec<Done>> {
        let limit = Duration::from_secs_f64(self.setting.seconds) + END_MAX;
        self.all.finish(limit, done)
    }

    fn measured(
        &self,
        node: usize,
        times: Times,
        ended: &[Done],
        endpoints: Endpoints,
    ) -> NodeMeasured {
        let counted = times.counted();
        let mut measured = NodeMeasured {
            started: counted.start.as_secs_f64(),
            ended: counted.end.as_secs_f64(),
            setup_seconds: times.begin.as_secs_f64(),
            cpu_seconds: self.all.nodes[node].worked().as_secs_f64(),
            sent: vec![Rows::default(); self.setting.nodes],
            endpoints,
            ..NodeMeasured::default()
        };
        for done in ended.iter().filter(|done| done.node == node) {
            measured.received.add(done.received);
            measured.received_bytes += done.received_bytes;
            for (sum, sent) in measured.sent.iter_mut().zip(&done.sent) {
                sum.add(*sent);
            }
        }
        measured
    }

    fn run_qperf(&self) -> Result<Measured> {
        let setting = &self.setting;
        let message_bytes = setting.message_bytes;
        let length = message_bytes.unwrap_or(crate::setting::MESSAGE_BYTES);
        let bytes = self.all.parameters.bytes_for(length);
        let mut threads = Vec::new();
        for node in 0..setting.nodes {
            let arena = self.all.arena(node);
            for thread in 0..setting.threads {
                let fabric = self.all.fabric(setting, node, thread, &arena)?;
                threads.push(Pairs::open(fabric, setting.nodes, bytes)?);
            }
        }
        for (at, (pairs, _)) in threads.iter().enumerate() {
            let (own, thread) = (at / setting.threads, at % setting.threads);
            for node in 0..setting.nodes {
                let (_, said) = &threads[node * setting.threads + thread];
                pairs.connect(node, &said[own])?;
            }
        }
        let kept = Arc::<Mutex<Vec<Pairs>>>::default();
        let round_trips = |(pairs, _): &(Pairs, _)| pairs.round_trips.clone();
        let round_trips: Vec<_> = threads.iter().map(round_trips).collect();
        let (busy, done) = mpsc::unbounded::<Result<Done>>();
        let times = self.times();
        for (at, (mut pairs, _)) in threads.into_iter().enumerate() {
            let (node, thread) = (at / setting.threads, at % setting.threads);
            let context = self.all.nodes[node].context_of(thread);
            let counted = times.counted();
            let pings = setting.transport == Transport::PingPong;
            let kept = kept.clone();
            let task = async move {
                let mut messages = 0;
                let heard = |count| {
                    messages += count * u64::from(counted.contains(&context.now()));
                };
                let (sent, received) = match pings {
                    true => {
                        pairs
                            .ping_pong(node, times.until(), || context.now())
                            .await?
                    }
                    false => pairs.run(|| context.now() >= times.until(), heard).await?,
                };
                // What was sent last is still on its way.
                kept.lock().push(pairs);
                Ok(Done {
                    node,
                    sent,
                    received,
                    received_bytes: messages * length as u64,
                })
            };
            self.begin(node, thread, &busy, task.boxed());
        }
        drop(busy);
        let ended = self.finish(done)?;
        let nodes = (0..setting.nodes).map(|node| {
            let own = &round_trips[node * setting.threads..][..setting.threads];
            let endpoints = Endpoints {
                round_trip: own
                    .iter()
                    .map(|all| Pairs::round_trip(all))
                    .fold(0.0, f64::max),
                ..Endpoints::default()
            };
            self.measured(node, times, &ended, endpoints)
        });
        Ok(Measured::of(nodes.collect()))
    }
}
