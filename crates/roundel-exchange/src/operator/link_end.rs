//! The receiving end of a link: the lanes that its messages come in by, whether they come over endpoints, through a multiplexer or
//! within the process.

use super::lane::Lane;
use crate::account::Account;
use crate::endpoint::LinkId;
use crate::error::ExchangeError;
use std::ops::Range;
use std::sync::Arc;

/// When it is dropped, its source can no longer send.
pub(super) struct LinkEnd {
    /// Each with its links: one for each of the source's units.
    pub(super) lanes: Vec<(Arc<Lane>, Vec<LinkId>)>,
    pub(super) partitions: Range<u32>,
    pub(super) peer: String,
    /// The number of the offer, by which a source in this process finds it.
    pub(super) number: u64,
    /// Of those who read its partitions, in their order.
    pub(super) accounts: Vec<Account>,
}

impl LinkEnd {
    /// Where a partition comes in, and over which links.
    pub(super) fn lane(&self, partition: u32) -> (&Arc<Lane>, &[LinkId]) {
        let (lane, links) = &self.lanes[partition as usize % self.lanes.len()];
        (lane, links)
    }

    /// The account of who reads a partition.
    pub(super) fn account(&self, partition: u32) -> Option<&Account> {
        let index = partition.checked_sub(self.partitions.start)?;
        self.accounts.get(index as usize)
    }

    /// All links, in the order of their addresses.
    pub(super) fn links(&self) -> impl Iterator<Item = (&Arc<Lane>, LinkId)> {
        let lanes = self.lanes.iter();
        lanes.flat_map(|(lane, links)| links.iter().map(move |link| (lane, *link)))
    }

    /// Ends all links that have not ended with an error.
    pub(super) fn abort(&self, error: &ExchangeError) {
        for (lane, link) in self.links() {
            lane.state.lock().endpoint.abort(link, error.clone());
            lane.readers.wake();
        }
    }
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        for (lane, link) in self.links() {
            let mut state = lane.state.lock();
            state.close(link, self.partitions.clone());
        }
    }
}
