//! The producer's side: runs partitions of a task and sends their rows.

use crate::broadcast::{self, BroadcastState};
use crate::causes::Causes;
use crate::devices::Devices;
use crate::error::TransportError;
use crate::fabric::Fabric;
use crate::failure::{exchange_error, failed, failed_with};
use crate::forget::forget_ended_tasks;
use crate::node::ExchangeNode;
use crate::protocol::SettingMessage;
use crate::protocol::{Accepted, Answer, AnswerKind, Begin, Execute, Failed, Sent, query_id};
use crate::scatter::{self, ScatterState, Way};
use crate::skew::Agreements;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey, Worker};
use futures::future::{BoxFuture, try_join_all};
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use roundel_exchange::operator::Group;
use roundel_exchange::{Destination, LinkAddress, Shuffle};
use std::ops::Range;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// The exchange service of one worker process.
#[derive(Clone)]
pub struct ExchangeService {
    devices: Devices,
    worker: Worker,
    /// The joins whose tasks agree at this worker on heavy keys.
    pub(super) agreements: Agreements,
    pub(super) causes: Causes,
    _forgetting: Arc<AbortOnDropHandle<()>>,
}

impl ExchangeService {
    pub(crate) fn new(devices: Devices, worker: Worker) -> Self {
        let forgetting = tokio::spawn(forget_ended_tasks(worker.clone()));
        Self {
            devices,
            worker,
            agreements: Agreements::default(),
            causes: Causes::default(),
            _forgetting: Arc::new(AbortOnDropHandle::new(forgetting)),
        }
    }

    /// This worker's end of a fabric that a peer named.
    pub(super) fn node(&self, fabric: &str) -> Result<&Arc<ExchangeNode>, String> {
        let fabric: Fabric = fabric
            .parse()
            .map_err(|error: TransportError| error.to_string())?;
        let node = self.devices.get(fabric);
        node.map_err(|error| format!("this worker has {error}"))?
            .ok_or_else(|| format!("{fabric} is no fabric of an exchange"))
    }

    /// Starts a producer; its first answer has the links.
    pub(super) async fn run(&self, request: Execute) -> BoxStream<'static, Answer> {
        let started = self.start(&request).await;
        let (query, causes) = (query_id(&request.query).ok(), self.causes.clone());
        let note = move |failed: &Failed| {
            if let Some(query) = query {
                causes.note(query, failed);
            }
        };
        let producer = match started {
            Ok(producer) => producer,
            Err(failed) => {
                note(&failed);
                let failed = Answer {
                    kind: Some(AnswerKind::Failed(failed)),
                };
                return futures::stream::once(async { failed }).boxed();
            }
        };
        let accepted = Answer {
            kind: Some(AnswerKind::Accepted(producer.accepted.clone())),
        };
        let run = futures::stream::unfold((Some(producer), note), async |(producer, note)| {
            let mut producer = producer?;
            match producer.step().await {
                Ok(Some(sent)) => Some((AnswerKind::Sent(sent), (Some(producer), note))),
                Ok(None) => None,
                Err(failed) => {
                    // Before its links close.
                    note(&failed);
                    Some((AnswerKind::Failed(failed), (None, note)))
                }
            }
        });
        let answers = run.map(|kind| Answer { kind: Some(kind) });
        futures::stream::once(async { accepted })
            .chain(answers)
            .boxed()
    }

    async fn start(&self, request: &Execute) -> Result<Producer, Failed> {
        let node = self.node(&request.fabric).map_err(failed_with)?;
        let exchange_failed = |error| failed(exchange_error(node.name(), error));
        let setting = request.setting.as_ref().and_then(SettingMessage::read);
        let setting = setting.ok_or_else(|| {
            failed_with("a task was asked for rows, but not how to exchange them".to_owned())
        })?;
        let task = request.request().map_err(failed)?;
        let key = task.task_key;
        let rows = self.rows(request, task).await?;
        let offers = request
            .offers
            .iter()
            .map(|offer| LinkAddress::from_bytes(offer, &request.consumer))
            .collect::<Result<Vec<_>, _>>()
            .map_err(exchange_failed)?;
        let shuffle = node.shuffle(key, &setting).map_err(transport_failed)?;
        let (destination, answers) = shuffle
            .accept(&offers, &request.consumer)
            .map_err(exchange_failed)?;
        // Closes the destination however this ends.
        let link = Arc::new(Link {
            node: node.clone(),
            shuffle,
            destination,
        });
        node.note_queue_pairs(link.shuffle.report().queue_pairs);
        let schema = rows.schema().ok_or_else(nothing_asked_for)?;
        let sending = rows.send(&link)?;
        Ok(Producer {
            accepted: Accepted {
                answers: answers.iter().map(LinkAddress::to_bytes).collect(),
                schema: encode_schema(&schema).map_err(failed)?,
            },
            sending,
            finishing: FuturesUnordered::new(),
            link,
            reported: false,
        })
    }
}

