//! Batches for which any consumer of a node will do: rows that are spread round robin or broadcast, and those that are
//! only brought together. Each consumer takes the next one when it has done with the one before, so that a slow one takes
//! few and holds nobody up.

use super::stream::PartitionStream;
use crate::error::Result;
use arrow::array::RecordBatch;
use futures::Stream as _;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Streams that consumers share. Clones are of the same ones.
#[derive(Clone)]
pub struct SharedStreams(Arc<Inner>);

struct Inner {
    /// `None` once it has ended.
    streams: Vec<Mutex<Option<PartitionStream>>>,
    /// Streams that have not ended.
    open: AtomicUsize,
    /// Which is looked at first next time.
    turn: AtomicUsize,
    /// Calls of [SharedStreams::next].
    calls: AtomicU64,
    idle: Arc<Idle>,
}

/// Calls that wait, by their numbers: several may be of one task, with one waker.
#[derive(Default)]
struct Idle(Mutex<BTreeMap<u64, Waker>>);

impl Idle {
    fn wake_one(&self) {
        let one = self.0.lock().pop_first();
        if let Some((_, one)) = one {
            one.wake();
        }
    }
}

impl Wake for Idle {
    fn wake(self: Arc<Self>) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_values().for_each(Waker::wake);
    }
}

impl SharedStreams {
    /// Of these streams.
    pub fn new(streams: impl IntoIterator<Item = PartitionStream>) -> Self {
        let streams = streams.into_iter();
        Self::of(streams.map(Some).collect())
    }

    fn of(streams: Vec<Option<PartitionStream>>) -> Self {
        Self(Arc::new(Inner {
            open: AtomicUsize::new(streams.iter().flatten().count()),
            streams: streams.into_iter().map(Mutex::new).collect(),
            turn: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
            idle: Arc::default(),
        }))
    }

    /// The next batch of any of the streams, for the consumer that asks; `None` when all have ended. Each batch, and
    /// each error, is one consumer's. None is lost when the future is dropped.
    pub async fn next(&self) -> Option<Result<RecordBatch>> {
        let mut call = Call {
            inner: &self.0,
            number: self.0.calls.fetch_add(1, Ordering::Relaxed),
            waits: false,
        };
        std::future::poll_fn(|cx| call.poll(cx)).await
    }
}

/// A consumer's call of [SharedStreams::next].
struct Call<'a> {
    inner: &'a Inner,
    number: u64,
    waits: bool,
}

impl Call<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let idle = &self.inner.idle;
        // Before looking: what comes meanwhile wakes this one.
        idle.0.lock().insert(self.number, cx.waker().clone());
        let found = self.inner.look();
        self.waits = found.is_pending();
        if found.is_ready() {
            idle.0.lock().remove(&self.number);
            // There may be more, or no more.
            idle.wake_one();
        }
        found
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let idle = &self.inner.idle;
        // What it was woken for is another's now.
        if self.waits && idle.0.lock().remove(&self.number).is_none() {
            idle.wake_one();
        }
    }
}

impl Inner {
    fn look(&self) -> Poll<Option<Result<RecordBatch>>> {
        let waker = Waker::from(self.idle.clone());
        let cx = &mut Context::from_waker(&waker);
        let count = self.streams.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for number in 0..count {
            // One that another consumer looks at is that one's, and wakes this one if there is more.
            let Some(mut stream) = self.streams[(first + number) % count].try_lock() else {
                continue;
            };
            let Some(open) = stream.as_mut() else {
                continue;
            };
            let found = match Pin::new(open).poll_next(cx) {
                Poll::Pending => continue,
                Poll::Ready(found) => found,
            };
            if !matches!(found, Some(Ok(_))) {
                *stream = None;
                drop(stream);
                // The last one ends the waiting of all. They cannot see that it has ended while others look at it.
                if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
                    waker.wake_by_ref();
                }
            }
            if found.is_some() {
                return Poll::Ready(found);
            }
        }
        match self.open.load(Ordering::Acquire) {
            0 => Poll::Ready(None),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn an_end_is_seen_while_others_look_at_the_streams() {
        let shared = SharedStreams::of(vec![None, None, None]);
        let _looks = shared.0.streams[1].lock();
        assert!(
            shared
                .next()
                .now_or_never()
                .is_some_and(|end| end.is_none())
        );
        assert!(shared.0.idle.0.lock().is_empty());
    }

    #[test]
    fn calls_of_one_task_wait_for_themselves_and_hand_on_what_they_do_not_use() {
        // A stream that does not end.
        let shared = SharedStreams::of(vec![None]);
        shared.0.open.store(1, Ordering::Relaxed);
        let mut first = Box::pin(shared.next());
        let mut second = Box::pin(shared.next());
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        let waiting = || shared.0.idle.0.lock().len();
        assert_eq!(waiting(), 2);
        shared.0.idle.wake_one();
        assert_eq!(waiting(), 1);
        drop(first);
        assert_eq!(waiting(), 0, "the second is woken for the first");
        drop(second);
    }
}
