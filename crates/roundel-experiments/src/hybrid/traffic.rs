//! The operators of all nodes, and what they send to each other.

use super::hosts::Hosts;
use super::nodes::{self, Failure, Node, Operator};
use super::{Carrier, Hybrid, HybridMeasured, Order};
use crate::error::{Error, Result};
use arrow::array::{ArrayRef, FixedSizeBinaryArray, RecordBatch};
use arrow::error::ArrowError;
use futures::StreamExt as _;
use futures::channel::mpsc;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use roundel_exchange::operator::{Group, SharedStreams};
use roundel_exchange::{Architecture, ExchangeError, Multiplexer, PartitionStream};
use roundel_verbs::{Work, settle};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a batch has beside the bytes of its row, so that it is one message.
const FRAME_BYTES: usize = 320;

/// Runs it once.
pub(super) fn run(hybrid: &Hybrid, hosts: &impl Hosts) -> Result<HybridMeasured> {
    let nodes = nodes::open(hybrid, hosts, false)?;
    let bytes = hosts.bytes_for(hybrid.message_bytes);
    let row = vec![7; bytes - FRAME_BYTES];
    let column = FixedSizeBinaryArray::try_from_iter(std::iter::once(row));
    let wrong = |error: ArrowError| Error::Wrong(error.to_string());
    let column: ArrayRef = Arc::new(column.map_err(wrong)?);
    let batch = RecordBatch::try_from_iter([("row", column)]).map_err(wrong)?;
    let failure = Failure::default();
    let (busy, idle) = mpsc::unbounded::<()>();
    let task = Task {
        hybrid,
        hosts,
        batch: &batch,
        failure: &failure,
        busy: &busy,
    };
    for (number, node) in nodes.iter().enumerate() {
        for (index, operator) in node.operators.iter().enumerate() {
            task.send(number, index, node, operator)?;
            task.consume(number, node, operator)?;
        }
    }
    drop(busy);
    let took = hosts.wait(async move { drop(idle.collect::<Vec<()>>().await) })?;
    if let Some(error) = failure.take() {
        return Err(error.into());
    }
    let seconds = took.as_secs_f64();
    let messages = hybrid.operators * hybrid.threads * hybrid.messages * (hybrid.nodes - 1);
    let schedule = nodes[0].multiplexer.as_ref().map(Multiplexer::report);
    let schedule = schedule.unwrap_or_default().schedule;
    let devices = || nodes.iter().map(|node| &node.fabric);
    let most = |values: &mut dyn Iterator<Item = usize>| values.max().unwrap_or(0);
    Ok(HybridMeasured {
        seconds,
        bytes_per_second: (messages * hybrid.message_bytes) as f64 / seconds,
        queue_pairs: most(&mut devices().map(|one| one.device.queue_pairs().most())),
        registered_bytes: most(&mut devices().map(|one| one.arena.usage().registered_max)),
        phases: schedule.phases,
        stalled_seconds: schedule.stalled.as_secs_f64(),
    })
}

/// Messages that are to be sent, by which group they are for.
struct Parts {
    order: Vec<usize>,
    begun: AtomicUsize,
}

impl Parts {
    fn new(order: Vec<usize>) -> Arc<Self> {
        Arc::new(Self {
            order,
            begun: AtomicUsize::new(0),
        })
    }

    /// The next one, with its number.
    fn next(&self) -> Option<(usize, usize)> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        Some((number, *self.order.get(number)?))
    }
}

/// What tasks have in common.
struct Task<'a, H> {
    hybrid: &'a Hybrid,
    hosts: &'a H,
    batch: &'a RecordBatch,
    failure: &'a Failure,
    busy: &'a mpsc::UnboundedSender<()>,
}

