//! The control service of a worker process.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use roundel_datafusion::engine::Offer;
use tokio_stream::wrappers::IntervalStream;
use tonic::{Request, Response, Status};

use super::loader::Loader;
use crate::protocol::VERSION;
use crate::protocol::control::control_server::Control;
use crate::protocol::control::{Beat, LoadReport, LoadRequest, OfferMessage, WatchRequest};

/// How often a worker says that it lives.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);

/// The control service of a worker: its beats, and the loader of its tables.
pub(super) struct ControlService {
    beat: Beat,
    loader: Loader,
}

impl ControlService {
    pub(super) fn new(loader: Loader, fabrics: Vec<Offer>, extensions: Vec<String>) -> Self {
        let fabrics = fabrics.into_iter().map(|offer| OfferMessage {
            fabric: offer.fabric,
            address: offer.address,
            lacks: offer.lacks,
        });
        let beat = Beat {
            version: VERSION.to_owned(),
            host: crate::host::host_id(),
            incarnation: uuid::Uuid::new_v4().to_string(),
            fabrics: fabrics.collect(),
            extensions,
        };
        Self { beat, loader }
    }
}

#[async_trait]
impl Control for ControlService {
    type WatchStream = BoxStream<'static, Result<Beat, Status>>;
    type LoadStream = BoxStream<'static, Result<LoadReport, Status>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let beat = self.beat.clone();
        let beats = IntervalStream::new(tokio::time::interval(BEAT_INTERVAL));
        let beats = beats.map(move |_| Ok(beat.clone()));
        Ok(Response::new(beats.boxed()))
    }

    async fn load(&self, load: Request<LoadRequest>) -> Result<Response<Self::LoadStream>, Status> {
        let reports = self.loader.load(load.into_inner())?;
        Ok(Response::new(reports.boxed()))
    }
}
