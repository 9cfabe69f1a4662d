//! A producer, as its consumer sees it: asked for partitions of its task, and followed until their rows have come.
//!
//! A producer starts when the first of its partitions is read, as over gRPC: sooner would fill
//! memory with rows that nobody is ready for. When none is ever read it is started and cancelled,
//! so that its task ends. One that scatters is asked at once, since it waits for all who are to get
//! rows, and told to begin when one of them reads.

use crate::budget::QueryBudget;
use crate::calls::{Channels, status_error};
use crate::error::{Result, TransportError};
use crate::fabric::Fabric;
use crate::failure::{exchange_error, task_error};
use crate::measures::{self, Ends};
use crate::node::{ExchangeNode, InputKey, InputSide};
use crate::protocol::{Accepted, Answer, AnswerKind, Begin, Execute, Failed, Head, Sent};
use crate::settings::Setting;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::ExecuteTaskRequest;
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use roundel_exchange::{Architecture, ExchangeError, LinkAddress, MemoryBudget, ReceiveLink};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;
use url::Url;

/// The worker that producers run on, and how this process reaches it.
#[derive(Clone)]
pub(super) struct ProducerWorker {
    pub(super) url: Url,
    /// The worker that reads; none for the coordinator.
    pub(super) reader: Option<Url>,
    pub(super) channels: Channels,
    pub(super) fabric: Fabric,
    pub(super) node: Arc<ExchangeNode>,
}

type Start = Shared<BoxFuture<'static, Result<Arc<Started>, Arc<DataFusionError>>>>;

/// The rows of one producer task, for one consumer task. Dropped, the producer stops.
pub(super) struct Input {
    start: Start,
    /// Says that its rows are wanted now.
    begin: Shared<BoxFuture<'static, Result<(), Arc<DataFusionError>>>>,
    begun: AtomicBool,
    node: Arc<ExchangeNode>,
    /// The worker that runs its task.
    url: Url,
    /// What the exchange calls its partitions.
    names: Range<u32>,
}

/// A producer at work.
struct Started {
    input: Arc<InputSide>,
    link: ReceiveLink,
    schema: SchemaRef,
    /// What the producer reported, once it has sent everything, or that it never will.
    sent: watch::Receiver<Told>,
    /// What it failed of.
    failure: Arc<OnceLock<Failed>>,
    /// Partitions that have not been read to their end.
    unread: AtomicUsize,
    /// Who is at the ends of the link, for the measures.
    ends: Ends,
    metrics: Mutex<Option<ExecutionPlanMetricsSet>>,
    _control: AbortOnDropHandle<()>,
}

#[derive(Clone)]
enum Told {
    Nothing,
    Sent(Sent),
    Gone,
}

