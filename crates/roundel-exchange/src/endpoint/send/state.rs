//! What a send endpoint knows of its destinations and groups, and what each of them owes the other.

use super::GroupId;
use super::destination::{Carrier, Destination};
use super::multicast::Multicast;
use super::read::Unread;
use super::repair::{Kept, Repair};
use crate::buffers::Circulation;
use crate::design::{Notification, Verb};
use crate::error::ExchangeError;
use crate::link::repair::Retained;
use crate::report::EndpointReport;
use roundel_verbs::{Arena, Buffer, Completion, CompletionStatus, QueuePair, SharedBuffer};
use std::collections::{HashMap, VecDeque};

/// Places in a send queue that data leaves to control messages.
pub(super) const CONTROL_SENDS: usize = 6;

pub(super) struct State {
    /// The one queue pair of a datagram endpoint, with its sends in flight.
    pub(super) datagrams: Option<QueuePair>,
    pub(super) datagrams_in_flight: usize,
    /// Sends that a queue pair may have in flight.
    pub(super) depth: usize,
    pub(super) destinations: Vec<Destination>,
    pub(super) by_queue_pair: HashMap<u32, usize>,
    pub(super) groups: Vec<Group>,
    pub(super) shared: HashMap<u64, SharedSend>,
    pub(super) shared_next: u64,
    /// What members of groups have not read yet, where receivers read.
    pub(super) unread: HashMap<u64, Unread>,
    pub(super) verb: Verb,
    pub(super) arena: Arena,
    /// What to send again, and free buffers for it: those of the groups may all be in the hands of
    /// tasks that cannot go on before something was repaired.
    pub(super) repairs: VecDeque<Repair>,
    pub(super) repair_buffers: Vec<Buffer>,
    /// Memory for copies of messages, to use again.
    pub(super) spare_copies: Vec<Vec<u8>>,
    pub(super) completions: Vec<Completion>,
    /// Whether a destination has asked.
    pub(super) asked: bool,
    pub(super) report: EndpointReport,
}

pub(super) struct Group {
    pub(super) members: Vec<usize>,
    pub(super) free: Vec<Buffer>,
    /// All its buffers, those in use included.
    pub(super) buffers: usize,
    pub(super) circulation: Circulation,
    /// A member is gone: nothing new is sent any more.
    pub(super) closed: bool,
    /// Messages sent so far: the sequence number of the next one.
    pub(super) sent: u64,
    /// Where lost messages are repaired: those that have not arrived everywhere.
    pub(super) retained: Option<Retained<Kept>>,
    /// Where one message reaches every member.
    pub(super) multicast: Option<Multicast>,
}

/// A buffer posted to every member of a group.
pub(super) struct SharedSend {
    pub(super) buffer: SharedBuffer,
    pub(super) group: usize,
}

impl State {
    /// Whether every member of a group has granted credit, not too much is kept for it, and there is
    /// room in the send queues.
    pub(super) fn may_send(&self, group: GroupId) -> bool {
        let members = &self.groups[group.0].members;
        // One queue pair carries all datagrams.
        let sends = match (&self.datagrams, self.verb) {
            (Some(_), _) => members.len(),
            (None, Verb::Write(Notification::MessageQueue)) => 2,
            (None, _) => 1,
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
        let destination = &self.destinations[destination];
        let in_flight = match destination.carrier {
            Carrier::Connected { .. } => destination.in_flight,
            _ => self.datagrams_in_flight,
        };
        in_flight + sends <= self.depth
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
        if !group.closed {
            group.free.push(buffer);
        }
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
            self.spare_copies
                .extend(arrived.filter_map(Kept::into_copy));
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
        if destination.failed.is_none() {
            destination.failed = Some(destination.lost(status));
        }
    }

    /// Groups with a destination that is gone send nothing new any more: their buffers go back to
    /// the arena, those in flight when they complete. What the other members miss they still get.
    pub(super) fn close_groups_of(&mut self, destination: usize) {
        for group in &mut self.groups {
            if let Some(member) = group.members.iter().position(|to| *to == destination) {
                group.closed = true;
                group.free.clear();
                if let Some(retained) = &mut group.retained {
                    let unwanted = retained.forget(member);
                    self.spare_copies
                        .extend(unwanted.filter_map(Kept::into_copy));
                }
            }
        }
        self.forget_reader(destination);
        let groups = &self.groups;
        self.shared.retain(|_, send| !groups[send.group].closed);
    }
}
