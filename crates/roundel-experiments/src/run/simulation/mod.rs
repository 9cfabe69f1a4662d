//! All nodes of a setting in simulation: each has a thread for each side of each of its threads. Endpoints are opened,
//! connected and driven by the same code as in processes; what is simulated besides is what the operators cost.

mod alone;
mod cost;
mod flow;
mod rows;

use crate::error::{Error, Result};
use crate::measured::{Endpoints, Measured, NodeMeasured, Rows};
use crate::setting::{SOCKET_MESSAGE_BYTES, Setting, Transport};
use crate::transport::AskEndpoints;
use crate::transport::qperf::Pairs;
use crate::transport::verbs::{Opening, VerbsReceiver, VerbsSender, options};
use crate::workload::by_node;
use cost::{Cost, Costly, Path};
use flow::{Flow, Times};
use futures::channel::mpsc;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use roundel_exchange::{Design, ExchangeOptions, Fabric};
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::sim::{Nic, Parameters, SimNode, Simulation};
use roundel_verbs::{ArenaOptions, settle};
use std::sync::Arc;
use std::time::Duration;

/// Of every simulation.
const SEED: u64 = 1;
/// Registered memory of a node: as much as it wants.
const REGISTERED_BYTES_MAX: usize = 1 << 40;
const SEGMENT_BYTES: usize = 4 << 20;
/// How often registered memory is looked at, where it is watched.
const MEMORY_LOOKS: u32 = 100;
/// Longest virtual time in which nodes are connected, and in which what was sent arrives.
const SETUP_MAX: Duration = Duration::from_secs(600);
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

/// Nodes in simulation.
struct Cluster {
    setting: Arc<Setting>,
    parameters: Arc<Parameters>,
    simulation: Simulation,
    nodes: Vec<SimNode>,
    /// Waits for them.
    observer: SimNode,
}

/// Runs a setting once.
pub(super) fn run(setting: &Setting) -> Result<Measured> {
    let parameters = setting.fabric.parameters();
    let parameters =
        parameters.ok_or_else(|| Error::Setting(format!("{} is not simulated", setting.fabric)))?;
    let parameters = match setting.transport {
        // Tuples are too short to stand for longer ones.
        Transport::ZeroCopy(_) => parameters.with_payload_times(1),
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
    let simulation = Simulation::new(parameters.clone(), SEED);
    let cluster = Cluster {
        nodes: (0..setting.nodes)
            .map(|_| simulation.add_node(2 * setting.threads))
            .collect(),
        observer: simulation.add_node(1),
        setting: Arc::new(setting.clone()),
        parameters: Arc::new(parameters),
        simulation,
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
            vec![Path::mpi(node, &cluster.parameters)]
        }),
        Transport::MpiProcesses => cluster.run_exchange(setting, MODEL_DESIGN_OF_THREADS, |node| {
            let processes = 0..setting.threads;
            processes
                .map(|_| Path::mpi(node, &cluster.parameters))
                .collect()
        }),
        Transport::Qperf | Transport::PingPong => cluster.run_qperf(),
        Transport::Partition | Transport::Consume => cluster.run_alone(),
        Transport::Grpc => Err(Error::Setting("gRPC is not simulated".into())),
    }
}