impl Input {
    pub(super) fn new(
        worker: &ProducerWorker,
        setting: Setting,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Self, DataFusionError> {
        let key = InputKey {
            query: request.task_key.query_id,
            stage: request.task_key.stage_id,
            partition_start: request.target_partition_start,
        };
        let execute = Execute {
            query: request.task_key.query_id.into_bytes().to_vec(),
            stage: request.task_key.stage_id as u64,
            task: request.task_key.task_number as u64,
            partition_start: request.target_partition_start as u64,
            partition_end: request.target_partition_end as u64,
            head: Some(Head::encode(request.producer_head, context)?),
            offers: Vec::new(),
            setting: Some(setting.into()),
            consumer: worker.node.name().to_owned(),
            fabric: worker.fabric.name().to_owned(),
        };
        let context = context.clone();
        let begin = execute.head.as_ref().and_then(|head| head.hash_partitions);
        let begin = begin.map(|_| Begin {
            query: execute.query.clone(),
            stage: execute.stage,
            task: execute.task,
            fabric: execute.fabric.clone(),
        });
        let names = execute.names();
        let at = worker.clone();
        let start = async move {
            start(at, (key, setting), execute, metrics, context)
                .await
                .map(Arc::new)
                .map_err(Arc::new)
        };
        let start = start.boxed().shared();
        let scattered = begin.is_some();
        if scattered {
            // Its rows go to all consumers at once, so that it waits for all of them to come.
            tokio::spawn(start.clone());
        }
        let at = worker.clone();
        let begin = async move {
            match begin {
                Some(begin) => begin_to_scatter(&at, begin).await,
                None => Ok(()),
            }
            .map_err(Arc::new)
        };
        Ok(Self {
            start,
            begin: begin.boxed().shared(),
            begun: AtomicBool::new(scattered),
            node: worker.node.clone(),
            url: worker.url.clone(),
            names,
        })
    }

    /// The rows of one of its partitions, counted from its first one.
    pub(super) fn read(
        self: Arc<Self>,
        number: usize,
    ) -> BoxStream<'static, Result<RecordBatch, DataFusionError>> {
        async move {
            self.begun.store(true, Ordering::Relaxed);
            let started = self.start.clone().await.map_err(DataFusionError::Shared)?;
            self.begin.clone().await.map_err(DataFusionError::Shared)?;
            let node = self.node.clone();
            let partition = self.names.start + number as u32;
            let rows = started
                .input
                .receive
                .stream(&started.link, partition, &started.schema)
                .map_err(|error| exchange_error(node.name(), error))?;
            let (failure, url) = (started.failure.clone(), self.url.clone());
            let rows = rows.map(move |batch| {
                batch.map_err(|error| match (failure.get(), error) {
                    (Some(told), ExchangeError::PeerFailed { .. }) => task_error(&url, told),
                    (_, error) => exchange_error(node.name(), error),
                })
            });
            let end = futures::stream::once(async move {
                started.partition_ended().await;
                None
            })
            .filter_map(futures::future::ready);
            Ok::<_, DataFusionError>(rows.chain(end))
        }
        .into_stream()
        .flat_map(|opened| match opened {
            Ok(rows) => rows.boxed(),
            Err(error) => futures::stream::once(async { Err(error) }).boxed(),
        })
        .boxed()
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if !*self.begun.get_mut()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // The producer's task waits for its consumers: told and cancelled, it ends.
            runtime.spawn(self.start.clone());
        }
    }
}

impl Started {
    /// A partition has been read to its end. The last one waits for the producer's report, which
    /// was under way before its last row.
    async fn partition_ended(&self) {
        if self.unread.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut sent = self.sent.clone();
            // A producer that is gone reports nothing more.
            let _ = sent.wait_for(|told| !matches!(told, Told::Nothing)).await;
            self.note();
        }
    }

    /// Adds both sides' measures to the plan's metrics, once per producer.
    fn note(&self) {
        let Some(metrics) = self.metrics.lock().take() else {
            return;
        };
        let sent = match &*self.sent.borrow() {
            Told::Sent(sent) => Some(sent.clone()),
            Told::Nothing | Told::Gone => None,
        };
        measures::note(&metrics, &self.ends, sent, &self.input, &self.link);
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Partitions that were not read to their end.
        self.note();
    }
}

