//! The exchange's calls, as gRPC has them.

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tonic::{Request, Response, Status};

use crate::protocol::{
    Agree, Agreed, Answer, Begin, Begun, Cause, Caused, CountersAnswer, CountersRequest, Exchange,
    Execute, Meet, Met, query_id,
};
use crate::server::ExchangeService;

#[async_trait]
impl Exchange for ExchangeService {
    type ExecuteStream = BoxStream<'static, Result<Answer, Status>>;

    async fn execute(
        &self,
        execute: Request<Execute>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let answers = self.run(execute.into_inner()).await;
        Ok(Response::new(answers.map(Ok).boxed()))
    }

    async fn begin(&self, begin: Request<Begin>) -> Result<Response<Begun>, Status> {
        let begun = self.want(begin.into_inner()).await;
        begun.map_err(|failed| Status::aborted(failed.message))?;
        Ok(Response::new(Begun {}))
    }

    async fn meet(&self, meet: Request<Meet>) -> Result<Response<Met>, Status> {
        let meet = meet.into_inner();
        let node = self
            .node(&meet.fabric)
            .map_err(Status::failed_precondition)?;
        let met = node.be_met(&meet);
        met.map(Response::new)
            .map_err(|error| Status::aborted(error.to_string()))
    }

    async fn agree(&self, agree: Request<Agree>) -> Result<Response<Agreed>, Status> {
        let agreed = self.agreements.agree(agree.into_inner()).await;
        agreed.map(Response::new).map_err(Status::aborted)
    }

    async fn tell_cause(&self, cause: Request<Cause>) -> Result<Response<Caused>, Status> {
        let query = query_id(&cause.into_inner().query);
        let query = query.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Response::new(Caused {
            failed: self.causes.of(query),
        }))
    }

    async fn count(
        &self,
        which: Request<CountersRequest>,
    ) -> Result<Response<CountersAnswer>, Status> {
        let node = self.node(&which.into_inner().fabric);
        let node = node.map_err(Status::failed_precondition)?;
        Ok(Response::new(node.counters()))
    }
}