/// The rows of a task, for one consumer.
enum Rows {
    /// Hashed and scattered over all consumers.
    Scattered {
        state: Arc<ScatterState>,
        context: Arc<TaskContext>,
        task: TaskKey,
        partitions: Range<usize>,
        total: usize,
        schema: SchemaRef,
    },
    /// What all of so many consumers get.
    Broadcast {
        state: Arc<BroadcastState>,
        streams: Vec<SendableRecordBatchStream>,
        total: usize,
    },
    /// Partitions that are its own, from the first one on.
    Own {
        first: usize,
        streams: Vec<SendableRecordBatchStream>,
    },
}

impl ExchangeService {
    /// The shuffle of a task, whose plan is not executed before all consumers are there.
    async fn scattered(
        &self,
        task_key: TaskKey,
    ) -> Result<(Arc<ScatterState>, Arc<TaskContext>), Failed> {
        let planned = ExecuteTaskRequest {
            task_key,
            target_partition_start: 0,
            target_partition_end: 0,
            producer_head: ProducerHead::None,
        };
        let (_, context) = self.worker.execute_task(planned).await.map_err(failed)?;
        let state = scatter::of_task(&context).ok_or_else(|| {
            failed_with("a task was asked to shuffle, which its plan does not".to_owned())
        })?;
        Ok((state, context))
    }

    /// A consumer reads, of a task that scatters.
    pub(super) async fn want(&self, begin: Begin) -> Result<(), Failed> {
        let node = self.node(&begin.fabric).map_err(failed_with)?;
        let task = begin.task().map_err(failed)?;
        let (state, context) = self.scattered(task).await?;
        state.want(node, task, &context)
    }

    /// The rows that a consumer asks for.
    async fn rows(&self, request: &Execute, task: ExecuteTaskRequest) -> Result<Rows, Failed> {
        let partitions = task.target_partition_start..task.target_partition_end;
        let total = request.head.as_ref().and_then(|head| head.hash_partitions);
        if let Some(total) = total {
            let (state, context) = self.scattered(task.task_key).await?;
            return Ok(Rows::Scattered {
                schema: state.schema()?,
                state,
                context,
                task: task.task_key,
                partitions,
                total: total as usize,
            });
        }
        let first = request.names().start as usize;
        let (streams, context) = self.worker.execute_task(task).await.map_err(failed)?;
        let consumers = request.broadcast_consumers().filter(|total| *total > 1);
        Ok(match consumers.zip(broadcast::of_task(&context)) {
            Some((total, state)) => Rows::Broadcast {
                state,
                streams,
                total,
            },
            None => Rows::Own { first, streams },
        })
    }
}

type Sending = FuturesUnordered<BoxFuture<'static, Result<usize, Failed>>>;

impl Rows {
    fn schema(&self) -> Option<SchemaRef> {
        match self {
            Self::Scattered { schema, .. } => Some(schema.clone()),
            Self::Broadcast { streams, .. } | Self::Own { streams, .. } => {
                streams.first().map(|stream| stream.schema())
            }
        }
    }

    /// Begins to send. Each lane ends by itself: its consumer may read it to its end before it reads
    /// another.
    fn send(self, link: &Arc<Link>) -> Result<Sending, Failed> {
        let lanes = link.destination.lanes();
        match self {
            Self::Scattered {
                state,
                context,
                task,
                partitions,
                total,
                ..
            } => {
                let way = Way {
                    node: &link.node,
                    shuffle: &link.shuffle,
                    group: &link.group()?,
                };
                let joined = state.join(way, partitions, total, task, &context)?;
                let ended = joined.ended().boxed().shared();
                let lane = |lane| ended.clone().map(move |ended| ended.map(|()| lane)).boxed();
                Ok((0..lanes).map(lane).collect())
            }
            Self::Broadcast {
                state,
                streams,
                total,
            } => {
                let way = broadcast::Way {
                    node: &link.node,
                    shuffle: &link.shuffle,
                    destination: &link.destination,
                };
                let joined = state.join(way, streams, total);
                let lane = |lane| {
                    let ended = joined.clone().ended(lane);
                    async move { ended.await.map(|()| lane) }.boxed()
                };
                Ok((0..lanes).map(lane).collect())
            }
            Self::Own { first, streams } => {
                let group = link.group()?;
                let mut senders: Vec<Vec<_>> = (0..lanes).map(|_| Vec::new()).collect();
                for (index, stream) in streams.into_iter().enumerate() {
                    let partition = (first + index) as u32;
                    let group = group.by(partition as usize);
                    let send = send_partition(link.clone(), group, partition, stream);
                    let account = link.node.account();
                    link.shuffle.account(account.clone());
                    let send = tokio::spawn(account.measure(send));
                    senders[link.destination.lane_of(partition)].push(AbortOnDropHandle::new(send));
                }
                let senders = senders.into_iter().enumerate();
                Ok(senders
                    .map(|(lane, senders)| sent(lane, senders).boxed())
                    .collect())
            }
        }
    }
}

