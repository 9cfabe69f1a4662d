//! Broadcast by native multicast, where the device has it: a message to a transmission group is sent
//! once. Its members are asked to join first; until all have, each is sent to. What a member misses
//! is sent again to it alone.

use crate::wire::{Body, FLAG_REPEATED};
use roundel_verbs::{AddressHandle, MulticastGroup};

/// How often members are asked to join before it is left at sending to each.
const ASKS_MAX: u32 = 20;

/// The multicast group of a transmission group.
pub(super) struct Multicast {
    address: MulticastGroup,
    handle: AddressHandle,
    /// By member: whether it has joined.
    joined: Vec<bool>,
    asks: u32,
}

impl Multicast {
    pub(super) fn new(address: MulticastGroup, handle: AddressHandle, members: usize) -> Self {
        Self {
            address,
            handle,
            joined: vec![false; members],
            asks: 0,
        }
    }

    /// A member hears it.
    pub(super) fn joined(&mut self, member: usize) {
        self.joined[member] = true;
    }

    /// The question to join, with its flags, and who is to be asked, by member.
    pub(super) fn ask(&mut self) -> (Body, u8, impl Iterator<Item = bool> + use<>) {
        let flags = if self.asks > 0 { FLAG_REPEATED } else { 0 };
        self.asks += 1;
        let multicast = self.address.to_bytes();
        let asked = self.joined.clone().into_iter().map(|joined| !joined);
        (Body::Join(multicast), flags, asked)
    }

    /// Where to send, once every member hears it.
    pub(super) fn ready(&self) -> Option<AddressHandle> {
        let all = self.joined.iter().all(|joined| *joined);
        all.then(|| self.handle.clone())
    }

    /// Whether members were asked to join that have not answered.
    pub(super) fn awaits_joining(&self) -> bool {
        self.asks < ASKS_MAX && self.joined.contains(&false)
    }
}
