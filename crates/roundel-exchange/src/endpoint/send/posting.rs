//! How a message gets out: as the verb of the design has it, to one destination or all of a group, and the bells that wake
//! those who wait for what is written.

use super::destination::{Carrier, Way};
use super::multicast::Multicast;
use super::read::Unread;
use super::repair::{Kept, Origin};
use super::state::{SharedSend, State};
use crate::design::{Notification, Verb};
use crate::error::{ExchangeError, Result};
use crate::fabric::expose;
use crate::link::queue::{empty_write, post};
use crate::link::seal::write_seal;
use crate::wire::{Data, Header};
use roundel_verbs::{
    AddressHandle, Buffer, CompletionStatus, Payload, QueuePair, SendOperation, SendRequest,
    VerbsError,
};
use std::sync::Arc;

/// Marks of sends: a group's number for an owned buffer, or one of these.
pub(super) const REPAIR: u64 = 1 << 61;
pub(super) const SHARED: u64 = 1 << 62;
pub(super) const CONTROL: u64 = 1 << 63;

impl State {
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
    pub(super) fn take_queues(&mut self) {
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
            && post(queue_pair, empty_write(CONTROL, Some(0)))
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
                && post(queue_pair, request)
            {
                target.in_flight += 1;
            }
        }
    }

    /// Probes a connection with an empty WRITE.
    pub(super) fn probe(&mut self, destination: usize) {
        let target = &mut self.destinations[destination];
        if let Carrier::Connected { queue_pair, .. } = &target.carrier
            && post(queue_pair, empty_write(CONTROL, None))
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
