//! Where nodes run: simulated, or as devices of this process.

use super::{Carrier, Hybrid};
use crate::error::{Error, Result};
use roundel_exchange::Fabric;
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::sim::{Nic, Parameters, SimNode, Simulation};
use roundel_verbs::{ArenaOptions, TokioContext, Transport, WaitPolicy};
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Longest time of a run, which is virtual in simulation.
const LIMIT: Duration = Duration::from_secs(600);
/// As much memory as nodes want.
const REGISTERED_BYTES_MAX: usize = 1 << 40;
const SEGMENT_BYTES: usize = 4 << 20;

/// Nodes, by their numbers.
pub(super) trait Hosts {
    /// What the operators of a node run on.
    fn fabric(&self, node: usize) -> Result<Fabric>;
    /// Starts a task on a thread of a node.
    fn spawn(&self, node: usize, thread: usize, task: BoxFuture<'static, ()>);
    /// Waits for something, and says how long it took.
    fn wait(&self, ended: impl Future<Output = ()> + Send + 'static) -> Result<Duration>;
    /// Bytes of a message that stands for one of so many.
    fn bytes_for(&self, length: usize) -> usize;
}

/// Simulated nodes.
pub(super) struct Simulated {
    parameters: Parameters,
    simulation: Simulation,
    nodes: Vec<SimNode>,
    /// Waits for them.
    observer: SimNode,
}

impl Simulated {
    pub(super) fn new(hybrid: &Hybrid, parameters: Parameters) -> Self {
        let parameters = match hybrid.carrier {
            Carrier::Rdma => parameters,
            // TCP is modelled over connections, whatever the NIC has.
            Carrier::Tcp | Carrier::TunedTcp => Parameters {
                nic: Nic {
                    transports: &[Transport::ReliableConnection],
                    ..parameters.nic
                },
                ..parameters
            },
        };
        let simulation = Simulation::new(parameters.clone(), hybrid.fabric.seed());
        let nodes: Vec<SimNode> = (0..hybrid.nodes)
            .map(|_| simulation.add_node(hybrid.threads))
            .collect();
        nodes[0].slow_down(hybrid.threads - 1, hybrid.slow);
        Self {
            observer: simulation.add_node(1),
            parameters,
            nodes,
            simulation,
        }
    }
}

impl Hosts for Simulated {
    fn fabric(&self, node: usize) -> Result<Fabric> {
        let host = &self.nodes[node];
        let memory = ArenaOptions {
            registered_bytes_max: REGISTERED_BYTES_MAX,
            segment_bytes: self.parameters.bytes_for(SEGMENT_BYTES),
        };
        let fabric = Fabric::on(host.device(), memory, host.context())?;
        fabric.channel.set_wait_policy(WaitPolicy::Poll);
        Ok(fabric)
    }

    fn spawn(&self, node: usize, thread: usize, task: BoxFuture<'static, ()>) {
        self.nodes[node].spawn(thread, task);
    }

    fn wait(&self, ended: impl Future<Output = ()> + Send + 'static) -> Result<Duration> {
        let began = self.simulation.now();
        self.simulation.run(&self.observer, LIMIT, ended)?;
        Ok(self.simulation.now() - began)
    }

    fn bytes_for(&self, length: usize) -> usize {
        self.parameters.bytes_for(length)
    }
}

/// Devices of this process, whose threads all nodes share.
pub(super) struct OfThisProcess {
    fabric: crate::FabricChoice,
    runtime: Runtime,
}

impl OfThisProcess {
    pub(super) fn new(hybrid: &Hybrid) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(Error::io("start threads"))?;
        Ok(Self {
            fabric: hybrid.fabric.clone(),
            runtime,
        })
    }
}

impl Hosts for OfThisProcess {
    fn fabric(&self, _: usize) -> Result<Fabric> {
        let _inside = self.runtime.enter();
        let context = Arc::new(TokioContext::current());
        Ok(Fabric::on(
            self.fabric.open(Ipv4Addr::LOCALHOST.into())?,
            ArenaOptions::default(),
            context,
        )?)
    }

    fn spawn(&self, _: usize, _: usize, task: BoxFuture<'static, ()>) {
        self.runtime.spawn(task);
    }

    fn wait(&self, ended: impl Future<Output = ()> + Send + 'static) -> Result<Duration> {
        let began = Instant::now();
        let ended = self
            .runtime
            .block_on(async { tokio::time::timeout(LIMIT, ended).await });
        ended.map_err(|_| Error::Wrong(format!("nodes did not end within {LIMIT:?}")))?;
        Ok(began.elapsed())
    }

    fn bytes_for(&self, length: usize) -> usize {
        length
    }
}
