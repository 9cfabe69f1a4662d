//! The coordinator's side of the control service.

use datafusion_distributed::grpc::BoxCloneSyncChannel;
use http::uri::PathAndQuery;
use tonic::{IntoRequest, Status, Streaming};

use super::{Beat, LOAD_PATH, LoadReport, LoadRequest, WATCH_PATH, WatchRequest};

/// Speaks to one worker's control service.
pub(crate) struct ControlClient {
    grpc: tonic::client::Grpc<BoxCloneSyncChannel>,
}

impl ControlClient {
    pub(crate) fn new(channel: BoxCloneSyncChannel) -> Self {
        Self {
            grpc: tonic::client::Grpc::new(channel),
        }
    }

    /// Has the worker say who it is and that it lives, until the stream is dropped.
    pub(crate) async fn watch(&mut self) -> Result<Streaming<Beat>, Status> {
        self.stream(WATCH_PATH, WatchRequest {}).await
    }

    /// Has the worker load shards; it holds them until the stream is dropped.
    pub(crate) async fn load(
        &mut self,
        request: LoadRequest,
    ) -> Result<Streaming<LoadReport>, Status> {
        self.stream(LOAD_PATH, request).await
    }

    async fn stream<Request, Response>(
        &mut self,
        path: &'static str,
        request: Request,
    ) -> Result<Streaming<Response>, Status>
    where
        Request: prost::Message + 'static,
        Response: prost::Message + Default + 'static,
    {
        self.grpc
            .ready()
            .await
            .map_err(|e| Status::from_error(Box::new(e)))?;
        let codec = tonic_prost::ProstCodec::<Request, Response>::default();
        let path = PathAndQuery::from_static(path);
        let response = self
            .grpc
            .server_streaming(request.into_request(), path, codec)
            .await?;
        Ok(response.into_inner())
    }
}
