//! A running query's stream, which ends with an error that names the worker when one is lost.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use roundel_datafusion::Channels;
use roundel_datafusion::engine::{LOST_WORKER, cause};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use url::Url;
use uuid::Uuid;

use crate::EngineError;
use crate::membership::Membership;

/// How long to look for the cause of a failed query. If a worker died, the coordinator may hear of it a moment after
/// the query failed. A host takes a connection in less time than this, however busy its worker is.
const DIAGNOSIS_WAIT: Duration = Duration::from_millis(500);

/// How often a query is run again because datagrams were lost.
const RESTARTS_MAX: usize = 3;

/// Longest that it takes until a host that has vanished is noticed.
const LOSS_NOTICED_MAX: Duration = Duration::from_secs(5);

/// The workers that a query runs on.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) membership: Arc<Membership>,
    pub(crate) workers: Vec<(Url, String)>,
    pub(crate) channels: Channels,
    /// What the workers call it; none of a query that has no stages.
    pub(crate) query: Option<Uuid>,
}

impl Watch {
    /// Completes when one of the workers is lost.
    pub(crate) async fn lost(&self) -> EngineError {
        self.membership.lost(&self.workers).await
    }

    /// Finds the lost worker, or the failed task, behind an error, if there is one.
    async fn diagnose(&self, error: EngineError) -> EngineError {
        // An error that passed through another worker is text by now.
        let suspicious =
            matches!(error, EngineError::LinkBroken(_)) || error.to_string().contains(LOST_WORKER);
        if !suspicious {
            return self.lost().now_or_never().unwrap_or(error);
        }
        // The kernel can need twice as long to give up an idle connection to a host that has vanished as one
        // on which rows travel.
        let cause = async {
            sleep(DIAGNOSIS_WAIT).await;
            self.cause().await
        };
        let found = tokio::select! {
            lost = self.lost() => Some(lost),
            (unreachable, cause) = async { tokio::join!(self.unreachable(), cause) } => unreachable.or(cause),
        };
        found.unwrap_or(error)
    }

    /// What a task of the query failed of, if a worker knows of one.
    async fn cause(&self) -> Option<EngineError> {
        let query = self.query?;
        let asked = self.workers.iter().map(|(url, _)| async move {
            let cause = cause(&self.channels, url, query);
            let found = timeout(DIAGNOSIS_WAIT, cause).await.ok().flatten();
            found.map(EngineError::from)
        });
        let causes = futures::future::join_all(asked).await;
        causes.into_iter().flatten().next()
    }

    /// A worker that cannot be connected to, if there is one.
    async fn unreachable(&self) -> Option<EngineError> {
        let asked = self.workers.iter().map(|(url, _)| async move {
            let port = url.port_or_known_default()?;
            let address = format!("{}:{port}", url.host_str()?);
            let reason = match timeout(DIAGNOSIS_WAIT, TcpStream::connect(address)).await {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "its host does not answer".to_owned(),
            };
            Some(EngineError::WorkerLost {
                url: url.to_string(),
                reason,
            })
        });
        futures::future::join_all(asked)
            .await
            .into_iter()
            .flatten()
            .next()
    }
}

