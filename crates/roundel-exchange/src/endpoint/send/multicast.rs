//! Broadcast by native multicast, where the device has it: a message to a transmission group is sent
//! once. Its members are asked to join first; until all have, each is sent to. What a member misses
//! is sent again to it alone.

use super::SendEndpoint;
use super::destination::Carrier;
use super::state::State;
use crate::wire::{Body, FLAG_REPEATED, Join};
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
    /// Where to send, once every member hears it.
    pub(super) fn ready(&self) -> Option<AddressHandle> {
        let all = self.joined.iter().all(|joined| *joined);
        all.then(|| self.handle.clone())
    }

    fn awaits_joining(&self) -> bool {
        self.asks < ASKS_MAX && self.joined.contains(&false)
    }
}

impl State {
    /// The queue key of all members of a group, if it is the same, and they are several.
    fn common_key(&self, group: usize) -> Option<u32> {
        let mut keys = self.groups[group].members.iter().map(|member| {
            match self.destinations[*member].carrier {
                Carrier::Datagram { queue_key, .. } => Some(queue_key),
                _ => None,
            }
        });
        let first = keys.next()??;
        let mut others = keys.peekable();
        others.peek()?;
        others.all(|key| key == Some(first)).then_some(first)
    }

    /// Whether members were asked to join that have not answered.
    pub(super) fn awaits_joining(&self) -> bool {
        let mut groups = self.groups.iter().flat_map(|group| &group.multicast);
        groups.any(Multicast::awaits_joining)
    }

    /// A member hears the group's multicast.
    pub(super) fn joined(&mut self, destination: usize, group: usize) {
        let Some(group) = self.groups.get_mut(group) else {
            return;
        };
        let member = group.members.iter().position(|to| *to == destination);
        if let (Some(member), Some(multicast)) = (member, &mut group.multicast) {
            multicast.joined[member] = true;
        }
    }
}

impl SendEndpoint {
    /// Gives a new group a multicast address, where there is multicast and the members share a
    /// queue key, and asks them to join.
    pub(super) fn begin_multicast(&self, state: &mut State, group: usize) {
        let inner = &*self.0;
        let device = &inner.fabric.device;
        if device.capabilities().multicast_groups_max == 0 || inner.options.queue_key.is_none() {
            return;
        }
        let Some(key) = state.common_key(group) else {
            return;
        };
        let address = MulticastGroup::new(inner.fabric.context.random(), key);
        let handle = match device.create_multicast_handle(&address) {
            Ok(handle) => handle,
            Err(error) => {
                tracing::debug!(%error, "no multicast");
                return;
            }
        };
        let members = state.groups[group].members.len();
        state.groups[group].multicast = Some(Multicast {
            address,
            handle,
            joined: vec![false; members],
            asks: 0,
        });
        self.ask_to_join(state);
    }

    /// Asks the members of groups to join that have not said that they have.
    pub(super) fn ask_to_join(&self, state: &mut State) {
        for group in 0..state.groups.len() {
            let Some(multicast) = &mut state.groups[group].multicast else {
                continue;
            };
            if !multicast.awaits_joining() {
                continue;
            }
            let flags = if multicast.asks > 0 { FLAG_REPEATED } else { 0 };
            multicast.asks += 1;
            let body = Body::Join(Join {
                multicast: multicast.address.to_bytes(),
            });
            let joined = multicast.joined.clone();
            let header = self.header(group as u16, flags, body);
            let members = state.groups[group].members.clone();
            for (member, joined) in members.into_iter().zip(joined) {
                if !joined && state.has_room(member, 1) {
                    // Failing to ask is no failure: it asks again.
                    let _ = state.send_control(member, &header);
                }
            }
        }
    }
}
