//! How the members of a cluster reach its workers: every request carries the cluster's token.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use datafusion_distributed::grpc::BoxCloneSyncChannel;
use http::HeaderValue;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use roundel_datafusion::{ConnectWorkers, TransportError};
use tonic::transport::Endpoint;
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
            .map_err(|e| TransportError::Usage(format!("{url} is no worker address: {e}")))?;
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
