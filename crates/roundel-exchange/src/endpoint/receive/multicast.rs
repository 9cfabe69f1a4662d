//! Multicast as a receiver sees it: it joins what its sources ask it to. What they send to the
//! multicast group then arrives as anything else does, in the same receives.

use super::ReceiveEndpoint;
use crate::wire::Body;
use roundel_verbs::MulticastGroup;

/// Groups of one source that are joined at most.
const GROUPS_MAX: usize = 16;

impl ReceiveEndpoint {
    /// Joins the multicast group of a source's transmission group and says so, again when it was
    /// asked again. A node that cannot join says nothing, and the source goes on without it.
    pub(super) fn join(&mut self, index: usize, group: u16, multicast: &[u8]) {
        let link = &mut self.links[index];
        let known = link.joined.contains(&group);
        if !known {
            let (Some(datagrams), true) = (&self.datagrams, link.joined.len() < GROUPS_MAX) else {
                return;
            };
            // A stranger's key would let others than the exchange's sources in.
            let joined = MulticastGroup::from_bytes(multicast)
                .ok()
                .filter(|multicast| multicast.queue_key == datagrams.address().queue_key)
                .map(|multicast| datagrams.join(&multicast));
            match joined {
                Some(Ok(())) => link.joined.insert(group),
                Some(Err(error)) => {
                    tracing::debug!(%error, peer = link.peer, "no multicast");
                    return;
                }
                None => return,
            };
        }
        // Failing to say so is no failure: the source asks again.
        let _ = self.say(index, group, 0, Body::Joined);
    }
}
