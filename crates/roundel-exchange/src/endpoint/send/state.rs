//! What a SEND endpoint knows of its destinations and groups, and how a message gets out.

use super::super::credit::Credit;
use super::super::expose;
use super::super::ring::{self, RemoteRing, Ring, empty_write};
use super::super::seal::write_seal;
use super::GroupId;
use super::multicast::Multicast;
use super::read::{Reading, Unread};
use super::repair::{Kept, Origin, Repair};
use super::retained::Retained;
use super::write::Writing;
use crate::buffers::Circulation;
use crate::design::{Notification, Verb};
use crate::error::{ExchangeError, Result};
use crate::report::{DestinationReport, EndpointReport};
use crate::wire::{Data, Header, SequenceDigest};
use roundel_verbs::{
    AddressHandle, Arena, Buffer, Completion, CompletionStatus, Payload, QueuePair, SendOperation,
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
    /// When it was last probed.
    pub(super) probed_at: Duration,
    /// It has asked what was sent, and has not been answered.
    pub(super) asked: bool,
    pub(super) failed: Option<ExchangeError>,
}

pub(super) enum Carrier {
    Connected {
        queue_pair: QueuePair,
        way: Way,
    },
    Datagram {
        handle: AddressHandle,
        number: u32,
        queue_key: u32,
    },
    Closed,
}

