//! A running query's stream, which ends with an error that names the worker when one is lost.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt as _;
use url::Url;

use crate::EngineError;
use crate::cluster::membership::Membership;
use crate::error::LOST_WORKER;

/// A query that fails may do so because a worker died, a moment before the coordinator knows.
const DIAGNOSIS_WAIT: Duration = Duration::from_millis(500);

/// `batches`, watched over: when one of `workers` is lost, the stream ends at once and says so.
pub(crate) fn watched(
    batches: SendableRecordBatchStream,
    membership: Arc<Membership>,
    workers: Vec<(Url, String)>,
) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let running = Some((batches, membership, workers));
    let watched = futures::stream::unfold(running, async |running| {
        let (mut batches, membership, workers) = running?;
        let next = tokio::select! {
            biased;
            next = batches.next() => next?,
            lost = membership.lost(&workers) => Err(lost.into()),
        };
        match next {
            Ok(batch) => Some((Ok(batch), Some((batches, membership, workers)))),
            Err(error) => {
                drop(batches);
                Some((Err(diagnose(error, &membership, &workers).await), None))
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, Box::pin(watched)))
}

/// Finds the lost worker behind an error, if there is one.
async fn diagnose(
    error: DataFusionError,
    membership: &Membership,
    workers: &[(Url, String)],
) -> DataFusionError {
    let error = EngineError::from(error);
    // An error that passed through another worker is text by now.
    let wait = match error.to_string().contains(LOST_WORKER) {
        true => DIAGNOSIS_WAIT,
        false => Duration::ZERO,
    };
    match tokio::time::timeout(wait, membership.lost(workers)).await {
        Ok(lost) => lost.into(),
        Err(_) => error.into(),
    }
}
