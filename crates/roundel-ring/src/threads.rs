//! The seam to the threads that join: an engine has threads of its own, and a simulation has virtual ones.

use crate::error::{Result, RingError};
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Work of a join, done by some thread.
pub type JoinWork = Box<dyn FnOnce() + Send>;

/// The threads of a host that join.
pub trait JoinThreads: Send + Sync {
    /// How many there are: a fragment is split among them.
    fn count(&self) -> usize;

    /// Has one of them do something; ready when it is done, or when the thread failed.
    fn run(&self, work: JoinWork) -> BoxFuture<'static, Result<()>>;
}

/// So many threads of a tokio runtime that may block.
#[derive(Clone, Copy, Debug)]
pub struct TokioThreads(pub usize);

impl JoinThreads for TokioThreads {
    fn count(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, work: JoinWork) -> BoxFuture<'static, Result<()>> {
        let done = tokio::task::spawn_blocking(work);
        done.map(|done| {
            done.map_err(|error| RingError::Unsupported(format!("a join thread failed: {error}")))
        })
        .boxed()
    }
}
