//! Peers at work in this device's memory, and what must wait until they have left it.

use super::connected_ring;
use super::datagram_ring::{self, Slot};
use super::mapping::Mapping;
use super::peer::Peer;
use super::peers::PeerTable;
use std::any::Any;
use std::sync::Arc;

/// A queue pair of a peer that was inside an operation on this device's memory.
#[derive(Clone)]
pub(super) struct Visitor {
    peer: Arc<Peer>,
    number: u32,
    incarnation: u32,
    /// Its visit, which ends when the word changes.
    inside: u64,
}

impl Visitor {
    /// The queue pair of `peer` with this number, if it is inside now. A fence separates this from
    /// whatever forbade it to enter again.
    pub(super) fn find(peer: &Arc<Peer>, number: u32, incarnation: u32) -> Option<Self> {
        if peer.is_dead() {
            return None;
        }
        let inside = connected_ring::inside(peer.mapping.pair(number as usize)?, incarnation)?;
        Some(Self {
            peer: peer.clone(),
            number,
            incarnation,
            inside,
        })
    }

    /// Whether it has left.
    pub(super) fn has_left(&self) -> bool {
        Self::find(&self.peer, self.number, self.incarnation)
            .is_none_or(|now| now.inside != self.inside)
    }
}

/// A datagram receive that a peer had claimed when its queue pair was destroyed.
pub(super) struct Claim {
    pub ring_at: u64,
    pub ring_slots: u32,
    pub incarnation: u32,
    pub sequence: u64,
    pub token: u32,
}

impl Claim {
    fn is_over(&self, own: &Mapping, peers: &PeerTable) -> bool {
        let Some(slots) = own.slots(self.ring_at, self.ring_slots) else {
            return true;
        };
        !matches!(
            datagram_ring::look(slots, self.incarnation, self.sequence),
            Slot::Claimed(token) if token == self.token
        ) || peers.token_is_dead(self.token)
    }
}

/// Memory that is not in use any more but for the peers that are still inside; dropped, it is
/// free.
pub(super) struct Retired {
    pub visitors: Vec<Visitor>,
    pub claims: Vec<Claim>,
    /// Held, not read: dropping it frees the memory.
    pub _kept: Box<dyn Any + Send>,
}

impl Retired {
    /// Whether nobody is inside any more.
    pub(super) fn is_quiescent(&self, own: &Mapping, peers: &PeerTable) -> bool {
        self.visitors.iter().all(Visitor::has_left)
            && self.claims.iter().all(|claim| claim.is_over(own, peers))
    }
}
