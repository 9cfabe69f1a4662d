//! Calls of the services that workers have for each other, each answered by a function.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Answers a call once.
pub async fn answer<Q, A, W>(
    request: http::Request<Body>,
    by: impl Fn(Q) -> W,
) -> http::Response<Body>
where
    Q: Message + Default + Send + 'static,
    A: Message + Default + Send + 'static,
    W: Future<Output = Result<A, Status>> + Send + 'static,
{
    Grpc::new(ProstCodec::<A, Q>::default())
        .unary(Answers(by), request)
        .await
}

/// Answers a call with as many messages as there are to come.
pub async fn answer_on<Q, A, W>(
    request: http::Request<Body>,
    by: impl Fn(Q) -> W,
) -> http::Response<Body>
where
    Q: Message + Default + Send + 'static,
    A: Message + Default + Send + 'static,
    W: Future<Output = Result<BoxStream<'static, Result<A, Status>>, Status>> + Send + 'static,
{
    Grpc::new(ProstCodec::<A, Q>::default())
        .server_streaming(Answers(by), request)
        .await
}

struct Answers<F>(F);

impl<Q, A, F, W> UnaryService<Q> for Answers<F>
where
    F: Fn(Q) -> W,
    W: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = A;
    type Future = BoxFuture<'static, Result<Response<A>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        answer.map(|answer| answer.map(Response::new)).boxed()
    }
}

impl<Q, A, F, W> ServerStreamingService<Q> for Answers<F>
where
    F: Fn(Q) -> W,
    W: Future<Output = Result<BoxStream<'static, Result<A, Status>>, Status>> + Send + 'static,
    A: Send + 'static,
{
    type Response = A;
    type ResponseStream = BoxStream<'static, Result<A, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answers = (self.0)(request.into_inner());
        answers.map(|answers| answers.map(Response::new)).boxed()
    }
}
