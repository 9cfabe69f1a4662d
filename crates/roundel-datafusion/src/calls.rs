//! Calls from process to process: the gRPC channels to workers, and what their failures mean. Every error names the
//! worker that it came from.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Metric, MetricValue, MetricsSet,
};
use datafusion_distributed::grpc::{
    BoxCloneSyncChannel, DefaultChannelResolver, create_worker_client,
};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, MaybeEncoded, SetPlanRequest, TaskMetrics, WorkerChannel,
    WorkerToCoordinatorMsg,
};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::HeaderMap;
use roundel_verbs::one_line;
use url::Url;

use crate::error::{Result, TransportError};
use crate::protocol::ExchangeClient;

/// How this process reaches the gRPC servers of workers. [`DefaultChannelResolver`] does so without authentication.
#[async_trait]
pub trait ConnectWorkers: Send + Sync + 'static {
    /// The gRPC channel to the worker at `url`. It is kept open for further calls.
    async fn connect(&self, url: &Url) -> Result<BoxCloneSyncChannel>;
}

#[async_trait]
impl ConnectWorkers for DefaultChannelResolver {
    async fn connect(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        let channel = self.get_channel(url).await;
        channel.map_err(|error| TransportError::WorkerLost {
            url: url.to_string(),
            reason: one_line(&error.find_root().strip_backtrace()),
        })
    }
}

/// The gRPC channels to workers. They carry control calls, and rows where no exchange does. Clones share them.
#[derive(Clone)]
pub struct Channels(Arc<dyn ConnectWorkers>);

impl Channels {
    /// Channels that are made so.
    pub fn new(connect: impl ConnectWorkers) -> Self {
        Self(Arc::new(connect))
    }

    /// The channel to a worker.
    ///
    /// # Errors
    /// When there can be none.
    pub async fn get(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        self.0.connect(url).await
    }

    /// Calls of the exchange that a worker serves.
    pub(crate) async fn exchange(&self, url: &Url) -> Result<ExchangeClient<BoxCloneSyncChannel>> {
        Ok(ExchangeClient::new(self.get(url).await?))
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channels")
    }
}

/// Control and rows both over gRPC.
#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        Ok(Box::new(NamedChannel {
            url: url.clone(),
            inner: create_worker_client(self.get(url).await?),
        }))
    }
}

/// A worker's channel whose transport errors name the worker.
struct NamedChannel {
    url: Url,
    inner: Box<dyn WorkerChannel>,
}

#[async_trait]
impl WorkerChannel for NamedChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg, DataFusionError>>, DataFusionError>
    {
        let url = self.url.clone();
        let nodes = nodes_of(&set_plan_request)?;
        let messages = self
            .inner
            .coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx)
            .await
            .map_err(|e| name_worker(&url, e))?;
        let messages = messages.map(move |message| message.map_err(|e| name_worker(&url, e)));
        Ok(with_measures(messages.boxed(), nodes))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch, DataFusionError>>>, DataFusionError>
    {
        let partitions = self
            .inner
            .execute_task(headers, request, metrics, task_ctx)
            .await
            .map_err(|e| name_worker(&self.url, e))?;
        let name = |batches: BoxStream<'static, Result<RecordBatch, DataFusionError>>| {
            let url = self.url.clone();
            batches
                .map(move |batch| batch.map_err(|e| name_worker(&url, e)))
                .boxed()
        };
        Ok(partitions.into_iter().map(name).collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse, DataFusionError> {
        self.inner
            .get_worker_info(request)
            .await
            .map_err(|e| name_worker(&self.url, e))
    }
}