async fn start(
    worker: ProducerWorker,
    (key, setting): (InputKey, Setting),
    mut execute: Execute,
    metrics: ExecutionPlanMetricsSet,
    context: Arc<TaskContext>,
) -> Result<Started, DataFusionError> {
    let ProducerWorker {
        url,
        reader,
        channels,
        fabric,
        node,
    } = worker;
    let ends = Ends::new(&url, reader.as_ref());
    let own = node.clone();
    let failed = |error| exchange_error(own.name(), error);
    let budget = || Arc::new(QueryBudget::new(&context)) as Arc<dyn MemoryBudget>;
    let scattered = execute.head.as_ref().and_then(|head| head.hash_partitions);
    let coupled = scattered.is_some() || execute.broadcast_consumers().is_some();
    let input = node.receive(key, &setting, coupled, budget)?;
    let receive = &input.receive;
    let partitions = execute.names();
    let partitions_count = partitions.len();
    let peer = format!("worker {url}");
    let source = match setting.architecture {
        Architecture::Endpoint | Architecture::Classic => None,
        Architecture::Multiplexer => {
            Some(node.meet(fabric, setting.design, &channels, &url).await?)
        }
    };
    let offered = receive.offer(&peer, source, partitions);
    let (link, offers) = offered.map_err(failed)?;
    node.note_queue_pairs(receive.report().queue_pairs);
    execute.offers = offers.iter().map(LinkAddress::to_bytes).collect();

    let lost = |status: tonic::Status| DataFusionError::from(status_error(&url, &status));
    let mut exchange = channels.exchange(&url).await?;
    let mut answers = exchange.execute(execute).await.map_err(lost)?.into_inner();
    let accepted = match answers.message().await.map_err(lost)? {
        Some(Answer {
            kind: Some(AnswerKind::Accepted(accepted)),
        }) => accepted,
        Some(Answer {
            kind: Some(AnswerKind::Failed(told)),
        }) => return Err(task_error(&url, &told)),
        _ => return Err(protocol_error(&url, "no links in its first answer")),
    };
    let schema = decode_schema(&url, &accepted)?;
    let answers_of_links = accepted
        .answers
        .iter()
        .map(|answer| LinkAddress::from_bytes(answer, url.as_str()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    receive.connect(&link, &answers_of_links).map_err(failed)?;
    let (tell, sent) = watch::channel(Told::Nothing);
    let abort = link.aborter();
    let failure = Arc::new(OnceLock::new());
    let failed = failure.clone();
    let control = tokio::spawn(async move {
        let told = follow(&url, answers, &tell, &failed).await;
        tell.send_if_modified(|told| {
            let nothing = matches!(told, Told::Nothing);
            if nothing {
                *told = Told::Gone;
            }
            nothing
        });
        if let Err(reason) = told {
            abort(&reason);
        }
    });
    Ok(Started {
        input,
        link,
        schema,
        sent,
        failure,
        unread: AtomicUsize::new(partitions_count),
        ends,
        metrics: Mutex::new(Some(metrics)),
        _control: AbortOnDropHandle::new(control),
    })
}

/// Tells a producer that somebody reads.
async fn begin_to_scatter(worker: &ProducerWorker, begin: Begin) -> Result<(), DataFusionError> {
    let url = &worker.url;
    match worker.channels.exchange(url).await?.begin(begin).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == tonic::Code::Aborted => {
            Err(TransportError::Query(status.message().to_owned()).into())
        }
        Err(status) => Err(status_error(url, &status).into()),
    }
}

/// Follows a producer until it ends.
async fn follow(
    url: &Url,
    mut answers: Streaming<Answer>,
    tell: &watch::Sender<Told>,
    failure: &OnceLock<Failed>,
) -> Result<(), ExchangeError> {
    let peer = format!("worker {url}");
    loop {
        let reason = match answers.message().await {
            Ok(None) => return Ok(()),
            Ok(Some(Answer {
                kind: Some(AnswerKind::Sent(sent)),
            })) => {
                // Nobody listening means that the streams are gone.
                let _ = tell.send(Told::Sent(sent));
                continue;
            }
            Ok(Some(Answer {
                kind: Some(AnswerKind::Failed(told)),
            })) => {
                let reason = told.message.clone();
                // It fails once.
                let _ = failure.set(told);
                reason
            }
            Ok(Some(_)) => "it answered out of turn".to_owned(),
            Err(status) => status_error(url, &status).to_string(),
        };
        return Err(ExchangeError::PeerFailed { peer, reason });
    }
}

fn decode_schema(url: &Url, accepted: &Accepted) -> Result<SchemaRef, DataFusionError> {
    arrow::ipc::reader::StreamReader::try_new(accepted.schema.as_slice(), None)
        .map(|reader| reader.schema())
        .map_err(|error| protocol_error(url, &format!("schema: {error}")))
}

fn protocol_error(url: &Url, what: &str) -> DataFusionError {
    TransportError::Query(format!("worker {url} broke the protocol: {what}")).into()
}
