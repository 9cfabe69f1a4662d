//! The worker's side of the control service.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use roundel_datafusion::engine::{Offer, answer_on};
use tokio_stream::wrappers::IntervalStream;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;

use super::WatchRequest;
use super::loader::Loader;
use super::{Beat, LOAD_PATH, LoadReport, LoadRequest, SERVICE_NAME, VERSION, WATCH_PATH};

/// How often a worker says that it lives.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_millis(500);

/// The control service of one worker process.
#[derive(Clone)]
pub(crate) struct ControlServer {
    beat: Arc<Beat>,
    loader: Loader,
}

impl ControlServer {
    pub(crate) fn new(loader: Loader, fabrics: Vec<Offer>, extensions: Vec<String>) -> Self {
        let beat = Arc::new(Beat {
            version: VERSION.to_owned(),
            host: crate::host::host_id(),
            incarnation: uuid::Uuid::new_v4().to_string(),
            fabrics,
            extensions,
        });
        Self { beat, loader }
    }
}

impl NamedService for ControlServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl tower::Service<http::Request<Body>> for ControlServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                WATCH_PATH => answer_on(request, |watch| this.clone().watch(watch)).await,
                LOAD_PATH => answer_on(request, |load| this.clone().load(load)).await,
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

impl ControlServer {
    async fn watch(
        self,
        _: WatchRequest,
    ) -> Result<BoxStream<'static, Result<Beat, Status>>, Status> {
        let beats = IntervalStream::new(tokio::time::interval(BEAT_INTERVAL));
        Ok(beats.map(move |_| Ok(self.beat.as_ref().clone())).boxed())
    }

    async fn load(
        self,
        load: LoadRequest,
    ) -> Result<BoxStream<'static, Result<LoadReport, Status>>, Status> {
        Ok(self.loader.load(load)?.boxed())
    }
}
