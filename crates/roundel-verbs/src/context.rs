//! The seam to the outside: time, sleep, tasks, randomness and the cost of work. Nothing above
//! this crate reads a clock itself, so that the same code runs on virtual time.

use crate::completion_queue::BoxFuture;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Work done by a CPU, for providers on which it costs virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bytes hashed.
    Hash(usize),
    /// Bytes copied.
    Copy(usize),
    /// Bytes that the kernel takes from the thread, or gives it, over TCP.
    Tcp(usize),
    /// Buffers looked at for whether they are full.
    Looks(usize),
    /// Anything else, in cycles.
    Cycles(u64),
}

/// What a simulation knows of a lock.
pub trait VirtualLock: Send + Sync {
    /// A thread wants it: it has it when this returns, later in virtual time.
    fn enter(&self);
    /// The thread gives it back.
    fn leave(&self);
}

/// Time, tasks and randomness.
pub trait Context: Send + Sync {
    /// Time since some fixed moment.
    fn now(&self) -> Duration;
    /// Time for which a processor has run this thread, since some fixed moment. Differences within one poll tell of something.
    fn computed(&self) -> Duration {
        self.now()
    }
    /// Is ready once `duration` has passed on the clock of [`now`](Self::now).
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
    /// Starts a task that runs on its own.
    fn spawn(&self, task: BoxFuture<'static, ()>);
    /// A random number.
    fn random(&self) -> u64;
    /// Accounts for work of the CPU; costs nothing outside a simulation.
    fn charge(&self, _work: Work) {}
    /// A lock of the threads of this node, where waiting for it takes virtual time.
    fn lock(&self) -> Option<Arc<dyn VirtualLock>> {
        None
    }
    /// Whether work was accounted for that takes longer than the clock has moved since.
    fn is_ahead(&self) -> bool {
        false
    }
}

/// Waits until work that was accounted for is over, so that what comes next is done when it would be.
/// Outside a simulation that is at once.
pub async fn settle(context: &dyn Context) {
    std::future::poll_fn(|cx| match context.is_ahead() {
        true => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

/// The real world, on a tokio runtime.
#[derive(Clone, Debug)]
pub struct TokioContext {
    start: Instant,
    runtime: tokio::runtime::Handle,
}

impl TokioContext {
    /// The context of this runtime.
    ///
    /// # Panics
    /// When called outside of a tokio runtime.
    pub fn current() -> Self {
        Self {
            start: Instant::now(),
            runtime: tokio::runtime::Handle::current(),
        }
    }
}

impl Context for TokioContext {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn computed(&self) -> Duration {
        let computed = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // It counts from zero.
        Duration::try_from(computed).unwrap_or_default()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.runtime.spawn(task);
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}
