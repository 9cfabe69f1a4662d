//! The server of a thread: it takes the streams of all nodes, and has no other calls.

use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

/// Puts what arrives in one queue.
pub struct Service {
    /// One for each stream that is to come: the queue ends with the last.
    queues: Arc<Mutex<Vec<mpsc::Sender<Result<RecordBatch>>>>>,
}

impl Service {
    /// For so many streams, with room for so many batches.
    pub fn new(streams: usize, waiting_max: usize) -> (Self, mpsc::Receiver<Result<RecordBatch>>) {
        let (queue, batches) = mpsc::channel(waiting_max);
        let queues = Arc::new(Mutex::new(vec![queue; streams]));
        (Self { queues }, batches)
    }
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;
type Reply<T> = Result<Response<T>, Status>;

fn no_such_call<T>() -> Reply<T> {
    Err(Status::unimplemented("this server only takes rows"))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Reply<Self::DoPutStream> {
        let queue = self
            .queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let Some(queue) = queue else {
            return Err(Status::resource_exhausted("more streams than nodes"));
        };
        let data = request
            .into_inner()
            .map_err(|status| FlightError::Tonic(Box::new(status)));
        let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
        let take = async move {
            while let Some(batch) = batches.next().await {
                let batch = batch.map_err(|error| Error::Grpc {
                    peer: "a node".into(),
                    reason: error.to_string(),
                });
                if queue.send(batch).await.is_err() {
                    break;
                }
            }
        };
        // The answer ends when the stream has been taken.
        let done = futures::stream::once(take).filter_map(async |()| None);
        Ok(Response::new(done.boxed()))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Reply<Self::HandshakeStream> {
        no_such_call()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Reply<Self::ListFlightsStream> {
        no_such_call()
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<FlightInfo> {
        no_such_call()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<PollInfo> {
        no_such_call()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Reply<SchemaResult> {
        no_such_call()
    }

    async fn do_get(&self, _: Request<Ticket>) -> Reply<Self::DoGetStream> {
        no_such_call()
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Reply<Self::DoExchangeStream> {
        no_such_call()
    }

    async fn do_action(&self, _: Request<Action>) -> Reply<Self::DoActionStream> {
        no_such_call()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Reply<Self::ListActionsStream> {
        no_such_call()
    }
}
