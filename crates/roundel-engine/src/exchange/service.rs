//! The exchange's calls, as gRPC has them.

use super::protocol::{
    AGREE_PATH, Agree, Agreed, Answer, BEGIN_PATH, Begin, Begun, COUNTERS_PATH, CountersAnswer,
    CountersRequest, EXECUTE_PATH, Execute, MEET_PATH, Meet, Met, SERVICE_NAME,
};
use super::server::ExchangeServer;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::{NamedService, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

impl NamedService for ExchangeServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl tower::Service<http::Request<Body>> for ExchangeServer {
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
                EXECUTE_PATH => {
                    tonic::server::Grpc::new(ProstCodec::<Answer, Execute>::default())
                        .server_streaming(ExecuteCall(this), request)
                        .await
                }
                BEGIN_PATH => {
                    tonic::server::Grpc::new(ProstCodec::<Begun, Begin>::default())
                        .unary(BeginCall(this), request)
                        .await
                }
                MEET_PATH => {
                    tonic::server::Grpc::new(ProstCodec::<Met, Meet>::default())
                        .unary(MeetCall(this), request)
                        .await
                }
                AGREE_PATH => {
                    tonic::server::Grpc::new(ProstCodec::<Agreed, Agree>::default())
                        .unary(AgreeCall(this), request)
                        .await
                }
                COUNTERS_PATH => {
                    tonic::server::Grpc::new(
                        ProstCodec::<CountersAnswer, CountersRequest>::default(),
                    )
                    .unary(CountersCall(this), request)
                    .await
                }
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

struct ExecuteCall(ExchangeServer);

impl ServerStreamingService<Execute> for ExecuteCall {
    type Response = Answer;
    type ResponseStream = BoxStream<'static, Result<Answer, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Execute>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move {
            let answers = server.execute(request.into_inner()).await?;
            Ok(Response::new(answers.map(Ok).boxed()))
        })
    }
}

struct BeginCall(ExchangeServer);

impl UnaryService<Begin> for BeginCall {
    type Response = Begun;
    type Future = BoxFuture<'static, Result<Response<Begun>, Status>>;

    fn call(&mut self, request: Request<Begin>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move {
            let begun = server.begin(request.into_inner()).await;
            begun
                .map(|()| Response::new(Begun {}))
                .map_err(|failed| Status::aborted(failed.message))
        })
    }
}

struct MeetCall(ExchangeServer);

impl UnaryService<Meet> for MeetCall {
    type Response = Met;
    type Future = BoxFuture<'static, Result<Response<Met>, Status>>;

    fn call(&mut self, request: Request<Meet>) -> Self::Future {
        let meet = request.into_inner();
        let met = match self.0.node(&meet.fabric) {
            Ok(node) => node
                .be_met(&meet)
                .map(Response::new)
                .map_err(|error| Status::aborted(error.to_string())),
            Err(why) => Err(Status::failed_precondition(why)),
        };
        Box::pin(async move { met })
    }
}

struct AgreeCall(ExchangeServer);

impl UnaryService<Agree> for AgreeCall {
    type Response = Agreed;
    type Future = BoxFuture<'static, Result<Response<Agreed>, Status>>;

    fn call(&mut self, request: Request<Agree>) -> Self::Future {
        let agreements = self.0.agreements.clone();
        Box::pin(async move {
            let agreed = agreements.agree(request.into_inner()).await;
            agreed.map(Response::new).map_err(Status::aborted)
        })
    }
}

struct CountersCall(ExchangeServer);

impl UnaryService<CountersRequest> for CountersCall {
    type Response = CountersAnswer;
    type Future = BoxFuture<'static, Result<Response<CountersAnswer>, Status>>;

    fn call(&mut self, request: Request<CountersRequest>) -> Self::Future {
        let node = self.0.node(&request.into_inner().fabric);
        let counters = node.map(|node| Response::new(node.counters()));
        let counters = counters.map_err(Status::failed_precondition);
        Box::pin(async move { counters })
    }
}
