//! How a message gets out, to one destination or all of a group, and the bells that wake those who wait for what is
//! written.

use super::kept::{Kept, Origin};
use super::multicast::Multicast;
use super::state::{CONTROL, SHARED, State};
use crate::designs::carrier::Filled;
use crate::designs::send_ud;
use crate::error::{ExchangeError, Result};
use crate::link::queue_pair::bell;
use crate::wire::{Data, Header};
use roundel_verbs::{Buffer, CompletionStatus, Payload};
use std::sync::Arc;

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
        self.design.seal(&mut memory, length);
        if self.design.reads() {
            let message = self.shared.lay_out(group, &members, memory, length)?;
            return self.send_to_all(&members, CONTROL, message, (group, sequence, length));
        }
        if let Some(retained) = &mut self.groups[group].retained {
            let (partition, data, origin) = message;
            let kept = Kept::new(partition, data, origin, &memory, &mut self.repairs);
            retained.push(kept);
        }
        if let [only] = members[..] {
            let payload = Payload::Owned {
                buffer: memory,
                length,
            };
            self.send(only, group as u64, Filled::Bytes(payload))?;
            self.destinations[only].count(group, sequence, length);
            return Ok(());
        }
        let multicast = self.groups[group].multicast.as_ref();
        if let (Some(handle), Some(datagrams)) =
            (multicast.and_then(Multicast::ready), &mut self.datagrams)
        {
            let payload = Payload::Owned {
                buffer: memory,
                length,
            };
            datagrams.post(vec![send_ud::datagram(group as u64, payload, &handle)])?;
            self.report.multicast_messages += 1;
            for member in members {
                self.destinations[member].count(group, sequence, length);
            }
            return Ok(());
        }
        let (number, message) = self.shared.post(group, memory, length);
        self.send_to_all(
            &members,
            SHARED | number,
            message,
            (group, sequence, length),
        )
    }

    fn send_to_all(
        &mut self,
        members: &[usize],
        id: u64,
        message: impl Fn() -> Filled,
        (group, sequence, length): (usize, u64, usize),
    ) -> Result<()> {
        for member in members {
            match self.send(*member, id, message()) {
                Ok(()) => self.destinations[*member].count(group, sequence, length),
                Err(error) if members.len() == 1 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn send_control(&mut self, destination: usize, header: &Header) -> Result<()> {
        self.send(destination, CONTROL, Filled::Header(*header))
    }

    /// Posts one message, for which there is room. A destination that cannot be sent to has
    /// failed.
    pub(super) fn send(&mut self, destination: usize, id: u64, message: Filled) -> Result<()> {
        let sent = self.post(destination, id, message);
        match &sent {
            Ok(()) => self.ring_bell(destination),
            Err(error) => self.destinations[destination].fail(error),
        }
        sent
    }

    fn post(&mut self, destination: usize, id: u64, message: Filled) -> Result<()> {
        let target = &mut self.destinations[destination];
        let Some(carrier) = &mut target.carrier else {
            return Err(target.lost(CompletionStatus::Flushed));
        };
        let requests = carrier.carry(message, [id, CONTROL]);
        let requests = requests.map_err(|reason| target.broke_protocol(reason))?;
        match self.sends(destination) {
            Some(sends) => sends.post(requests),
            None => Err(ExchangeError::own("nothing leads to a destination".into())),
        }
    }

    /// Takes what the queues of this end bring, and wakes who has asked for it.
    pub(super) fn take_queues(&mut self) {
        for index in 0..self.destinations.len() {
            let destination = &mut self.destinations[index];
            if let Some(carrier) = &mut destination.carrier
                && let Some(credit) = carrier.take_credit()
            {
                destination.credit.grant(credit);
            }
            while let Some(carrier) = &mut self.destinations[index].carrier
                && let Some(number) = carrier.take()
            {
                match self.shared.was_read(number, index) {
                    Ok(Some((group, buffer))) => self.give_back(group, buffer),
                    Ok(None) => {}
                    Err(()) if number == CONTROL => {}
                    Err(()) => {
                        let reader = &mut self.destinations[index];
                        let reason =
                            format!("it has read message {number}, which it was not told of");
                        reader.fail(&reader.broke_protocol(reason));
                        break;
                    }
                }
            }
            self.ring_bell(index);
        }
    }

    /// Wakes a destination that has asked to be when there is more for it.
    fn ring_bell(&mut self, destination: usize) {
        let target = &mut self.destinations[destination];
        if let (Some(sends), Some(carrier)) = (&mut target.sends, &mut target.carrier)
            && sends.has_room(1)
            && carrier.bell().is_some_and(|mut bell| bell.must_ring())
        {
            sends.try_post(bell(CONTROL));
        }
    }

    /// Asks destinations to wake this end when their queues here have more: it is about to sleep.
    pub(super) fn ask_for_bells(&mut self, destinations: &[usize]) {
        for index in destinations {
            let target = &mut self.destinations[*index];
            if let (Some(sends), Some(carrier)) = (&mut target.sends, &mut target.carrier)
                && sends.has_room(1)
                && let Some(request) = carrier.bell().and_then(|mut bell| bell.ask(CONTROL))
            {
                sends.try_post(request);
            }
        }
    }
}