impl<H: Hosts> Task<'_, H> {
    /// The sending threads of an operator. Through a multiplexer any of them does what is to be done next; units and
    /// threads with endpoints of their own have their parts.
    fn send(&self, number: usize, index: usize, node: &Node, operator: &Operator) -> Result<()> {
        let hybrid = self.hybrid;
        let (carrier, length) = (hybrid.carrier, hybrid.message_bytes);
        let groups = operator.destinations.iter().map(|(node, destination)| {
            let group = operator.shuffle.group(std::slice::from_ref(destination))?;
            Ok((*node, group))
        });
        let groups = groups.collect::<Result<Vec<(usize, Group)>, ExchangeError>>()?;
        // Through a multiplexer whoever has time sends the next one.
        let shared = hybrid.architecture == Architecture::Multiplexer;
        let in_any_order = |thread: usize, times: usize| {
            let task = (index * hybrid.nodes + number) * hybrid.threads + thread;
            let mut order: Vec<usize> = (0..times).flat_map(|_| 0..groups.len()).collect();
            order.shuffle(&mut ChaCha8Rng::seed_from_u64(hybrid.fabric.seed_of(task)));
            Parts::new(order)
        };
        let threads = hybrid.threads;
        let parts: Vec<Arc<Parts>> = match hybrid.order {
            Order::Random if shared => {
                vec![in_any_order(0, hybrid.messages * threads); threads]
            }
            Order::Random => (0..threads)
                .map(|thread| in_any_order(thread, hybrid.messages))
                .collect(),
            Order::Flows => {
                let flow = |to| vec![to; hybrid.messages * threads];
                (0..groups.len()).map(|to| Parts::new(flow(to))).collect()
            }
        };
        let (feeding, fed) = mpsc::unbounded::<()>();
        for (task, parts) in parts.into_iter().enumerate() {
            let thread = task % threads;
            let (shuffle, failure) = (operator.shuffle.clone(), self.failure.clone());
            let (batch, busy, feeding) = (self.batch.clone(), self.busy.clone(), feeding.clone());
            let context = node.fabric.context.clone();
            let groups: Vec<_> = groups
                .iter()
                .map(|(node, group)| (*node, group.by(thread)))
                .collect();
            let feed = async move {
                let sent = async {
                    while let Some((turn, to)) = parts.next() {
                        let (node, group) = &groups[to];
                        if carrier != Carrier::Rdma {
                            carrier.charge(&*context, length);
                            settle(&*context).await;
                        }
                        let partition = (node * threads + (thread + turn) % threads) as u32;
                        shuffle.send(group, partition, &batch).await?;
                    }
                    Ok(())
                };
                failure.note(sent.await);
                drop((busy, feeding));
            };
            self.hosts.spawn(number, thread, Box::pin(feed));
        }
        drop(feeding);
        let finish = operator.finish(fed, self.failure, self.busy);
        self.hosts.spawn(number, 0, Box::pin(finish));
        Ok(())
    }

    /// The consumers of an operator: each has a partition by itself, or through a multiplexer shares all with the others.
    fn consume(&self, number: usize, node: &Node, operator: &Operator) -> Result<()> {
        let hybrid = self.hybrid;
        let schema = self.batch.schema();
        let stream = |thread: usize| {
            let partition = (number * hybrid.threads + thread) as u32;
            let links = operator.links.iter();
            let streams = links.map(|link| operator.receive.stream(link, partition, &schema));
            streams.collect::<Result<Vec<PartitionStream>, _>>()
        };
        let by_thread = (0..hybrid.threads).map(stream);
        let by_thread = by_thread.collect::<Result<Vec<_>, _>>()?;
        let shared: Vec<SharedStreams> = match hybrid.architecture {
            Architecture::Multiplexer => {
                let all = SharedStreams::new(by_thread.into_iter().flatten());
                vec![all; hybrid.threads]
            }
            Architecture::Endpoint | Architecture::Classic => {
                by_thread.into_iter().map(SharedStreams::new).collect()
            }
        };
        let work = Work::Cycles(hybrid.work_cycles);
        let (carrier, length) = (hybrid.carrier, hybrid.message_bytes);
        for (thread, streams) in shared.into_iter().enumerate() {
            let (failure, busy) = (self.failure.clone(), self.busy.clone());
            let (context, kernel) = (node.fabric.context.clone(), node.kernel.clone());
            let consume = async move {
                while let Some(got) = streams.next().await {
                    failure.note(got.map(|_| ()));
                    if carrier != Carrier::Rdma {
                        let _held = kernel.lock();
                        carrier.charge(&*context, length);
                    }
                    context.charge(work);
                    settle(&*context).await;
                }
                drop(busy);
            };
            self.hosts.spawn(number, thread, Box::pin(consume));
        }
        Ok(())
    }
}
