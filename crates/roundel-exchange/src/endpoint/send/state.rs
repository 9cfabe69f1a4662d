//! What a send endpoint knows of its destinations and groups, and what each of them owes the other.

use super::GroupId;
use super::destination::Destination;
use super::kept::{Kept, Repairs};
use super::multicast::Multicast;
use super::shared::Shared;
use crate::buffers::Circulation;
use crate::designs::Design;
use crate::error::ExchangeError;
use crate::link::queue_pair::SendQueue;
use crate::link::repair::Retained;
use crate::report::EndpointReport;
use roundel_verbs::{Buffer, Completion, CompletionStatus};
use std::collections::HashMap;
use std::time::Duration;

/// Places in a send queue that data leaves to control messages.
pub(super) const CONTROL_SENDS: usize = 6;

/// Marks of sends: a group's number for an owned buffer, or one of these.
pub(super) const REPAIR: u64 = 1 << 61;
pub(super) const SHARED: u64 = 1 << 62;
pub(super) const CONTROL: u64 = 1 << 63;
/// A READ that comes back when all that was sent before it has arrived.
pub(super) const ARRIVAL: u64 = CONTROL | 1 << 60;

pub(super) struct State {
    pub(super) design: Design,
    /// The one queue pair of a datagram endpoint.
    pub(super) datagrams: Option<SendQueue>,
    pub(super) destinations: Vec<Destination>,
    pub(super) by_queue_pair: HashMap<u32, usize>,
    pub(super) groups: Vec<Group>,
    pub(super) pools: Vec<Pool>,
    pub(super) shared: Shared,
    pub(super) repairs: Repairs,
    pub(super) completions: Vec<Completion>,
    /// Whether a destination has asked.
    pub(super) asked: bool,
    pub(super) report: EndpointReport,
}

/// Buffers that messages are filled in: of one group over connections, of all groups over datagrams.
pub(super) struct Pool {
    pub(super) free: Vec<Buffer>,
    /// All, those in use included.
    pub(super) buffers: usize,
    /// Those that stay even when nobody wants them, and those that there may be at most.
    pub(super) least: usize,
    pub(super) most: usize,
    /// Groups that have none, and for each of which one stays: others may wait for credit with theirs.
    pub(super) idle: usize,
    pub(super) circulation: Circulation,
}

pub(super) struct Group {
    pub(super) members: Vec<usize>,
    /// Where its buffers are from, and how many it has.
    pub(super) pool: usize,
    pub(super) held: usize,
    /// A member is gone: nothing new is sent any more.
    pub(super) closed: bool,
    /// Messages sent so far: the sequence number of the next one.
    pub(super) sent: u64,
    /// Where lost messages are repaired: those that have not arrived everywhere.
    pub(super) retained: Option<Retained<Kept>>,
    /// Where one message reaches every member.
    pub(super) multicast: Option<Multicast>,
}

impl State {
    /// Whether every member of a group has granted credit, not too much is kept for it, and there is
    /// room in the send queues.
    pub(super) fn may_send(&self, group: GroupId) -> bool {
        let members = &self.groups[group.0].members;
        // One queue pair carries all datagrams.
        let sends = match &self.datagrams {
            Some(_) => members.len(),
            None => self.design.requests_each(),
        };
        let retained = self.groups[group.0].retained.as_ref();
        self.credit_left(group) > 0
            && retained.is_none_or(|retained| !retained.is_full())
            && members
                .iter()
                .all(|member| self.has_room(*member, sends + CONTROL_SENDS))
    }

    /// Messages that every member of a group allows now.
    pub(super) fn credit_left(&self, group: GroupId) -> u32 {
        let members = self.groups[group.0].members.iter();
        let left = members.map(|member| self.destinations[*member].left());
        left.min().unwrap_or(0)
    }

    /// Whether `sends` more fit in the send queue that leads to a destination.
    pub(super) fn has_room(&self, destination: usize, sends: usize) -> bool {
        let own = self.destinations[destination].sends.as_ref();
        let queue = own.or(self.datagrams.as_ref());
        queue.is_none_or(|queue| queue.has_room(sends))
    }

    /// The send queue that leads to a destination, unless it is closed.
    pub(super) fn sends(&mut self, destination: usize) -> Option<&mut SendQueue> {
        let own = self.destinations[destination].sends.as_mut();
        own.or(self.datagrams.as_mut())
    }

    /// A task has waited so long to send to a group.
    pub(super) fn note_wait(&mut self, group: GroupId, waited: Duration) {
        for member in &self.groups[group.0].members {
            self.destinations[*member].report.delivering += waited;
        }
    }

    pub(super) fn failure_of(&self, group: GroupId) -> Option<ExchangeError> {
        self.groups[group.0]
            .members
            .iter()
            .find_map(|member| self.destinations[*member].failed.clone())
    }

    /// Takes a buffer of a group back.
    pub(super) fn give_back(&mut self, group: usize, buffer: Buffer) {
        let group = &mut self.groups[group];
        let pool = &mut self.pools[group.pool];
        group.held -= 1;
        pool.idle += usize::from(group.held == 0 && !group.closed);
        // Over datagrams other groups need it.
        if self.datagrams.is_some() || !group.closed {
            pool.free.push(buffer);
        }
    }

    /// A buffer of a group is gone, of so many bytes: what should have sent it has failed.
    pub(super) fn lose_buffer(&mut self, group: GroupId, bytes: usize) {
        let group = &mut self.groups[group.0];
        let pool = &mut self.pools[group.pool];
        group.held -= 1;
        pool.idle += usize::from(group.held == 0 && !group.closed);
        pool.buffers -= 1;
        self.report.give_back(1, bytes);
    }

