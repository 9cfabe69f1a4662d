//! How the members of a cluster reach its workers: every request carries the cluster's token.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use datafusion_distributed::grpc::BoxCloneSyncChannel;
use http::HeaderValue;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use roundel_datafusion::{ConnectWorkers, TransportError};
use tonic::transport::{Endpoint, Server};
use tower::Layer as _;
use tower::util::MapRequestLayer;
use url::Url;

use crate::Token;

/// Longest wait for a connection to a worker to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection whose machine stays silent for `KEEPALIVE * (1 + KEEPALIVE_RETRIES)` is broken.
/// The kernel answers for a process that is merely busy.
const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 2;
/// Most bytes of a request's headers: what a session set, and how each stage of its query is exchanged.
const HEADER_BYTES_MAX: u32 = 1 << 20;
/// Most calls of a connection that were cancelled while a busy worker had not taken them up: those of many queries at once. HTTP/2
/// closes the connection with the next one, with all queries that run.
const CANCELLED_CALLS_MAX: usize = 1 << 10;

/// Authenticated gRPC channels to workers, one for each URL, kept open.
pub(crate) struct Authenticated {
    authorization: HeaderValue,
    open: Mutex<HashMap<Url, BoxCloneSyncChannel>>,
}

impl Authenticated {
    pub(crate) fn new(token: &Token) -> Self {
        Self {
            authorization: authorization(token),
            open: Mutex::default(),
        }
    }
}

#[async_trait]
impl ConnectWorkers for Authenticated {
    /// It connects when first used, and again after it broke.
    async fn connect(&self, url: &Url) -> Result<BoxCloneSyncChannel, TransportError> {
        let mut open = self.open.lock();
        if let Some(channel) = open.get(url) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|e| TransportError::Usage(format!("{url} is no worker address: {e}")))?
            // A worker may still send for a query that was cancelled. HTTP/2 counts such frames for as long as a connection lives, and
            // closes it after 1,024, with all queries that run.
            .http2_max_local_error_reset_streams(None);
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

/// A worker's server, with the limits of what one connection may ask of it.
pub(crate) fn server() -> Server {
    Server::builder()
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(CANCELLED_CALLS_MAX))
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use futures::FutureExt as _;
    use futures::future::{BoxFuture, join_all};
    use http::uri::PathAndQuery;
    use tokio::net::TcpListener;
    use tonic::body::Body;
    use tonic::server::NamedService;
    use tonic::transport::server::TcpIncoming;
    use tonic::{Request, Response, Status, Streaming};
    use tonic_prost::ProstCodec;
    use tower::Service;

    use super::*;

    /// A service that sends for as long as somebody reads.
    #[derive(Clone)]
    struct Endless;

    impl NamedService for Endless {
        const NAME: &'static str = "test.Endless";
    }

    impl Service<http::Request<Body>> for Endless {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let rows = tower::service_fn(|_: Request<()>| async {
                let rows = futures::stream::repeat_with(|| Ok::<_, Status>(vec![0_u8; 16 << 10]));
                Ok::<_, Status>(Response::new(rows))
            });
            let codec = ProstCodec::<Vec<u8>, ()>::default();
            let mut server = tonic::server::Grpc::new(codec);
            async move { Ok(server.server_streaming(rows, request).await) }.boxed()
        }
    }

    async fn read(channel: &BoxCloneSyncChannel) -> Streaming<Vec<u8>> {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.expect("a connection");
        let path = PathAndQuery::from_static("/test.Endless/Read");
        let codec = ProstCodec::<(), Vec<u8>>::default();
        let answer = client.server_streaming(Request::new(()), path, codec).await;
        answer.expect("rows").into_inner()
    }

    async fn listen() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.expect("a port")
    }

    async fn channel_to(listener: &TcpListener) -> BoxCloneSyncChannel {
        let address = listener.local_addr().expect("an address");
        let channels = Authenticated::new(&Token::random().expect("a token"));
        let url = Url::parse(&format!("http://{address}/")).expect("a URL");
        channels.connect(&url).await.expect("a channel")
    }

    fn serve(listener: TcpListener) {
        let incoming = TcpIncoming::from(listener);
        tokio::spawn(server().add_service(Endless).serve_with_incoming(incoming));
    }

    /// HTTP/2 remembers a few dozens of cancelled calls, and counts what comes for the others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_outlive_thousands_that_were_cancelled() {
        let listener = listen().await;
        let channel = channel_to(&listener).await;
        serve(listener);
        let mut kept = read(&channel).await;
        for round in 0..40 {
            // The server has begun to send when they are dropped.
            drop(join_all((0..100).map(|_| read(&channel))).await);
            let row = kept.message().await;
            let row = row.unwrap_or_else(|error| panic!("after {round} times 100 calls: {error}"));
            assert!(row.is_some(), "ended after {round} times 100 calls");
        }
    }

    /// A worker that is busy reads calls and their cancellations at once. HTTP/2's own limit is 20 of them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_call_outlives_those_that_were_cancelled_before_the_worker_took_them_up() {
        let listener = listen().await;
        let channel = channel_to(&listener).await;
        let kept = tokio::spawn({
            let channel = channel.clone();
            async move { read(&channel).await.message().await }
        });
        // The kernel has accepted the connection: these are sent, and nobody reads them.
        let cancelled = join_all((0..90).map(|_| read(&channel)));
        let sent = tokio::time::timeout(Duration::from_millis(300), cancelled).await;
        sent.expect_err("nobody serves");
        tokio::time::sleep(Duration::from_millis(300)).await;
        serve(listener);
        let row = kept.await.expect("no panic");
        assert!(row.expect("the connection stays").is_some());
    }
}
