//! Ways into an endpoint for tests that pair it with a receiver.

use super::{DestinationId, GroupId, SendEndpoint};
use crate::link::repair::Retained;
use crate::wire::Body;
use roundel_verbs::QueuePairAddress;

impl SendEndpoint {
    /// As if so many messages more had been granted and sent.
    pub(in super::super) fn skip_credit(&self, destination: DestinationId, messages: u32) {
        let mut state = self.0.state.lock();
        state.destinations[destination.0].credit.skip(messages);
    }

    /// Says something to a destination.
    pub(in super::super) fn say(&self, destination: DestinationId, group: u16, body: Body) {
        let mut state = self.0.state.lock();
        let header = self.header(group, 0, body);
        state.send_control(destination.0, &header).unwrap();
    }

    /// As if so many messages more had been sent to a group, and had arrived.
    pub(in super::super) fn skip_messages(&self, group: GroupId, messages: u64) {
        self.0.state.lock().groups[group.0].sent += messages;
    }

    /// Messages that it keeps.
    pub(in super::super) fn kept(&self, group: GroupId) -> usize {
        let state = self.0.state.lock();
        let retained = state.groups[group.0].retained.as_ref();
        retained.map_or(0, Retained::len)
    }

    /// Takes what was said to it.
    pub(in super::super) fn listen(&self) {
        self.progress(&mut self.0.state.lock());
    }

    /// Where its datagrams go out.
    pub(in super::super) fn datagram_address(&self) -> Option<QueuePairAddress> {
        let state = self.0.state.lock();
        let datagrams = state.datagrams.as_ref()?;
        Some(datagrams.queue_pair.address().clone())
    }
}
