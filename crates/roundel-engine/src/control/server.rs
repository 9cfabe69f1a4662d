//! The worker's side of the control service.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tonic::body::Body;
use tonic::server::{NamedService, ServerStreamingService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::WatchRequest;
use super::{Beat, LOAD_PATH, LoadReport, LoadRequest, SERVICE_NAME, VERSION, WATCH_PATH};
use crate::fabric::Offer;
use crate::worker::Loader;

/// How often a worker says that it lives.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_millis(500);

/// The control service of one worker process.
#[derive(Clone)]
pub(crate) struct ControlServer {
    beat: Arc<Beat>,
    loader: Loader,
}

impl ControlServer {
    pub(crate) fn new(loader: Loader, fabrics: Vec<Offer>) -> Self {
        let beat = Arc::new(Beat {
            version: VERSION.to_owned(),
            host: crate::host::host_id(),
            incarnation: uuid::Uuid::new_v4().to_string(),
            fabrics,
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
                WATCH_PATH => {
                    tonic::server::Grpc::new(ProstCodec::<Beat, WatchRequest>::default())
                        .server_streaming(Watch(this.beat), request)
                        .await
                }
                LOAD_PATH => {
                    tonic::server::Grpc::new(ProstCodec::<LoadReport, LoadRequest>::default())
                        .server_streaming(Load(this.loader), request)
                        .await
                }
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

struct Watch(Arc<Beat>);

impl ServerStreamingService<WatchRequest> for Watch {
    type Response = Beat;
    type ResponseStream = BoxStream<'static, Result<Beat, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<WatchRequest>) -> Self::Future {
        let beat = Arc::clone(&self.0);
        let beats =
            tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(BEAT_INTERVAL))
                .map(move |_| Ok(beat.as_ref().clone()));
        Box::pin(async move { Ok(Response::new(beats.boxed())) })
    }
}

struct Load(Loader);

impl ServerStreamingService<LoadRequest> for Load {
    type Response = LoadReport;
    type ResponseStream = BoxStream<'static, Result<LoadReport, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<LoadRequest>) -> Self::Future {
        let reports = self.0.load(request.into_inner());
        Box::pin(async move { Ok(Response::new(reports?.boxed())) })
    }
}