/// A link to one consumer; dropped, nothing more is sent over it.
struct Link {
    node: Arc<ExchangeNode>,
    shuffle: Arc<Shuffle>,
    destination: Destination,
}

impl Link {
    /// The consumer alone.
    fn group(&self) -> Result<Group, Failed> {
        let group = self.shuffle.group(std::slice::from_ref(&self.destination));
        group.map_err(|error| failed(exchange_error(self.node.name(), error)))
    }

    async fn finish(&self, lane: usize) -> Result<(), Failed> {
        let finished = self.shuffle.finish_lane(&self.destination, lane).await;
        finished.map_err(|error| failed(exchange_error(self.node.name(), error)))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shuffle.close(&self.destination, None);
    }
}

/// A task's partitions on their way to one consumer. Dropped, they stop.
struct Producer {
    accepted: Accepted,
    /// Lanes whose partitions are being sent.
    sending: Sending,
    /// Lanes whose consumer is being told that no more comes.
    finishing: FuturesUnordered<BoxFuture<'static, Result<(), Failed>>>,
    link: Arc<Link>,
    reported: bool,
}

impl Producer {
    /// Sends everything and reports, then waits until the consumer has it.
    async fn step(&mut self) -> Result<Option<Sent>, Failed> {
        loop {
            if self.sending.is_empty() && !std::mem::replace(&mut self.reported, true) {
                return Ok(Some(self.report()));
            }
            tokio::select! {
                Some(lane) = self.sending.next() => {
                    let (lane, link) = (lane?, Arc::clone(&self.link));
                    self.finishing.push(async move { link.finish(lane).await }.boxed());
                }
                Some(finished) = self.finishing.next() => finished?,
                else => return Ok(None),
            }
        }
    }

    fn report(&self) -> Sent {
        let link = &self.link;
        let sent = link.shuffle.destination_report(&link.destination);
        let schedule = link.node.multiplexers().phases_since();
        Sent {
            messages: sent.messages,
            bytes: sent.bytes,
            blocked_ns: sent.blocked_for_credit.as_nanos() as u64,
            repaired: sent.repaired_messages,
            phases: schedule.phases,
            stalled_ns: schedule.stalled.as_nanos() as u64,
            filled: link.shuffle.filled_since(),
            delivering_ns: sent.delivering.as_nanos() as u64,
            spent: link
                .shuffle
                .spent_since()
                .into_iter()
                .map(Into::into)
                .collect(),
        }
    }
}

/// Waits until a lane's partitions have been sent.
async fn sent(
    lane: usize,
    senders: Vec<AbortOnDropHandle<Result<(), Failed>>>,
) -> Result<usize, Failed> {
    let ended = async |sender: AbortOnDropHandle<_>| match sender.await {
        Ok(sent) => sent,
        Err(error) => Err(failed_with(format!("a sender ended early: {error}"))),
    };
    try_join_all(senders.into_iter().map(ended)).await?;
    Ok(lane)
}

async fn send_partition(
    link: Arc<Link>,
    group: Group,
    partition: u32,
    mut rows: SendableRecordBatchStream,
) -> Result<(), Failed> {
    while let Some(batch) = rows.try_next().await.map_err(failed)? {
        if batch.num_rows() > 0 {
            let sent = link.shuffle.send(&group, partition, &batch).await;
            sent.map_err(|error| failed(exchange_error(link.node.name(), error)))?;
        }
    }
    Ok(())
}

fn encode_schema(schema: &SchemaRef) -> Result<Vec<u8>, DataFusionError> {
    let mut bytes = Vec::new();
    let writer = arrow::ipc::writer::StreamWriter::try_new(&mut bytes, schema)?;
    drop(writer);
    Ok(bytes)
}

fn nothing_asked_for() -> Failed {
    failed_with("no partition was asked for".to_owned())
}

fn transport_failed(error: TransportError) -> Failed {
    failed(error.into())
}
