//! Ways into an endpoint for tests that pair it with a receiver.

use super::{DestinationId, SendEndpoint};
use roundel_verbs::QueuePairAddress;

impl SendEndpoint {
    /// As if so many messages more had been granted and sent.
    pub(in super::super) fn skip_credit(&self, destination: DestinationId, messages: u32) {
        let mut state = self.0.state.lock();
        state.destinations[destination.0].credit.skip(messages);
    }

    /// Where its datagrams go out.
    pub(in super::super) fn datagram_address(&self) -> Option<QueuePairAddress> {
        let state = self.0.state.lock();
        let datagrams = state.datagrams.as_ref()?;
        Some(datagrams.address().clone())
    }
}
