//! Links within a process: rows for a consumer here are gathered into a frame of its own memory, and
//! no message is made of them.

use super::link_end::LinkEnd;
use crate::account::{Spending, waiting_for};
use crate::error::{ExchangeError, Result};
use arrow::buffer::Buffer;
use parking_lot::Mutex;
use roundel_verbs::CompletionStatus;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Poll;

/// The receiving ends of a process's links, by the number that their offers carry.
#[derive(Default)]
pub struct LocalLinks(Mutex<HashMap<u64, Weak<LinkEnd>>>);

impl std::fmt::Debug for LocalLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalLinks({})", self.0.lock().len())
    }
}

impl LocalLinks {
    pub(super) fn offer(&self, number: u64, end: &Arc<LinkEnd>) {
        let mut links = self.0.lock();
        links.retain(|_, end| end.strong_count() > 0);
        links.insert(number, Arc::downgrade(end));
    }

    /// The end that was offered with this number, if that was in this process.
    pub(super) fn find(&self, number: u64) -> Option<LocalLink> {
        let end = self.0.lock().remove(&number)?;
        let peer = end.upgrade()?.peer.clone();
        Some(LocalLink { end, peer })
    }
}

/// The source's side of a link within a process.
#[derive(Clone)]
pub(super) struct LocalLink {
    end: Weak<LinkEnd>,
    peer: String,
}

impl std::fmt::Debug for LocalLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalLink({})", self.peer)
    }
}

impl LocalLink {
    /// Whether it is the same link.
    pub(super) fn is(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.end, &other.end)
    }

    /// Hands a frame to a partition's reader, when not too much waits for it.
    pub(super) async fn deliver(&self, partition: u32, frame: Buffer) -> Result<()> {
        let mut frame = Some(frame);
        let delivered = std::future::poll_fn(|cx| {
            let end = self.end()?;
            // Within a process all units of the source use one link.
            let (lane, &[link, ..]) = end.lane(partition) else {
                return Poll::Ready(Err(self.lost()));
            };
            let mut state = lane.state.lock();
            if let Some(Err(error)) = state.endpoint.ended(link) {
                return Poll::Ready(Err(error));
            }
            let waiting = &mut state.waiting;
            if waiting.is_full(link) {
                waiting.wait(cx.waker());
                return Poll::Pending;
            }
            let Some(frame) = frame.take() else {
                return Poll::Ready(Ok(()));
            };
            let delivered = state.deliver(link, partition, frame);
            drop(state);
            lane.readers.wake();
            Poll::Ready(delivered)
        });
        waiting_for(Spending::Reader, delivered).await
    }

    /// Tells the readers of a lane that no more comes.
    pub(super) fn finish_lane(&self, lane: usize) -> Result<()> {
        let end = self.end()?;
        if let Some((lane, links)) = end.lanes.get(lane) {
            for link in links {
                lane.state.lock().endpoint.complete(*link);
            }
            lane.readers.wake();
        }
        Ok(())
    }

    /// Tells readers who still wait for rows that none will come, and why. Without a reason it is the
    /// control plane's to say, as over the network.
    pub(super) fn close(&self, error: Option<ExchangeError>) {
        let (Some(end), Some(error)) = (self.end.upgrade(), error) else {
            return;
        };
        end.abort(&error);
    }

    fn end(&self) -> Result<Arc<LinkEnd>> {
        self.end.upgrade().ok_or_else(|| self.lost())
    }

    fn lost(&self) -> ExchangeError {
        ExchangeError::PeerLost {
            peer: self.peer.clone(),
            status: CompletionStatus::Flushed,
        }
    }
}

/// Turns a link that was offered into one within the process: its endpoints are not needed.
pub(super) fn localize(end: &LinkEnd) {
    for (lane, link) in end.links() {
        lane.state.lock().endpoint.localize(link);
    }
}
