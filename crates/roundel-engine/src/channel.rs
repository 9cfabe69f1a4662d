//! The seam between datafusion-distributed and what carries its control calls and rows.
//!
//! Both the coordinator and the workers resolve a worker's URL here. Every request carries the
//! cluster's token, and every error names the worker that it came from.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use tonic::transport::Endpoint;
use tower::Layer as _;
use tower::util::MapRequestLayer;
use url::Url;

use crate::exchange::{OwnWorker, RoundelChannels};
use crate::fabric::Devices;
use crate::settings::ExchangeConfig;
use crate::{EngineError, Fabric, Result, Token};

/// Longest wait for a connection to a worker to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection whose machine stays silent for `KEEPALIVE * (1 + KEEPALIVE_RETRIES)` is broken.
/// The kernel answers for a process that is merely busy.
const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 2;

/// Authenticated gRPC channels to workers, one for each URL, kept open.
#[derive(Clone)]
pub(crate) struct Channels {
    authorization: HeaderValue,
    open: Arc<Mutex<HashMap<Url, BoxCloneSyncChannel>>>,
}

impl Channels {
    pub(crate) fn new(token: &Token) -> Self {
        Self {
            authorization: authorization(token),
            open: Arc::default(),
        }
    }

    /// The channel to a worker. It connects when first used, and again after it broke.
    pub(crate) fn get(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        let mut open = self.open.lock();
        if let Some(channel) = open.get(url) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|e| EngineError::Usage(format!("{url} is no worker address: {e}")))?;
        let authorization = self.authorization.clone();
        let authorize = MapRequestLayer::new(move |mut request: http::Request<_>| {
            request
                .headers_mut()
                .insert(http::header::AUTHORIZATION, authorization.clone());
            request
        });
        let channel = BoxCloneSyncChannel::new(
            authorize.layer(endpoint.connect_with_connector_lazy(connector())),
        );
        open.insert(url.clone(), channel.clone());
        Ok(channel)
    }
}

impl Channels {
    /// Asks a worker for one answer: what it says, or why there is none.
    pub(crate) async fn call<Q, A>(
        &self,
        url: &Url,
        path: &'static str,
        request: Q,
    ) -> Result<Result<A, tonic::Status>>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.get(url)?);
        if let Err(error) = grpc.ready().await {
            return Ok(Err(tonic::Status::from_error(Box::new(error))));
        }
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
        Ok(answer.map(tonic::Response::into_inner))
    }
}

/// Makes the connections to workers.
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    // The kernel sends no keepalives while something waits to be acknowledged.
    connector.set_tcp_user_timeout(Some(KEEPALIVE * (1 + KEEPALIVE_RETRIES)));
    connector
}

/// The value of the `authorization` header that proves membership of the cluster.
pub(crate) fn authorization(token: &Token) -> HeaderValue {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.to_hex()))
        .expect("hexadecimal digits are a header value");
    value.set_sensitive(true);
    value
}

impl Channels {
    /// What resolves workers' URLs for a query whose rows `fabric` carries.
    ///
    /// # Errors
    /// When this process does not have the fabric.
    pub(crate) fn resolver(
        &self,
        fabric: Fabric,
        devices: &Devices,
        own: Option<OwnWorker>,
    ) -> Result<Arc<dyn ChannelResolver + Send + Sync>> {
        let grpc = GrpcChannels(self.clone());
        let node = devices
            .get(fabric)
            .map_err(|why| EngineError::NoFabric(format!("no {fabric}: {why}")))?;
        Ok(match node {
            None => Arc::new(grpc),
            Some(node) => Arc::new(RoundelChannels::new(
                self.clone(),
                grpc,
                fabric,
                node.clone(),
                own,
            )),
        })
    }
}

/// The fabric of a query that a coordinator sent.
pub(crate) fn fabric_of(config: &ConfigOptions) -> Result<Fabric> {
    let exchange = config.extensions.get::<ExchangeConfig>();
    exchange.map_or(Ok(Fabric::Grpc), |exchange| exchange.fabric.parse())
}

/// Control and rows both over gRPC.
#[derive(Clone)]
pub(crate) struct GrpcChannels(Channels);

#[async_trait]
impl ChannelResolver for GrpcChannels {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        Ok(Box::new(NamedChannel {
            url: url.clone(),
            inner: create_worker_client(self.0.get(url)?),
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
        let messages = self
            .inner
            .coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx)
            .await
            .map_err(|e| name_worker(&url, e))?;
        Ok(messages
            .map(move |message| message.map_err(|e| name_worker(&url, e)))
            .boxed())
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

/// Makes an error that came from `url` say so: a failure of the transport to it, or what the worker itself reported.
fn name_worker(url: &Url, error: DataFusionError) -> DataFusionError {
    match find_status(&error) {
        Some(status) => status_error(url, status),
        None => EngineError::of_worker(url, error),
    }
    .into()
}

/// What a gRPC status from `url` means for the cluster.
pub(crate) fn status_error(url: &Url, status: &tonic::Status) -> EngineError {
    let url = url.to_string();
    match status.code() {
        tonic::Code::Unauthenticated => EngineError::TokenRefused { url },
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
            EngineError::WorkerLost { url, reason }
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
