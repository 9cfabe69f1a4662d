//! What waits for readers in a lane, by link, and the sources that wait until it has been read: those within the process, and those
//! on other nodes that send through a multiplexer.

use crate::endpoint::LinkId;
use std::collections::BTreeMap;
use std::task::Waker;

/// Bytes of frames that wait for a reader before their source waits, too.
const WAITING_BYTES_MAX: usize = 2 << 20;

/// What a lane knows of its links within the process, and of those through the multiplexer.
#[derive(Default)]
pub(super) struct Waiting {
    /// Bytes that wait for a reader, by link.
    bytes: BTreeMap<LinkId, usize>,
    sources: Vec<Waker>,
    /// Messages that sources on other nodes may send for what has come and not been read, by link.
    held_back: BTreeMap<LinkId, u32>,
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

    /// A source waits until there is room again.
    pub(super) fn wait(&mut self, source: &Waker) {
        self.sources.push(source.clone());
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
