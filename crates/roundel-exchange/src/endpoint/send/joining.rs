//! Asks the members of transmission groups to join their multicast, and hears whether they have.

use super::SendEndpoint;
use super::multicast::Multicast;
use super::state::State;
use roundel_verbs::MulticastGroup;

impl State {
    /// The queue key of all members of a group, if it is the same, and they are several.
    fn common_key(&self, group: usize) -> Option<u32> {
        self.datagrams.as_ref()?;
        let mut keys = self.groups[group].members.iter().map(|member| {
            let member = &self.destinations[*member];
            member.carrier.as_ref()?;
            Some(member.remote.queue_key)
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
            multicast.joined(member);
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
        state.groups[group].multicast = Some(Multicast::new(address, handle, members));
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
            let (body, flags, asked) = multicast.ask();
            let header = self.header(group as u16, flags, body);
            let members = state.groups[group].members.clone();
            for (member, asked) in members.into_iter().zip(asked) {
                if asked && state.has_room(member, 1) {
                    // Failing to ask is no failure: it asks again.
                    let _ = state.send_control(member, &header);
                }
            }
        }
    }
}
