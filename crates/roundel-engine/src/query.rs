//! A running query's stream, which ends with an error that names the worker when one is lost.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use url::Url;

use crate::EngineError;
use crate::cluster::membership::Membership;
use crate::error::LOST_WORKER;

/// A query that fails may do so because a worker died, a moment before the coordinator knows.
const DIAGNOSIS_WAIT: Duration = Duration::from_millis(500);

/// How often a query is run again because datagrams were lost.
const RESTARTS_MAX: usize = 3;

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

/// `batches`, or a new run of the same query in its place when datagrams were lost: at most
/// [`RESTARTS_MAX`] times, and only before its first row.
pub(crate) fn restarting(
    batches: SendableRecordBatchStream,
    again: impl Fn() -> BoxFuture<'static, Result<SendableRecordBatchStream, DataFusionError>>
    + Send
    + 'static,
) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let running = Some((batches, again, RESTARTS_MAX));
    let restarted = futures::stream::unfold(running, async |running| {
        let (mut batches, again, mut restarts) = running?;
        loop {
            let error = match batches.next().await? {
                Ok(batch) => {
                    let restarts = if batch.num_rows() > 0 { 0 } else { restarts };
                    return Some((Ok(batch), Some((batches, again, restarts))));
                }
                Err(error) => EngineError::from(error),
            };
            if !matches!(error, EngineError::DatagramsLost(_)) || restarts == 0 {
                return Some((Err(error.into()), None));
            }
            restarts -= 1;
            tracing::warn!(%error, "running the query again");
            // The old run ends before the new one begins.
            drop(batches);
            batches = match again().await {
                Ok(batches) => batches,
                Err(error) => return Some((Err(error), None)),
            };
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, Box::pin(restarted)))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;

    fn rows(count: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        RecordBatch::try_from_iter([("n", column)]).expect("one column")
    }

    fn run(items: Vec<Result<RecordBatch, DataFusionError>>) -> SendableRecordBatchStream {
        let items = futures::stream::iter(items);
        Box::pin(RecordBatchStreamAdapter::new(rows(0).schema(), items))
    }

    fn lost() -> DataFusionError {
        DataFusionError::Context(
            "reading an input".to_owned(),
            Box::new(EngineError::DatagramsLost("1 missing".to_owned()).into()),
        )
    }

    /// Rows that come out, and how often the query was run again.
    async fn restarted(
        first: SendableRecordBatchStream,
        again: fn() -> SendableRecordBatchStream,
    ) -> (Result<usize, EngineError>, usize) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let mut batches = restarting(first, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { Ok(again()) })
        });
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            match batch {
                Ok(batch) => rows += batch.num_rows(),
                Err(error) => return (Err(error.into()), runs.load(Ordering::Relaxed)),
            }
        }
        (Ok(rows), runs.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn lost_datagrams_restart_a_query_before_its_first_row() {
        let (got, runs) = restarted(run(vec![Ok(rows(0)), Err(lost())]), || {
            run(vec![Ok(rows(3)), Ok(rows(2))])
        })
        .await;
        assert_eq!((got.ok(), runs), (Some(5), 1));
    }

    #[tokio::test]
    async fn but_not_after_it_nor_for_ever_nor_for_other_errors() {
        let lost_again = || run(vec![Err(lost())]);
        let (got, runs) = restarted(run(vec![Ok(rows(1)), Err(lost())]), lost_again).await;
        assert!(matches!(got, Err(EngineError::DatagramsLost(_))) && runs == 0);
        let (got, runs) = restarted(run(vec![Err(lost())]), lost_again).await;
        assert!(matches!(got, Err(EngineError::DatagramsLost(_))) && runs == RESTARTS_MAX);
        let other = DataFusionError::Execution("division by zero".to_owned());
        let (got, runs) = restarted(run(vec![Err(other)]), lost_again).await;
        assert!(matches!(got, Err(EngineError::Query(_))) && runs == 0);
    }
}
