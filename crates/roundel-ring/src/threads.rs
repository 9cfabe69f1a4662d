//! The seam to the threads that join: an engine has threads of its own, and a simulation has virtual ones.

use crate::error::{Result, RingError};
use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use std::sync::Arc;

/// Work of a join, done by some thread.
pub type JoinWork = Box<dyn FnOnce() + Send>;

/// The threads of a host that join.
pub trait JoinThreads: Send + Sync {
    /// How many there are: set-up and fragments are split among them.
    fn count(&self) -> usize;

    /// Has one of them do something; ready when it is done, or when the thread failed.
    fn run(&self, work: JoinWork) -> BoxFuture<'static, Result<()>>;
}

/// Has a thread do something.
///
/// # Errors
/// When the work fails, or the thread.
pub(crate) async fn on_thread<T: Send + 'static>(
    threads: &dyn JoinThreads,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, result) = oneshot::channel();
    let work = move || {
        // The task that waits for it may have given up.
        let _ = done.send(work());
    };
    threads.run(Box::new(work)).await?;
    result.await.unwrap_or(Err(RingError::Cancelled))
}

/// Has all threads do something with each item, and take the next when they are done with one, so that a thread that is
/// held up holds up nothing else. The results are in the order of the items.
///
/// # Errors
/// The first of the work or of a thread.
pub(crate) async fn on_all<I: Send + 'static, T: Send + 'static>(
    threads: &dyn JoinThreads,
    items: Vec<I>,
    work: impl Fn(I) -> Result<T> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    let count = threads.count().min(items.len());
    let left = Arc::new(Mutex::new(items.into_iter().enumerate()));
    let work = Arc::new(work);
    let all = (0..count).map(|_| {
        let (left, work) = (left.clone(), work.clone());
        let (done, results) = oneshot::channel();
        let drain = move || {
            let mut results = Vec::new();
            // The task that waits for them may have given up, as it does when one fails.
            while !done.is_canceled() {
                let Some((at, item)) = left.lock().next() else {
                    break;
                };
                match work(item) {
                    Ok(result) => results.push((at, result)),
                    Err(error) => {
                        let _ = done.send(Err(error));
                        return;
                    }
                }
            }
            let _ = done.send(Ok(results));
        };
        async move {
            threads.run(Box::new(drain)).await?;
            results.await.unwrap_or(Err(RingError::Cancelled))
        }
    });
    let mut results: Vec<(usize, T)> = try_join_all(all).await?.into_iter().flatten().collect();
    results.sort_unstable_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// So many threads of a tokio runtime that may block.
#[derive(Clone, Copy, Debug)]
pub struct TokioThreads(pub usize);

impl JoinThreads for TokioThreads {
    fn count(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, work: JoinWork) -> BoxFuture<'static, Result<()>> {
        #[expect(
            clippy::disallowed_methods,
            reason = "simulated hosts have other `JoinThreads`"
        )]
        let done = tokio::task::spawn_blocking(work);
        done.map(|done| {
            done.map_err(|error| RingError::Unsupported(format!("a join thread failed: {error}")))
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn results_are_in_the_order_of_their_items() {
        for items in [0, 1, 2, 1000] {
            let squares = on_all(&TokioThreads(3), (0..items).collect(), |item| {
                Ok(item * item)
            });
            let expected: Vec<i32> = (0..items).map(|item| item * item).collect();
            assert_eq!(squares.await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_failure_is_that_of_all() {
        let failed = on_all(&TokioThreads(2), (0..100).collect(), |item| match item {
            60 => Err(RingError::Predicate("60".into())),
            _ => Ok(()),
        });
        let failed = failed.await;
        assert!(matches!(failed, Err(RingError::Predicate(_))), "{failed:?}");
    }
}