/// How messages get over a connection.
pub(super) enum Way {
    Send,
    Write(Box<Writing>),
    Read(Box<Reading>),
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
            probed_at: Duration::ZERO,
            asked: false,
            failed: None,
        }
    }

    /// Messages that may be sent to it now.
    pub(super) fn left(&self) -> u32 {
        match self.way() {
            Some(Way::Write(writing)) => writing.left(self.credit.left()),
            Some(Way::Read(reading)) => reading.left(),
            _ => self.credit.left(),
        }
    }

    /// The messages that it has allowed in all, modulo 2^32.
    pub(super) fn allowed(&self) -> u32 {
        match self.way() {
            Some(Way::Write(writing)) => writing.free.taken() as u32,
            Some(Way::Read(reading)) => reading.allowed() as u32,
            _ => self.credit.granted(),
        }
    }

    fn way(&self) -> Option<&Way> {
        match &self.carrier {
            Carrier::Connected { way, .. } => Some(way),
            _ => None,
        }
    }

    pub(super) fn reading(&mut self) -> Option<&mut Reading> {
        match &mut self.carrier {
            Carrier::Connected {
                way: Way::Read(reading),
                ..
            } => Some(reading),
            _ => None,
        }
    }

    /// Its queue pair, its queue at this end and this end's at it, and what it has been sent, if
    /// either end may have to be woken by a bell.
    fn bell(&mut self) -> Option<(&QueuePair, &Ring, &mut RemoteRing, u64)> {
        let Carrier::Connected { queue_pair, way } = &mut self.carrier else {
            return None;
        };
        match way {
            Way::Send => None,
            Way::Write(writing) => {
                let sent = writing.sent();
                let told = writing.told.as_mut()?;
                Some((queue_pair, &writing.free, told, sent))
            }
            Way::Read(reading) => {
                let sent = reading.valid.count();
                Some((queue_pair, &reading.free, &mut reading.valid, sent))
            }
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

    /// Posts the next message of a group to every member, and keeps what to make it from once more. Of several members
    /// one may fail by that: the others have got it, and the next message finds out.
    pub(super) fn send_data(
        &mut self,
        group: usize,
        mut memory: Buffer,
        length: usize,
        message: (u32, Data, Option<&Arc<dyn Origin>>),
    ) -> Result<()> {
        let members = self.groups[group].members.clone();
        let sequence = self.groups[group].sent;
        self.groups[group].sent += 1;
        if self.verb == Verb::Write(Notification::Buffers) {
            write_seal(&mut memory, length);
        }
        if self.verb == Verb::Read {
            return self.tell_data(group, memory, length);
        }
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
            if self.send(member, SHARED | key, payload).is_ok() {
                self.destinations[member].count(group, sequence, length);
            }
        }
        Ok(())
    }

    /// Tells every member of a group to read its next message.
    fn tell_data(&mut self, group: usize, memory: Buffer, length: usize) -> Result<()> {
        let members = self.groups[group].members.clone();
        let sequence = self.groups[group].sent - 1;
        let number = self.shared_next;
        self.shared_next += 1;
        let buffer = expose(memory)?;
        let at = buffer.remote_address();
        let unread = Unread {
            buffer,
            group,
            members: members.clone(),
        };
        self.unread.insert(number, unread);
        let alone = members.len() == 1;
        for member in members {
            let target = &mut self.destinations[member];
            let Some(reading) = target.reading() else {
                return Err(target.lost(CompletionStatus::Flushed));
            };
            let request = reading.tell(CONTROL, number, at, length);
            match self.post_all(member, vec![request]) {
                Ok(()) => {
                    self.destinations[member].count(group, sequence, length);
                    self.ring_bell(member);
                }
                Err(error) if alone => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn send_control(&mut self, destination: usize, header: &Header) -> Result<()> {
        if self.verb == Verb::Read {
            let bytes = header.emit();
            let mut memory = self.arena.allocate_exposable(bytes.len())?;
            memory.write(0, &bytes);
            let buffer = expose(memory)?;
            let target = &mut self.destinations[destination];
            let Some(reading) = target.reading() else {
                return Err(target.lost(CompletionStatus::Flushed));
            };
            let request = reading.tell_control(CONTROL, buffer, bytes.len());
            self.post_all(destination, vec![request])?;
            self.ring_bell(destination);
            return Ok(());
        }
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
        match &mut target.carrier {
            Carrier::Connected {
                queue_pair,
                way: Way::Send,
            } => post_one(queue_pair, &mut target.in_flight, id, payload, None),
            Carrier::Connected {
                way: Way::Write(writing),
                ..
            } => {
                let requests = writing.requests(id, payload, &target.peer)?;
                self.post_all(destination, requests)?;
                self.ring_bell(destination);
                Ok(())
            }
            Carrier::Datagram { handle, .. } => {
                let handle = handle.clone();
                self.send_datagram(handle, id, payload)
            }
            // What a destination reads is told and not sent.
            Carrier::Connected { .. } | Carrier::Closed => {
                Err(target.lost(CompletionStatus::Flushed))
            }
        }
    }

    /// Posts requests, for which there is room, to a destination over a connection.
    fn post_all(&mut self, destination: usize, mut requests: Vec<SendRequest>) -> Result<()> {
        let target = &mut self.destinations[destination];
        let Carrier::Connected { queue_pair, .. } = &target.carrier else {
            return Err(target.lost(CompletionStatus::Flushed));
        };
        let sent = queue_pair.post_send(&mut requests);
        let sent = match sent {
            Ok(posted) => {
                target.in_flight += posted;
                match requests.is_empty() {
                    true => Ok(()),
                    false => Err(full(target.in_flight)),
                }
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = &sent {
            target.failed.get_or_insert_with(|| error.clone());
        }
        sent
    }

    /// Takes what the queues of this end bring, and wakes who has asked for it.
    pub(super) fn take_rings(&mut self) {
        if self.verb == Verb::Send {
            return;
        }
        for index in 0..self.destinations.len() {
            match &mut self.destinations[index].carrier {
                Carrier::Connected {
                    way: Way::Write(writing),
                    ..
                } => writing.take_free(),
                Carrier::Connected {
                    way: Way::Read(_), ..
                } => self.take_read(index),
                _ => continue,
            }
            self.ring_bell(index);
        }
    }

    /// Wakes a destination that has asked to be when there is more for it.
    fn ring_bell(&mut self, destination: usize) {
        if !self.has_room(destination, 1) {
            return;
        }
        let target = &mut self.destinations[destination];
        if let Some((queue_pair, own, there, sent)) = target.bell()
            && there.must_ring(own, sent)
            && ring::post(queue_pair, empty_write(CONTROL, Some(0)))
        {
            target.in_flight += 1;
        }
    }

    /// Asks destinations to wake this end when their queues here have more: it is about to sleep.
    pub(super) fn ask_for_bells(&mut self, destinations: &[usize]) {
        for index in destinations {
            if !self.has_room(*index, 1) {
                continue;
            }
            let target = &mut self.destinations[*index];
            if let Some((queue_pair, own, there, _)) = target.bell()
                && let Some(request) = there.ask_for_bell(CONTROL, own.taken())
                && ring::post(queue_pair, request)
            {
                target.in_flight += 1;
            }
        }
    }

    /// Probes a connection with an empty WRITE.
    pub(super) fn probe(&mut self, destination: usize) {
        let target = &mut self.destinations[destination];
        if let Carrier::Connected { queue_pair, .. } = &target.carrier
            && ring::post(queue_pair, empty_write(CONTROL, None))
        {
            target.in_flight += 1;
        }
    }

    /// Posts one datagram, for which there is room.
    fn send_datagram(&mut self, to: AddressHandle, id: u64, payload: Payload) -> Result<()> {
        match &self.datagrams {
            Some(datagrams) => {
                let in_flight = &mut self.datagrams_in_flight;
                post_one(datagrams, in_flight, id, payload, Some(to))
            }
            None => Err(ExchangeError::own(
                "a datagram on an endpoint without any".to_owned(),
            )),
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
        self.forget_reader(destination);
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
        return Err(full(*in_flight));
    }
    *in_flight += 1;
    Ok(())
}

fn full(in_flight: usize) -> ExchangeError {
    ExchangeError::from(VerbsError::DeviceLimit {
        what: "sends in flight",
        requested: in_flight + 1,
        limit: in_flight,
    })
}