impl Cluster {
    /// Runs a task on each node, and all of them to their ends.
    fn each<T: Send + 'static>(
        &self,
        mut task: impl FnMut(usize) -> BoxFuture<'static, Result<T>>,
    ) -> Result<Vec<T>> {
        let results = Arc::new(Mutex::new(Vec::new()));
        let (busy, idle) = mpsc::unbounded::<()>();
        for (number, node) in self.nodes.iter().enumerate() {
            let (task, busy, results) = (task(number), busy.clone(), results.clone());
            let context = node.context();
            node.spawn(
                0,
                Box::pin(async move {
                    let result = task.await;
                    settle(&*context).await;
                    results.lock().push((number, result));
                    drop(busy);
                }),
            );
        }
        drop(busy);
        let all = idle.collect::<Vec<()>>();
        self.simulation.run(&self.observer, SETUP_MAX, all)?;
        let mut results = std::mem::take(&mut *results.lock());
        results.sort_by_key(|(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Does something on each node in turn that takes no virtual time but what it is charged.
    fn step<A: Send + 'static, T: Send + 'static>(
        &self,
        with: Vec<A>,
        step: impl Fn(usize, A) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        let step = Arc::new(step);
        let mut with: Vec<_> = with.into_iter().map(Some).collect();
        self.each(|node| {
            let (step, with) = (step.clone(), with[node].take());
            async move { step(node, with.expect("each node is asked once")) }.boxed()
        })
    }

    fn fabric(&self, node: usize, thread: usize, arena: &roundel_verbs::Arena) -> Result<Fabric> {
        let context = self.nodes[node].context_of(thread);
        let device = self.nodes[node].device();
        let channel = device.create_channel()?;
        channel.set_wait_policy(self.setting.wait.into());
        context.spawn(Box::pin(channel.drive()?));
        Ok(Fabric {
            device,
            arena: arena.clone(),
            channel,
            context,
        })
    }

    fn arena(&self, node: usize) -> roundel_verbs::Arena {
        self.nodes[node].device().arena(ArenaOptions {
            registered_bytes_max: REGISTERED_BYTES_MAX,
            segment_bytes: self.parameters.bytes_for(SEGMENT_BYTES),
        })
    }

    /// Opens the endpoints of all nodes and connects them.
    #[allow(clippy::type_complexity)] // The two sides of each thread, and who knows what they did.
    fn open(
        &self,
        setting: &Setting,
        options: &ExchangeOptions,
    ) -> Result<Vec<(Vec<(VerbsSender, VerbsReceiver)>, AskEndpoints)>> {
        let fabrics = (0..setting.nodes).map(|node| {
            let arena = self.arena(node);
            // What is sent is served by the thread that sends.
            let fabrics = (0..options.endpoints).map(|thread| self.fabric(node, thread, &arena));
            fabrics.collect::<Result<Vec<_>>>()
        });
        let fabrics = fabrics.collect::<Result<Vec<_>>>()?;
        let shared = Arc::new((setting.clone(), options.clone()));
        let with = shared.clone();
        let opened = self.step(fabrics, move |node, fabrics| {
            Opening::new(&with.0, node, fabrics, &with.1)
        })?;
        let (openings, offers): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let offers = Arc::new(offers);
        let accepted = self.step(openings, move |node, mut opening: Opening| {
            let answers = offers.iter().enumerate();
            let answers = answers.map(|(from, offers)| opening.accept(from, &offers[node]));
            let answers = answers.collect::<Result<Vec<_>>>()?;
            Ok((opening, answers))
        })?;
        let (openings, answers): (Vec<_>, Vec<_>) = accepted.into_iter().unzip();
        let answers = Arc::new(answers);
        self.step(openings, move |node, mut opening: Opening| {
            for (from, answers) in answers.iter().enumerate() {
                opening.connect(from, &answers[node])?;
            }
            opening.open(&shared.0)
        })
    }

    fn run_exchange(
        &self,
        setting: &Setting,
        design: Design,
        paths: impl Fn(&SimNode) -> Vec<Path>,
    ) -> Result<Measured> {
        let device = self.nodes[0].device();
        let options = options(
            setting,
            design,
            device.capabilities(),
            Some(&self.parameters),
        )?;
        let opened = self.open(setting, &options)?;
        let times = self.times();
        let (busy, done) = mpsc::unbounded::<Result<Done>>();
        let mut asked = Vec::new();
        for (node, (ends, ask)) in opened.into_iter().enumerate() {
            let cost = self.cost(node);
            let paths = paths(&self.nodes[node]).into_iter();
            let costs: Vec<_> = paths
                .map(|path| Cost {
                    path,
                    ..cost.clone()
                })
                .collect();
            let ask = Arc::new(Mutex::new(ask));
            let watched = self.watch_memory(node, times, ask.clone());
            asked.push((ask, cost.waited, watched));
            self.start(node, ends, times, &costs, &busy);
        }
        drop(busy);
        let ended = self.finish(done)?;
        let nodes = asked
            .iter()
            .enumerate()
            .map(|(node, (ask, waited, watched))| {
                let mut endpoints = (ask.lock())();
                endpoints.blocked_for_buffers = waited.lock().as_secs_f64();
                endpoints.registered_bytes *= self.parameters.payload_times as u64;
                NodeMeasured {
                    memory: std::mem::take(&mut *watched.lock()),
                    ..self.measured(node, times, &ended, endpoints)
                }
            });
        Ok(Measured::of(nodes.collect()))
    }

    /// Those of a run that begins now.
    fn times(&self) -> Times {
        Times {
            begin: self.simulation.now(),
            length: Duration::from_secs_f64(self.setting.seconds),
        }
    }

    /// Notes registered memory of a node where it is to be watched, until nobody is sent to.
    fn watch_memory(
        &self,
        node: usize,
        times: Times,
        ask: Arc<Mutex<AskEndpoints>>,
    ) -> Arc<Mutex<Vec<(f64, u64)>>> {
        let memory = Arc::<Mutex<Vec<_>>>::default();
        if self.setting.work_midway.is_none() {
            return memory;
        }
        let (context, into) = (self.nodes[node].context(), memory.clone());
        let payload_times = self.parameters.payload_times as u64;
        let watch = async move {
            while context.now() < times.until() {
                context.sleep(times.length / MEMORY_LOOKS).await;
                let now = (context.now() - times.begin).as_secs_f64();
                let bytes = (ask.lock())().registered_bytes * payload_times;
                into.lock().push((now, bytes));
            }
        };
        self.nodes[node].spawn(0, Box::pin(watch));
        memory
    }

    /// Begins both sides of each thread of a node, which belong in turn to its processes.
    fn start(
        &self,
        node: usize,
        ends: Vec<(VerbsSender, VerbsReceiver)>,
        times: Times,
        costs: &[Cost],
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
            let seed = (node * setting.threads + thread) as u64;
            let of_sender = setting.clone();
            let real = self.parameters.payload_times == 1 && sender.cost.copies;
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
            self.begin(node, self.setting.threads + thread, busy, receive.boxed());
        }
    }

    fn of_thread(&self, cost: &Cost, node: usize, thread: usize) -> Cost {
        Cost {
            context: self.nodes[node].context_of(thread),
            ..cost.clone()
        }
    }

    fn cost(&self, node: usize) -> Cost {
        Cost {
            context: self.nodes[node].context(),
            parameters: self.parameters.clone(),
            path: Path::Verbs,
            waited: Arc::default(),
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
        self.nodes[node].spawn(thread, Box::pin(task));
    }

    /// Runs everything to its end, or to the first failure.
    fn finish(&self, done: mpsc::UnboundedReceiver<Result<Done>>) -> Result<Vec<Done>> {
        let limit = Duration::from_secs_f64(self.setting.seconds) + END_MAX;
        let all = done.fold(Ok(Vec::new()), |all: Result<Vec<Done>>, one| {
            std::future::ready(all.and_then(|mut all| {
                all.push(one?);
                Ok(all)
            }))
        });
        self.simulation.run(&self.observer, limit, all)?
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
            cpu_seconds: self.nodes[node].worked().as_secs_f64(),
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
        let bytes = self.parameters.bytes_for(length);
        let mut threads = Vec::new();
        for node in 0..setting.nodes {
            let arena = self.arena(node);
            for thread in 0..setting.threads {
                let fabric = self.fabric(node, thread, &arena)?;
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
            let context = self.nodes[node].context_of(thread);
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
