//! The exchange's calls, as gRPC has them.

use crate::answering::{answer, answer_on};
use crate::protocol::{
    AGREE_PATH, Agree, Agreed, Answer, BEGIN_PATH, Begin, Begun, CAUSE_PATH, COUNTERS_PATH, Cause,
    Caused, CountersAnswer, CountersRequest, EXECUTE_PATH, Execute, MEET_PATH, Meet, Met,
    SERVICE_NAME, query_id,
};
use crate::server::ExchangeServer;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;

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
                    answer_on(request, |execute| this.clone().asked_to_execute(execute)).await
                }
                BEGIN_PATH => answer(request, |begin| this.clone().asked_to_begin(begin)).await,
                MEET_PATH => answer(request, |meet| this.clone().asked_to_meet(meet)).await,
                AGREE_PATH => answer(request, |agree| this.clone().asked_to_agree(agree)).await,
                CAUSE_PATH => answer(request, |cause| this.clone().asked_of_cause(cause)).await,
                COUNTERS_PATH => answer(request, |which| this.clone().asked_to_count(which)).await,
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

impl ExchangeServer {
    async fn asked_to_execute(
        self,
        execute: Execute,
    ) -> Result<BoxStream<'static, Result<Answer, Status>>, Status> {
        Ok(self.execute(execute).await?.map(Ok).boxed())
    }

    async fn asked_to_begin(self, begin: Begin) -> Result<Begun, Status> {
        let begun = self.begin(begin).await;
        begun.map_err(|failed| Status::aborted(failed.message))?;
        Ok(Begun {})
    }

    async fn asked_to_meet(self, meet: Meet) -> Result<Met, Status> {
        let node = self.node(&meet.fabric);
        let met = node.map_err(Status::failed_precondition)?.be_met(&meet);
        met.map_err(|error| Status::aborted(error.to_string()))
    }

    async fn asked_to_agree(self, agree: Agree) -> Result<Agreed, Status> {
        let agreed = self.agreements.agree(agree).await;
        agreed.map_err(Status::aborted)
    }

    async fn asked_of_cause(self, cause: Cause) -> Result<Caused, Status> {
        let query = query_id(&cause.query);
        let query = query.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Caused {
            failed: self.causes.of(query),
        })
    }

    async fn asked_to_count(self, which: CountersRequest) -> Result<CountersAnswer, Status> {
        let node = self.node(&which.fabric);
        Ok(node.map_err(Status::failed_precondition)?.counters())
    }
}