/// `batches`, watched over: when a worker is lost, the stream ends at once and says so.
pub(crate) fn watched(
    batches: SendableRecordBatchStream,
    watch: Watch,
) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let watched = futures::stream::unfold(Some((batches, watch)), async |running| {
        let (mut batches, watch) = running?;
        let next = tokio::select! {
            biased;
            next = batches.next() => next?,
            lost = watch.lost() => Err(lost.into()),
        };
        match next {
            Ok(batch) => Some((Ok(batch), Some((batches, watch)))),
            Err(error) => {
                drop(batches);
                Some((Err(watch.diagnose(error.into()).await.into()), None))
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, Box::pin(watched)))
}

/// A query that was started.
pub(crate) struct Run {
    /// Its rows, [watched] over.
    pub(crate) batches: SendableRecordBatchStream,
    /// Whether the others can do without any of its workers: it has a join on a ring, and no rows that only one of them has.
    pub(crate) outlives_workers: bool,
    /// Is ready once a worker that is lost does not count among those that live any more.
    pub(crate) loss_noticed: BoxFuture<'static, ()>,
}

impl Run {
    /// Whether another run may come to an end after this one did not.
    fn may_restart(&self, error: &EngineError) -> bool {
        error.is_transient()
            || self.outlives_workers && matches!(error, EngineError::WorkerLost { .. })
    }
}

/// The rows of a run. A new run of the same query takes its place when datagrams were lost, when a connection broke
/// while both of its ends live, or when a worker was lost whose rows others have. That happens at most [`RESTARTS_MAX`]
/// times, and only before the first row. `health` hears of each run that a broken connection ended, and of each that
/// came to its end.
pub(crate) fn restarting(
    run: Run,
    health: impl Fn(Option<&EngineError>) + Send + Sync + 'static,
    again: impl Fn() -> BoxFuture<'static, Result<Run, DataFusionError>> + Send + 'static,
) -> SendableRecordBatchStream {
    let schema = run.batches.schema();
    let running = Some((run, again, RESTARTS_MAX));
    let health = Arc::new(health);
    let restarted = futures::stream::unfold(running, move |running| {
        let health = Arc::clone(&health);
        async move {
            let (mut run, again, mut restarts) = running?;
            loop {
                let Some(next) = run.batches.next().await else {
                    health(None);
                    return None;
                };
                let error = match next {
                    Ok(batch) => {
                        let restarts = if batch.num_rows() > 0 { 0 } else { restarts };
                        return Some((Ok(batch), Some((run, again, restarts))));
                    }
                    Err(error) => EngineError::from(error),
                };
                if matches!(error, EngineError::LinkBroken(_)) {
                    health(Some(&error));
                }
                if !run.may_restart(&error) || restarts == 0 {
                    return Some((Err(error.into()), None));
                }
                restarts -= 1;
                tracing::warn!(%error, "running the query again");
                // The old run ends before the new one begins.
                drop(run.batches);
                if matches!(error, EngineError::WorkerLost { .. }) {
                    // Else the new one would need it, too.
                    let _ = timeout(LOSS_NOTICED_MAX, run.loss_noticed).await;
                }
                run = match again().await {
                    Ok(run) => run,
                    Err(error) => return Some((Err(error), None)),
                };
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, Box::pin(restarted)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use parking_lot::Mutex;

    use super::*;

    fn rows(count: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        RecordBatch::try_from_iter([("n", column)]).expect("one column")
    }

    fn run(items: Vec<Result<RecordBatch, DataFusionError>>) -> Run {
        let items = futures::stream::iter(items);
        Run {
            batches: Box::pin(RecordBatchStreamAdapter::new(rows(0).schema(), items)),
            outlives_workers: false,
            loss_noticed: futures::future::ready(()).boxed(),
        }
    }

    fn lost() -> DataFusionError {
        DataFusionError::Context(
            "reading an input".to_owned(),
            Box::new(EngineError::DatagramsLost("1 missing".to_owned()).into()),
        )
    }

    /// Rows that come out, and how often the query was run again.
    async fn restarted(first: Run, again: fn() -> Run) -> (Result<usize, EngineError>, usize) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let mut batches = restarting(
            first,
            |_| (),
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move { Ok(again()) })
            },
        );
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
    async fn so_do_broken_connections_and_each_is_told() {
        let broken = || Err(EngineError::LinkBroken("a to b".to_owned()).into());
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let runs = AtomicUsize::new(0);
        let batches = restarting(
            run(vec![broken()]),
            move |error| hears.lock().push(error.map(ToString::to_string)),
            move || {
                let items = match runs.fetch_add(1, Ordering::Relaxed) {
                    0 => vec![broken()],
                    _ => vec![Ok(rows(3))],
                };
                Box::pin(async move { Ok(run(items)) })
            },
        );
        let got: Vec<_> = batches.collect().await;
        assert_eq!(got.len(), 1);
        let told = told.lock().clone();
        assert_eq!(told.len(), 3);
        assert!(
            told[..2]
                .iter()
                .all(|told| told.as_ref().is_some_and(|t| t.contains("a to b")))
        );
        assert_eq!(told[2], None);
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

    #[tokio::test]
    async fn a_lost_worker_is_done_without_only_where_others_have_its_rows() {
        let worker_lost = || {
            let error = EngineError::WorkerLost {
                url: "http://a:1/".to_owned(),
                reason: "killed".to_owned(),
            };
            run(vec![Err(error.into())])
        };
        let first = Run {
            outlives_workers: true,
            ..worker_lost()
        };
        let (got, runs) = restarted(first, || run(vec![Ok(rows(3))])).await;
        assert_eq!((got.ok(), runs), (Some(3), 1));
        let (got, runs) = restarted(worker_lost(), || run(vec![Ok(rows(3))])).await;
        assert!(matches!(got, Err(EngineError::WorkerLost { .. })) && runs == 0);
    }
}
