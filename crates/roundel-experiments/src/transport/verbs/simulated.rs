//! Nodes in simulation: their endpoints are opened and connected by the same code as in processes, and what they say to
//! each other is handed over here.

use super::{Opening, VerbsReceiver, VerbsSender};
use crate::error::Result;
use crate::setting::Setting;
use crate::transport::AskEndpoints;
use futures::channel::mpsc;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use roundel_exchange::{ExchangeOptions, Fabric};
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::sim::{Parameters, SimNode, Simulation};
use roundel_verbs::{ArenaOptions, settle};
use std::sync::Arc;
use std::time::Duration;

/// Registered memory of a node: as much as it wants.
const REGISTERED_BYTES_MAX: usize = 1 << 40;
const SEGMENT_BYTES: usize = 4 << 20;
/// Longest virtual time in which nodes are connected.
const SETUP_MAX: Duration = Duration::from_secs(600);

/// Nodes, and the hardware that they are on.
pub(crate) struct SimulatedNodes {
    pub(crate) parameters: Arc<Parameters>,
    pub(crate) simulation: Simulation,
    pub(crate) nodes: Vec<SimNode>,
    /// Waits for them.
    observer: SimNode,
}

impl SimulatedNodes {
    /// So many nodes with so many threads each.
    pub(crate) fn new(parameters: Parameters, seed: u64, nodes: usize, threads: usize) -> Self {
        let simulation = Simulation::new(parameters.clone(), seed);
        Self {
            nodes: (0..nodes).map(|_| simulation.add_node(threads)).collect(),
            observer: simulation.add_node(1),
            parameters: Arc::new(parameters),
            simulation,
        }
    }

    /// Opens the endpoints of all nodes and connects them. A node sends to the groups that are its own.
    #[allow(clippy::type_complexity)] // The two sides of each thread, and who knows what they did.
    pub(crate) fn open(
        &self,
        setting: &Setting,
        options: &ExchangeOptions,
        groups: impl Fn(usize) -> Vec<Vec<usize>> + Send + Sync + 'static,
    ) -> Result<Vec<(Vec<(VerbsSender, VerbsReceiver)>, AskEndpoints)>> {
        let fabrics = (0..setting.nodes).map(|node| {
            let arena = self.arena(node);
            // What is sent is served by the thread that sends.
            let fabrics =
                (0..options.endpoints).map(|thread| self.fabric(setting, node, thread, &arena));
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
            opening.open(shared.0.threads, &groups(node))
        })
    }

    /// What an endpoint of a thread is opened on.
    pub(crate) fn fabric(
        &self,
        setting: &Setting,
        node: usize,
        thread: usize,
        arena: &roundel_verbs::Arena,
    ) -> Result<Fabric> {
        let context = self.nodes[node].context_of(thread);
        let device = self.nodes[node].device();
        let channel = device.create_channel()?;
        channel.set_wait_policy(setting.wait.into());
        context.spawn(Box::pin(channel.drive()?));
        Ok(Fabric {
            device,
            arena: arena.clone(),
            channel,
            context,
        })
    }

    /// Memory of a node.
    pub(crate) fn arena(&self, node: usize) -> roundel_verbs::Arena {
        self.nodes[node].device().arena(ArenaOptions {
            registered_bytes_max: REGISTERED_BYTES_MAX,
            segment_bytes: self.parameters.bytes_for(SEGMENT_BYTES),
        })
    }

    /// Runs tasks to their end, or to the first failure: what they send, until nobody can send any more.
    pub(crate) fn finish<T: Send + 'static>(
        &self,
        limit: Duration,
        done: mpsc::UnboundedReceiver<Result<T>>,
    ) -> Result<Vec<T>> {
        let all = done.fold(Ok(Vec::new()), |all: Result<Vec<T>>, one| {
            std::future::ready(all.and_then(|mut all| {
                all.push(one?);
                Ok(all)
            }))
        });
        self.simulation.run(&self.observer, limit, all)?
    }

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
}
