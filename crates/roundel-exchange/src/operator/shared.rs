//! Batches for which any consumer of a node will do: rows that are spread round robin or broadcast, and those that are
//! only brought together. Each consumer takes the next one when it has done with the one before, so that a slow one takes
//! few and holds nobody up.

use super::stream::PartitionStream;
use crate::error::Result;
use arrow::array::RecordBatch;
use futures::Stream as _;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Streams that consumers share. Clones are of the same ones.
#[derive(Clone)]
pub struct SharedStreams(Arc<Inner>);

struct Inner {
    /// `None` once it has ended.
    streams: Vec<Mutex<Option<PartitionStream>>>,
    /// Which is looked at first next time.
    turn: AtomicUsize,
    idle: Arc<Idle>,
}

/// Consumers that wait.
#[derive(Default)]
struct Idle(Mutex<Vec<Waker>>);

impl Idle {
    fn add(&self, waker: &Waker) {
        let mut idle = self.0.lock();
        if !idle.iter().any(|other| other.will_wake(waker)) {
            idle.push(waker.clone());
        }
    }

    fn remove(&self, waker: &Waker) {
        self.0.lock().retain(|other| !other.will_wake(waker));
    }

    fn wake_one(&self) {
        let one = self.0.lock().pop();
        if let Some(one) = one {
            one.wake();
        }
    }
}

impl Wake for Idle {
    fn wake(self: Arc<Self>) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().for_each(Waker::wake);
    }
}

impl SharedStreams {
    /// Of these streams.
    pub fn new(streams: impl IntoIterator<Item = PartitionStream>) -> Self {
        let streams = streams.into_iter();
        Self(Arc::new(Inner {
            streams: streams.map(|stream| Mutex::new(Some(stream))).collect(),
            turn: AtomicUsize::new(0),
            idle: Arc::default(),
        }))
    }

    /// The next batch of any of the streams, for the consumer that asks; `None` when all have ended. Each batch, and
    /// each error, is one consumer's.
    pub async fn next(&self) -> Option<Result<RecordBatch>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let inner = &self.0;
        // Before looking: what comes meanwhile wakes this one.
        inner.idle.add(cx.waker());
        let found = self.look();
        if found.is_ready() {
            inner.idle.remove(cx.waker());
            // There may be more, or no more.
            inner.idle.wake_one();
        }
        found
    }

    fn look(&self) -> Poll<Option<Result<RecordBatch>>> {
        let inner = &self.0;
        let waker = Waker::from(inner.idle.clone());
        let cx = &mut Context::from_waker(&waker);
        let count = inner.streams.len();
        let first = inner.turn.fetch_add(1, Ordering::Relaxed);
        let mut ended = 0;
        for number in 0..count {
            // One that another consumer looks at is that one's, and wakes this one if there is more.
            let Some(mut stream) = inner.streams[(first + number) % count].try_lock() else {
                continue;
            };
            let Some(open) = stream.as_mut() else {
                ended += 1;
                continue;
            };
            match Pin::new(open).poll_next(cx) {
                Poll::Pending => {}
                Poll::Ready(Some(found)) => {
                    if found.is_err() {
                        *stream = None;
                    }
                    return Poll::Ready(Some(found));
                }
                Poll::Ready(None) => {
                    *stream = None;
                    ended += 1;
                    drop(stream);
                    // Who passed this one over may wait for its end.
                    waker.wake_by_ref();
                }
            }
        }
        match ended == count {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}