    /// Whether there is a free buffer for a group.
    pub(super) fn has_buffer_for(&self, group: GroupId) -> bool {
        let group = &self.groups[group.0];
        let pool = &self.pools[group.pool];
        let of_others = if group.held == 0 { 0 } else { pool.idle };
        pool.free.len() > of_others
    }

    /// A free buffer for a group.
    pub(super) fn take_buffer(&mut self, group: GroupId) -> Option<Buffer> {
        match self.has_buffer_for(group) {
            true => self.pool_of(group).free.pop(),
            false => None,
        }
    }

    /// A group has got a buffer.
    pub(super) fn count_held(&mut self, group: GroupId) {
        let group = &mut self.groups[group.0];
        self.pools[group.pool].idle -= usize::from(group.held == 0 && !group.closed);
        group.held += 1;
    }

    /// The buffers of a group.
    pub(super) fn pool_of(&mut self, group: GroupId) -> &mut Pool {
        &mut self.pools[self.groups[group.0].pool]
    }

    /// The number of the pool that a new group has its buffers in, which has so many more and may have `most` more.
    pub(super) fn add_to_pool(&mut self, buffers: Vec<Buffer>, most: usize) -> usize {
        if self.datagrams.is_none() || self.pools.is_empty() {
            self.pools.push(Pool {
                free: Vec::new(),
                buffers: 0,
                least: 0,
                most: 0,
                idle: 0,
                circulation: Circulation::new(),
            });
        }
        let number = self.pools.len() - 1;
        let pool = &mut self.pools[number];
        pool.buffers += buffers.len();
        pool.least += buffers.len();
        pool.most += most;
        pool.idle += 1;
        pool.free.extend(buffers);
        number
    }

    /// What a group keeps, and which member of it a destination is.
    pub(super) fn retained(
        groups: &mut [Group],
        destination: usize,
        group: usize,
    ) -> Option<(usize, &mut Retained<Kept>)> {
        let group = groups.get_mut(group)?;
        let member = group.members.iter().position(|to| *to == destination)?;
        Some((member, group.retained.as_mut()?))
    }

    /// Every message of a group below a number has arrived at a destination.
    pub(super) fn acknowledge(&mut self, destination: usize, group: usize, below: u64) {
        if let Some((member, retained)) = Self::retained(&mut self.groups, destination, group) {
            let arrived = retained.acknowledge(member, below);
            self.repairs.reuse(arrived);
        }
    }

    /// Everything has arrived at a destination.
    pub(super) fn acknowledge_all(&mut self, destination: usize) {
        for group in 0..self.groups.len() {
            self.acknowledge(destination, group, self.groups[group].sent);
        }
    }

    /// The groups whose messages have not all arrived at a destination, as far as that is known.
    pub(super) fn owed_to(&self, destination: usize) -> impl Iterator<Item = usize> {
        let owed = move |(_, group): &(usize, &Group)| {
            let member = group.members.iter().position(|to| *to == destination);
            let retained = group.retained.as_ref();
            member.is_some_and(|member| retained.is_some_and(|kept| kept.is_owed(member)))
        };
        self.groups
            .iter()
            .enumerate()
            .filter(owed)
            .map(|(group, _)| group)
    }

    /// Any group that a destination is a member of.
    pub(super) fn first_group_of(&self, destination: usize) -> Option<usize> {
        let mut groups = self.groups.iter();
        groups.position(|group| group.members.contains(&destination))
    }

    /// Whether messages are kept that may have to be sent again.
    pub(super) fn keeps_any(&self) -> bool {
        let mut retained = self.groups.iter().flat_map(|group| &group.retained);
        retained.any(|retained| !retained.is_empty())
    }

    /// The queue pair of a completion is broken.
    pub(super) fn fail_queue_pair(&mut self, completion: &Completion) {
        match self.by_queue_pair.get(&completion.queue_pair) {
            Some(&index) => self.fail(index, completion.status),
            None => {
                for index in 0..self.destinations.len() {
                    self.fail(index, completion.status);
                }
            }
        }
    }

    pub(super) fn fail(&mut self, index: usize, status: CompletionStatus) {
        let destination = &mut self.destinations[index];
        destination.fail(&destination.lost(status));
    }

    /// Groups with a destination that is gone send nothing new any more: over connections their buffers go back to
    /// the arena, those in flight when they complete; over datagrams other groups have them. What the other members miss they still get.
    pub(super) fn close_groups_of(&mut self, destination: usize) {
        for group in &mut self.groups {
            if let Some(member) = group.members.iter().position(|to| *to == destination) {
                let pool = &mut self.pools[group.pool];
                pool.idle -= usize::from(group.held == 0 && !group.closed);
                group.closed = true;
                if self.datagrams.is_none() {
                    pool.free.clear();
                }
                if let Some(retained) = &mut group.retained {
                    let unwanted = retained.forget(member);
                    self.repairs.reuse(unwanted);
                }
            }
        }
        // Nobody waits for it any more to read what it was told of.
        for number in self.shared.unread() {
            if let Ok(Some((group, buffer))) = self.shared.was_read(number, destination) {
                self.give_back(group, buffer);
            }
        }
        let groups = &self.groups;
        if self.datagrams.is_none() {
            self.shared.forget_posted(|group| groups[group].closed);
        }
    }
}
