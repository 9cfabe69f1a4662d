//! What a SEND endpoint knows of its destinations and groups, and how a message gets out.

use super::super::credit::Credit;
use super::GroupId;
use super::multicast::Multicast;
use super::repair::{Kept, Origin, Repair};
use super::retained::Retained;
use crate::error::{ExchangeError, Result};
use crate::report::{DestinationReport, EndpointReport};
use crate::wire::{Data, Header, SequenceDigest};
use roundel_verbs::{
    AddressHandle, Buffer, Completion, CompletionStatus, Payload, QueuePair, SendOperation,
    SendRequest, SharedBuffer, VerbsError,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Marks of sends: a group's number for an owned buffer, or one of these.
pub(super) const REPAIR: u64 = 1 << 61;
pub(super) const SHARED: u64 = 1 << 62;
pub(super) const CONTROL: u64 = 1 << 63;
/// Places in a send queue that data leaves to control messages.
pub(super) const CONTROL_SENDS: usize = 4;

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

pub(super) struct Destination {
    pub(super) peer: String,
    pub(super) carrier: Carrier,
    pub(super) credit: Credit,
    /// The data messages sent.
    pub(super) digest: SequenceDigest,
    pub(super) report: DestinationReport,
    /// Reliable Connection: sends posted and not completed, and whether one of them failed.
    pub(super) in_flight: usize,
    pub(super) undelivered: bool,
    pub(super) end: Option<End>,
    /// It has asked what was sent, and has not been answered.
    pub(super) asked: bool,
    pub(super) failed: Option<ExchangeError>,
}

pub(super) enum Carrier {
    Connected(QueuePair),
    Datagram {
        handle: AddressHandle,
        number: u32,
        queue_key: u32,
    },
    Closed,
}

/// An end-of-stream that was sent.
pub(super) struct End {
    pub(super) acknowledged: bool,
    pub(super) said_at: Duration,
}

pub(super) struct Group {
    pub(super) members: Vec<usize>,
    pub(super) free: Vec<Buffer>,
    /// All its buffers, those in use included.
    pub(super) buffers: usize,
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

impl Destination {
    pub(super) fn new(peer: &str, carrier: Carrier) -> Self {
        Self {
            peer: peer.into(),
            carrier,
            credit: Credit::default(),
            digest: SequenceDigest::default(),
            report: DestinationReport::default(),
            in_flight: 0,
            undelivered: false,
            end: None,
            asked: false,
            failed: None,
        }
    }

    /// Counts a data message that was sent.
    fn count(&mut self, group: usize, sequence: u64, length: usize) {
        self.report.messages += 1;
        self.report.bytes += length as u64;
        self.credit.spend();
        self.digest.add(group as u16, sequence);
    }

    pub(super) fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::PeerLost {
            peer: self.peer.clone(),
            status,
        }
    }
}

impl State {
    /// Whether every member of a group has granted credit, not too much is kept for it, and there is
    /// room in the send queues.
    pub(super) fn may_send(&self, group: GroupId) -> bool {
        let members = &self.groups[group.0].members;
        // One queue pair carries all datagrams.
        let sends = match self.datagrams {
            Some(_) => members.len(),
            None => 1,
        };
        let retained = self.groups[group.0].retained.as_ref();
        self.credit_left(group) > 0
            && retained.is_none_or(|retained| !retained.is_full())
            && members
                .iter()
                .all(|member| self.has_room(*member, sends + CONTROL_SENDS))
    }

    /// Messages that every member of a group has granted credit for.
    pub(super) fn credit_left(&self, group: GroupId) -> u32 {
        let members = self.groups[group.0].members.iter();
        let left = members.map(|member| self.destinations[*member].credit.left());
        left.min().unwrap_or(0)
    }

    /// Whether `sends` more fit in the send queue that leads to a destination.
    pub(super) fn has_room(&self, destination: usize, sends: usize) -> bool {
        let destination = &self.destinations[destination];
        let in_flight = match destination.carrier {
            Carrier::Connected(_) => destination.in_flight,
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

    /// Posts the next message of a group to every member, and keeps what to make it from once more.
    pub(super) fn send_data(
        &mut self,
        group: usize,
        memory: Buffer,
        length: usize,
        message: (u32, Data, Option<&Arc<dyn Origin>>),
    ) -> Result<()> {
        let members = self.groups[group].members.clone();
        let sequence = self.groups[group].sent;
        self.groups[group].sent += 1;
        if let Some(retained) = &mut self.groups[group].retained {
            let (partition, data, origin) = message;
            retained.push(Kept::new(
                partition,
                data,
                origin,
                &memory,
                &mut self.spare_copies,
            ));
        }
        if let [only] = members[..] {
            let payload = Payload::Owned {
                buffer: memory,
                length,
            };
            self.send(only, group as u64, payload)?;
            self.destinations[only].count(group, sequence, length);
            return Ok(());
        }
        if let Some(handle) = self.groups[group]
            .multicast
            .as_ref()
            .and_then(Multicast::ready)
        {
            let payload = Payload::Owned {
                buffer: memory,
                length,
            };
            self.send_datagram(handle, group as u64, payload)?;
            self.report.multicast_messages += 1;
            for member in members {
                self.destinations[member].count(group, sequence, length);
            }
            return Ok(());
        }
        let key = self.shared_next;
        self.shared_next += 1;
        let buffer = memory.share();
        let send = SharedSend {
            buffer: buffer.clone(),
            group,
        };
        self.shared.insert(key, send);
        for member in members {
            let payload = Payload::Shared {
                buffer: buffer.clone(),
                length,
            };
            self.send(member, SHARED | key, payload)?;
            self.destinations[member].count(group, sequence, length);
        }
        Ok(())
    }

    pub(super) fn send_control(&mut self, destination: usize, header: &Header) -> Result<()> {
        let bytes = roundel_verbs::work::InlineBytes::new(&header.emit())
            .expect("a header is smaller than an inline payload");
        self.send(destination, CONTROL, Payload::Inline(bytes))
    }

    /// Posts one message, for which there is room. A destination that cannot be sent to has
    /// failed.
    pub(super) fn send(&mut self, destination: usize, id: u64, payload: Payload) -> Result<()> {
        let sent = self.post(destination, id, payload);
        if let Err(error) = &sent {
            let failed = &mut self.destinations[destination].failed;
            failed.get_or_insert_with(|| error.clone());
        }
        sent
    }

    fn post(&mut self, destination: usize, id: u64, payload: Payload) -> Result<()> {
        let target = &mut self.destinations[destination];
        match &target.carrier {
            Carrier::Connected(queue_pair) => {
                post_one(queue_pair, &mut target.in_flight, id, payload, None)
            }
            Carrier::Datagram { handle, .. } => {
                let handle = handle.clone();
                self.send_datagram(handle, id, payload)
            }
            Carrier::Closed => Err(target.lost(CompletionStatus::Flushed)),
        }
    }

    /// Posts one datagram, for which there is room.
    fn send_datagram(&mut self, to: AddressHandle, id: u64, payload: Payload) -> Result<()> {
        match &self.datagrams {
            Some(datagrams) => {
                let in_flight = &mut self.datagrams_in_flight;
                post_one(datagrams, in_flight, id, payload, Some(to))
            }
            None => Err(ExchangeError::Protocol {
                peer: "this process".into(),
                reason: "a datagram on an endpoint without any".into(),
            }),
        }
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
        let groups = &self.groups;
        self.shared.retain(|_, send| !groups[send.group].closed);
    }
}

fn post_one(
    queue_pair: &QueuePair,
    in_flight: &mut usize,
    id: u64,
    payload: Payload,
    destination: Option<AddressHandle>,
) -> Result<()> {
    let mut requests = vec![SendRequest {
        id,
        operation: SendOperation::Send,
        payload,
        destination,
    }];
    if queue_pair.post_send(&mut requests)? == 0 {
        return Err(ExchangeError::from(VerbsError::DeviceLimit {
            what: "sends in flight",
            requested: *in_flight + 1,
            limit: *in_flight,
        }));
    }
    *in_flight += 1;
    Ok(())
}
