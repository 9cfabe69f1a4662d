//! Links within a process: rows for a consumer here are gathered into a frame of its own memory, and
//! no message is made of them.

use super::receive::LinkEnd;
use crate::endpoint::LinkId;
use crate::error::{ExchangeError, Result};
use arrow::buffer::Buffer;
use parking_lot::Mutex;
use roundel_verbs::CompletionStatus;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

/// Bytes of frames that wait for a reader before their source waits, too.
const WAITING_BYTES_MAX: usize = 2 << 20;

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

/// What a lane knows of its links within the process, and of those through the multiplexer.
#[derive(Default)]
pub(super) struct Waiting {
    /// Bytes that wait for a reader, by link.
    bytes: HashMap<LinkId, usize>,
    sources: Vec<Waker>,
    /// Messages that sources on other nodes may send for what has come and not been read, by link.
    held_back: HashMap<LinkId, u32>,
    /// Nobody reads, and others wait for these sources: they need not wait.
    relieved: bool,
}

impl Waiting {
    /// Frames of a link were read, or are not wanted any more.
    pub(super) fn was_read(&mut self, link: LinkId, bytes: usize) {
        if let Some(waiting) = self.bytes.get_mut(&link) {
            *waiting = waiting.saturating_sub(bytes);
            self.wake();
        }
    }

    /// A reader of a link found nothing: its source may send as much again, whatever waits for other readers.
    pub(super) fn allow_more(&mut self, link: LinkId) {
        if self.is_full(link) {
            self.bytes.insert(link, 0);
            self.wake();
        }
    }

    /// So many bytes wait for a reader of a link.
    pub(super) fn add(&mut self, link: LinkId, bytes: usize) {
        *self.bytes.entry(link).or_default() += bytes;
    }

    /// Whether so much of a link waits that its source shall wait, too.
    pub(super) fn is_full(&self, link: LinkId) -> bool {
        let waiting = self.bytes.get(&link).copied().unwrap_or(0);
        waiting >= WAITING_BYTES_MAX && !self.relieved
    }

    /// A message of a link has come, for which its source may send another later.
    pub(super) fn hold_back(&mut self, link: LinkId) {
        *self.held_back.entry(link).or_default() += 1;
    }

    /// What a source may send now.
    pub(super) fn take_held_back(&mut self, link: LinkId) -> u32 {
        self.held_back.remove(&link).unwrap_or(0)
    }

    /// Links whose sources may have to wait.
    pub(super) fn held_back(&self) -> Vec<LinkId> {
        self.held_back.keys().copied().collect()
    }

    /// Whether sources need not wait for readers.
    pub(super) fn relieve(&mut self, relieved: bool) {
        self.relieved = relieved;
        if relieved {
            self.wake();
        }
    }

    pub(super) fn forget(&mut self, link: LinkId) {
        self.bytes.remove(&link);
        self.held_back.remove(&link);
        self.wake();
    }

    fn wake(&mut self) {
        self.sources.drain(..).for_each(Waker::wake);
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
        std::future::poll_fn(|cx| {
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
                waiting.sources.push(cx.waker().clone());
                return Poll::Pending;
            }
            let Some(frame) = frame.take() else {
                return Poll::Ready(Ok(()));
            };
            let delivered = state.deliver(link, partition, frame);
            drop(state);
            lane.readers.wake();
            Poll::Ready(delivered)
        })
        .await
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
