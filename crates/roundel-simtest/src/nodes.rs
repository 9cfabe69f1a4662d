//! The nodes of a plan: each with its exchanges, whose links are made.

use crate::linking::{self, End};
use crate::plan::{Multiplexed, Plan};
use roundel_exchange::{
    Buffers, CreditBy, Destination, ExchangeError, ExchangeOptions, Fabric, MemoryBudget,
    Multiplexer, MultiplexerOptions, Receive, ReceiveLink, Route, Shuffle, Unlimited,
};
use roundel_verbs::sim::{SimNode, Simulation};
use roundel_verbs::{Arena, ArenaOptions, Capabilities, Context, Regions, WaitPolicy};
use std::sync::Arc;

/// Memory of a node.
const ARENA: ArenaOptions = ArenaOptions {
    segment_bytes: 1 << 20,
    registered_bytes_max: 64 << 20,
};

/// A node with its exchanges.
pub(crate) struct Node {
    pub host: SimNode,
    pub context: Arc<dyn Context>,
    pub arena: Arena,
    pub exchanges: Vec<Sides>,
    multiplexer: Option<Multiplexer>,
}

/// The two sides of an exchange at a node.
pub(crate) struct Sides {
    pub shuffle: Arc<Shuffle>,
    pub receive: Receive,
    /// Both by node.
    pub destinations: Vec<Destination>,
    pub links: Vec<ReceiveLink>,
}

/// What errors call a node.
pub(crate) fn name(node: usize) -> String {
    format!("node {node}")
}

/// Nodes, each linked with all.
pub(crate) fn open(plan: &Plan, simulation: &Simulation) -> Result<Vec<Node>, ExchangeError> {
    let numbers = 0..plan.nodes;
    let mut nodes = numbers
        .map(|number| Node::open(plan, simulation, number))
        .collect::<Result<Vec<_>, _>>()?;
    for target in 0..nodes.len() {
        for source in 0..nodes.len() {
            link(plan, &mut nodes, source, target)?;
        }
    }
    Ok(nodes)
}

impl Node {
    fn open(plan: &Plan, simulation: &Simulation, number: usize) -> Result<Self, ExchangeError> {
        let host = simulation.add_node(plan.threads);
        let fabric = Fabric::on(host.device(), ARENA, host.context())?;
        if plan.awake {
            fabric.channel.set_wait_policy(WaitPolicy::Poll);
        }
        let capabilities = host.device().capabilities().clone();
        let multiplexer = plan
            .multiplexer
            .map(|shared| {
                Multiplexer::open(
                    &fabric,
                    shared.options(plan),
                    &Regions::made_up(shared.regions),
                )
            })
            .transpose()?;
        if let Some(multiplexer) = &multiplexer {
            host.spawn(0, Box::pin(multiplexer.drive()));
        }
        let budget: Arc<dyn MemoryBudget> = Arc::new(Unlimited);
        let links = Arc::default();
        let exchanges = (0..plan.exchanges()).map(|exchange| {
            let options = options(plan, &capabilities, multiplexer.as_ref());
            let route = match (&multiplexer, &plan.multiplexer) {
                (Some(own), Some(shared)) => {
                    Route::through(own, (exchange % shared.queries) as u64, &links)
                }
                _ => Route::direct(),
            };
            let (id, source) = (1 + exchange as u64, number as u32);
            let shuffle = Shuffle::open(&fabric, &options, &route, id, source)?;
            Ok(Sides {
                shuffle: Arc::new(shuffle),
                receive: Receive::open(&fabric, &options, &route, &budget)?,
                destinations: Vec::new(),
                links: Vec::new(),
            })
        });
        Ok(Self {
            context: host.context(),
            arena: fabric.arena.clone(),
            exchanges: exchanges.collect::<Result<_, ExchangeError>>()?,
            multiplexer,
            host,
        })
    }
}

impl Multiplexed {
    fn options(&self, plan: &Plan) -> MultiplexerOptions {
        MultiplexerOptions {
            design: plan.design(),
            message_bytes: plan.message_bytes,
            receives: self.receives,
            posted: self.posted,
            link_messages: self.link_messages,
            query_bytes: self.query_messages * plan.message_bytes,
            scheduling: self.scheduling,
            phase_bytes: self.phase_messages * plan.message_bytes,
            long_bytes: self.long_bytes,
        }
    }
}

fn options(
    plan: &Plan,
    capabilities: &Capabilities,
    multiplexer: Option<&Multiplexer>,
) -> ExchangeOptions {
    let mut options = ExchangeOptions::new(plan.design(), plan.threads, capabilities);
    options.message_bytes = plan.message_bytes;
    let buffers = plan.buffers.map_or(Buffers::Adaptive, Buffers::Fixed);
    options.window = buffers.window(plan.transport(), plan.message_bytes);
    // What comes to one region may overtake what has come to another.
    options.ordered = plan.ordered || multiplexer.is_some_and(|own| own.regions().count() > 1);
    options.on_loss = plan.on_loss;
    if plan.credit_in_memory {
        options.credit_by = CreditBy::Memory;
    }
    // Batches come out as they went in.
    options.batch_rows = 1;
    options
}

/// Links a source with a target, in all exchanges.
fn link(
    plan: &Plan,
    nodes: &mut [Node],
    source: usize,
    target: usize,
) -> Result<(), ExchangeError> {
    for exchange in 0..plan.exchanges() {
        let end = |number: usize| End {
            name: name(number),
            multiplexer: nodes[number].multiplexer.as_ref(),
        };
        let receive = &nodes[target].exchanges[exchange].receive;
        let shuffle = &nodes[source].exchanges[exchange].shuffle;
        let reads = plan.read_by(target);
        let (link, destination) =
            linking::link((&end(target), receive), (&end(source), shuffle), reads)?;
        nodes[target].exchanges[exchange].links.push(link);
        nodes[source].exchanges[exchange]
            .destinations
            .push(destination);
    }
    Ok(())
}
