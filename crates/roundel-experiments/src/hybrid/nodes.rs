//! The nodes of an exchange, each with its operators, whose links are made.

use super::Hybrid;
use super::hosts::Hosts;
use crate::error::Result;
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::try_join_all;
use parking_lot::Mutex;
use roundel_exchange::{
    Architecture, Design, Destination, ExchangeError, ExchangeOptions, Fabric, Multiplexer,
    MultiplexerOptions, Receive, ReceiveLink, Route, Shuffle, Unlimited,
};
use roundel_simtest::linking::{self, End};
use roundel_verbs::{Guarded, Regions};
use std::sync::Arc;

/// Messages of a query that may wait for each peer.
const QUEUED: usize = 4;
/// A node with its operators.
pub(super) struct Node {
    pub fabric: Fabric,
    pub multiplexer: Option<Multiplexer>,
    /// Whoever takes a message from the kernel, where it carries them.
    pub kernel: Arc<Guarded<()>>,
    pub operators: Vec<Operator>,
}

pub(super) struct Operator {
    pub shuffle: Arc<Shuffle>,
    pub receive: Receive,
    /// With the nodes that they are to.
    pub destinations: Vec<(usize, Destination)>,
    pub links: Vec<ReceiveLink>,
}

/// The first error, which ends a run.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<ExchangeError>>>);

impl Operator {
    /// Tells all destinations that no more comes, once all who send have ended, with their ends of `fed`.
    pub(super) fn finish(
        &self,
        fed: mpsc::UnboundedReceiver<()>,
        failure: &Failure,
        busy: &mpsc::UnboundedSender<()>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (shuffle, destinations) = (self.shuffle.clone(), self.destinations.clone());
        let (failure, busy) = (failure.clone(), busy.clone());
        async move {
            fed.collect::<Vec<()>>().await;
            let all = destinations.iter().map(|(_, to)| shuffle.finish(to));
            failure.note(try_join_all(all).await.map(|_| ()));
            drop(busy);
        }
    }
}

/// Nodes, each linked with all others; and with itself, where some rows stay.
pub(super) fn open(hybrid: &Hybrid, hosts: &impl Hosts, with_itself: bool) -> Result<Vec<Node>> {
    let mut nodes = (0..hybrid.nodes)
        .map(|number| Node::open(hybrid, hosts, number))
        .collect::<Result<Vec<_>>>()?;
    for target in 0..nodes.len() {
        for source in 0..nodes.len() {
            if with_itself || source != target {
                link(hybrid, &mut nodes, source, target)?;
            }
        }
    }
    Ok(nodes)
}

impl Node {
    fn open(hybrid: &Hybrid, hosts: &impl Hosts, number: usize) -> Result<Self> {
        let fabric = hosts.fabric(number)?;
        let capabilities = fabric.device.capabilities().clone();
        let message_bytes = hosts.bytes_for(hybrid.message_bytes);
        let multiplexer = match hybrid.architecture {
            Architecture::Multiplexer => {
                let defaults = MultiplexerOptions::new(&capabilities);
                let sizes = MultiplexerOptions {
                    message_bytes,
                    query_bytes: message_bytes * (QUEUED * hybrid.nodes).max(64),
                    scheduling: hybrid.scheduling,
                    phase_bytes: hosts.bytes_for(defaults.phase_bytes),
                    long_bytes: hosts.bytes_for(defaults.long_bytes),
                    ..defaults
                };
                Some(Multiplexer::open(&fabric, sizes, &Regions::one())?)
            }
            Architecture::Endpoint | Architecture::Classic => None,
        };
        if let Some(multiplexer) = &multiplexer {
            hosts.spawn(number, 0, Box::pin(multiplexer.drive()));
        }
        let links = Arc::default();
        let design = match hybrid.architecture {
            Architecture::Multiplexer => Design::SemqSr,
            Architecture::Endpoint | Architecture::Classic => Design::MemqSr,
        };
        let options = ExchangeOptions {
            message_bytes,
            // Consumers count messages.
            batch_rows: 1,
            ..ExchangeOptions::new(design, hybrid.threads, &capabilities)
        };
        let options = match hybrid.architecture {
            Architecture::Classic => options.classic(hybrid.threads),
            Architecture::Endpoint | Architecture::Multiplexer => options,
        };
        let operators = (0..hybrid.operators).map(|operator| {
            let route = match &multiplexer {
                Some(own) => Route::through(own, operator as u64, &links),
                None => Route::beside(&links),
            };
            let (exchange, source) = (1 + operator as u64, number as u32);
            let shuffle = Shuffle::open(&fabric, &options, &route, exchange, source)?;
            Ok(Operator {
                shuffle: Arc::new(shuffle),
                receive: Receive::open(&fabric, &options, &route, &(Arc::new(Unlimited) as _))?,
                destinations: Vec::new(),
                links: Vec::new(),
            })
        });
        let operators = operators.collect::<Result<_>>()?;
        Ok(Self {
            kernel: Arc::new(Guarded::new((), &*fabric.context)),
            fabric,
            multiplexer,
            operators,
        })
    }
}

/// Links a source with a target, in all operators. A node has a partition for each of its threads.
fn link(hybrid: &Hybrid, nodes: &mut [Node], source: usize, target: usize) -> Result<()> {
    let threads = hybrid.threads as u32;
    let partitions = target as u32 * threads..(target as u32 + 1) * threads;
    for operator in 0..hybrid.operators {
        let end = |number: usize| End {
            name: format!("node {number}"),
            multiplexer: nodes[number].multiplexer.as_ref(),
        };
        let receive = &nodes[target].operators[operator].receive;
        let shuffle = &nodes[source].operators[operator].shuffle;
        let (link, destination) = linking::link(
            (&end(target), receive),
            (&end(source), shuffle),
            partitions.clone(),
        )?;
        nodes[target].operators[operator].links.push(link);
        let destinations = &mut nodes[source].operators[operator].destinations;
        destinations.push((target, destination));
    }
    Ok(())
}

impl Failure {
    pub(super) fn note(&self, ended: Result<(), ExchangeError>) {
        if let Err(error) = ended {
            self.0.lock().get_or_insert(error);
        }
    }

    /// The error, if there was one.
    pub(super) fn take(&self) -> Option<ExchangeError> {
        self.0.lock().take()
    }
}