/// Nodes that have measures in a task's plan: those that it is sent with, and one that is put above them.
fn nodes_of(request: &SetPlanRequest) -> Result<usize, DataFusionError> {
    let mut nodes = 1;
    if let MaybeEncoded::Decoded(plan) = &request.plan {
        plan.apply(|_| {
            nodes += 1;
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(nodes)
}

/// Adds to the messages of a worker the measures of a task of so many nodes, where the worker sends none. It sends none, or none of
/// any node, if nobody asked the task for rows: the task is below a join whose other side is empty, for example. Its nodes gave no
/// row then. Without this message, those who wait for the measures of all tasks would wait for ever.
fn with_measures(
    messages: BoxStream<'static, Result<WorkerToCoordinatorMsg, DataFusionError>>,
    nodes: usize,
) -> BoxStream<'static, Result<WorkerToCoordinatorMsg, DataFusionError>> {
    let mut told = false;
    let ended = futures::stream::once(async { None });
    let messages = messages.map(Some).chain(ended).filter_map(move |message| {
        let message = match message {
            Some(Ok(WorkerToCoordinatorMsg::TaskMetrics(mut task))) => {
                told = true;
                let sets = &mut task.pre_order_plan_metrics;
                if sets.iter().all(|set| set.iter().next().is_none()) {
                    sets.fill_with(no_rows);
                }
                Some(Ok(WorkerToCoordinatorMsg::TaskMetrics(task)))
            }
            None if !told => Some(Ok(WorkerToCoordinatorMsg::TaskMetrics(TaskMetrics {
                pre_order_plan_metrics: vec![no_rows(); nodes],
                task_metrics: MetricsSet::new(),
            }))),
            message => message,
        };
        std::future::ready(message)
    });
    messages.boxed()
}

/// The measures of a node that gave no row.
fn no_rows() -> MetricsSet {
    let mut measures = MetricsSet::new();
    let rows = MetricValue::OutputRows(Count::new());
    measures.push(Arc::new(Metric::new(rows, None)));
    measures
}

/// Makes an error that came from `url` say so: a failure of the transport to it, or what the worker itself reported.
fn name_worker(url: &Url, error: DataFusionError) -> DataFusionError {
    match find_status(&error) {
        Some(status) => status_error(url, status),
        None => TransportError::of_worker(url, &error),
    }
    .into()
}

/// What a gRPC status from `url` means.
pub fn status_error(url: &Url, status: &tonic::Status) -> TransportError {
    let url = url.to_string();
    match status.code() {
        tonic::Code::Unauthenticated => TransportError::Refused { url },
        _ => {
            // The innermost error says most: "Connection refused" rather than "transport error".
            let mut reason = status.message().to_owned();
            let mut source = status.source();
            while let Some(inner) = source {
                reason = match inner.downcast_ref::<std::io::Error>() {
                    Some(io) if has_gone(io) => GONE.to_owned(),
                    _ => inner.to_string(),
                };
                source = inner.source();
            }
            // HTTP/2 has errors of its own for it.
            if reason.contains("broken pipe") || reason.contains("connection reset") {
                reason = GONE.to_owned();
            }
            TransportError::WorkerLost { url, reason }
        }
    }
}

/// What is said of a peer that closed its connection, however that was noticed.
const GONE: &str = "it ended, or its connection broke";

fn has_gone(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::*;
    matches!(
        error.kind(),
        BrokenPipe | ConnectionReset | ConnectionAborted | NotConnected | UnexpectedEof
    )
}

fn find_status<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a tonic::Status> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(status) = error.downcast_ref::<tonic::Status>() {
            return Some(status);
        }
        if let Some(status) = error.downcast_ref::<Box<tonic::Status>>() {
            return Some(status);
        }
        next = match error.downcast_ref::<DataFusionError>() {
            // Its source is the cause of what is inside, which would skip what is inside.
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            _ => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_has_gone_is_lost_however_that_was_noticed() {
        let url = Url::parse("http://127.0.0.1:4040").expect("a URL");
        for (kind, reason) in [
            (std::io::ErrorKind::BrokenPipe, GONE),
            (std::io::ErrorKind::ConnectionReset, GONE),
            (std::io::ErrorKind::ConnectionRefused, "connection refused"),
        ] {
            let status = tonic::Status::from_error(Box::new(std::io::Error::from(kind)));
            let error = status_error(&url, &status).to_string();
            assert_eq!(
                error,
                format!("lost worker http://127.0.0.1:4040/: {reason}")
            );
        }
        let status = tonic::Status::unknown("stream closed because of a broken pipe");
        assert!(status_error(&url, &status).to_string().ends_with(GONE));
    }
}
