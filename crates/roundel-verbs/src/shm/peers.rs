//! The peers of a device: by identity, and by the tokens that name them in datagram rings.

use super::datagram_ring::TOKENS;
use super::hello::{Descriptors, Hello};
use super::mapping::Mapping;
use super::peer::{DeviceId, Peer};
use crate::error::Result;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(super) struct PeerTable {
    known: RwLock<Known>,
    tokens: AtomicU32,
}

#[derive(Default)]
struct Known {
    by_id: HashMap<DeviceId, Arc<Peer>>,
    /// Who may claim receives here. `None` while hellos are exchanged: the peer has its token and
    /// may use it before we have its hello.
    by_token: HashMap<u32, Option<Weak<Peer>>>,
}

impl PeerTable {
    /// A name for a peer in our datagram rings, alive until it is withdrawn or the peer dies.
    pub(super) fn offer_token(&self) -> u32 {
        let mut known = self.known.write();
        loop {
            let token = self.tokens.fetch_add(1, Ordering::Relaxed) % TOKENS;
            if token != 0 && !known.by_token.contains_key(&token) {
                known.by_token.insert(token, None);
                return token;
            }
        }
    }

    /// The hellos came to nothing.
    pub(super) fn withdraw_token(&self, token: u32) {
        self.known.write().by_token.remove(&token);
    }

    /// The living peer of this identity.
    pub(super) fn get(&self, id: &DeviceId) -> Option<Arc<Peer>> {
        let peer = self.known.read().by_id.get(id).cloned()?;
        (!peer.is_dead()).then_some(peer)
    }

    /// Takes a peer in whose hello has been checked. `token` is who it is in our rings.
    pub(super) fn insert(
        &self,
        theirs: &Hello,
        descriptors: Descriptors,
        token: u32,
    ) -> Result<Arc<Peer>> {
        let mut known = self.known.write();
        let peer = match known.by_id.get(&theirs.id) {
            // Both sides may connect at once: the mapping that is there stays.
            Some(peer) if !peer.is_dead() => peer.clone(),
            _ => Arc::new(Peer::new(
                theirs.id,
                Arc::new(Mapping::of_peer(&descriptors.memory)?),
                Arc::new(descriptors.eventfds),
                theirs.token,
                format!("process {}", theirs.process),
            )),
        };
        known.insert(&peer, token);
        Ok(peer)
    }

    /// Takes the device itself in, for loopback.
    pub(super) fn insert_self(&self, peer: &Arc<Peer>) {
        self.known.write().insert(peer, peer.token);
    }

    /// Forgets a dead peer.
    pub(super) fn remove(&self, peer: &Arc<Peer>) {
        let mut known = self.known.write();
        if known
            .by_id
            .get(&peer.id)
            .is_some_and(|known| Arc::ptr_eq(known, peer))
        {
            known.by_id.remove(&peer.id);
        }
        known.by_token.retain(|_, holder| {
            holder
                .as_ref()
                .is_none_or(|holder| !std::ptr::eq(holder.as_ptr(), Arc::as_ptr(peer)))
        });
    }

    /// Whether the peer behind a token is gone, or was never there.
    pub(super) fn token_is_dead(&self, token: u32) -> bool {
        match self.known.read().by_token.get(&token) {
            None => true,
            Some(None) => false,
            Some(Some(peer)) => peer.upgrade().is_none_or(|peer| peer.is_dead()),
        }
    }
}

impl Known {
    fn insert(&mut self, peer: &Arc<Peer>, token: u32) {
        self.by_token.insert(token, Some(Arc::downgrade(peer)));
        self.by_id.insert(peer.id, peer.clone());
    }
}
