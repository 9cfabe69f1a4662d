//! MQ/WR through a multiplexer (Liu et al. 2019, section 5.5): all that a peer says, rows and control alike, it WRITEs
//! into slots of this node's, message `k` into slot `k` modulo their number. Slots are free again in the same order, so
//! that the connection's absolute credit says which are, and no queue of free buffers is needed as endpoints have one.
//!
//! The receiver learns of a message by a completion, by an entry in a queue of its own, or by the end of the slot
//! itself. Where it looks at memory, a WRITE wakes nobody: a receiver that is about to sleep asks the peer for the
//! bell.

use super::MultiplexerOptions;
use super::address::ConnectionAddress;
use super::way::Place;
use crate::designs::Notification;
use crate::designs::write_rc::{self, Slot, slot_bytes};
use crate::error::{ExchangeError, Result};
use crate::fabric::{Fabric, expose};
use crate::link::queue::{Queue, RemoteQueue};
use crate::link::seal::{arrived, break_seal};
use roundel_verbs::{ExposedBuffer, Payload, Regions, SendRequest};

/// Both ends of what is written over a connection.
pub(super) struct Slots {
    notification: Notification,
    /// Own slots; those whose message is in hand are not there.
    own: Vec<Option<ExposedBuffer>>,
    slot_bytes: usize,
    /// Messages taken from them so far, and how many of the first of these have slots that are free again.
    taken: u64,
    freed: u64,
    /// Where the peer tells of them, and asks for the bell.
    told: Option<Queue>,
    /// Those of the peer, once it is known.
    remote: Option<Remote>,
}

struct Remote {
    slots: Vec<Slot>,
    written: u64,
    told: Option<RemoteQueue>,
}

impl Slots {
    /// As many as a peer may have messages on their way, of the regions in turn.
    pub(super) fn open(
        notification: Notification,
        fabric: &Fabric,
        options: &MultiplexerOptions,
        regions: &Regions,
    ) -> Result<Self> {
        let slot_bytes = slot_bytes(notification, options.message_bytes);
        let mut own = Vec::with_capacity(options.receives);
        for turn in 0..options.receives {
            let arena = fabric.arena.in_region(regions.in_turn(turn));
            let slot = expose(arena.allocate_exposable(slot_bytes)?)?;
            break_seal(&slot);
            own.push(Some(slot));
        }
        let told = write_rc::valid(notification, &fabric.arena, options.receives)?;
        Ok(Self {
            notification,
            own,
            slot_bytes,
            taken: 0,
            freed: 0,
            told,
            remote: None,
        })
    }

    /// Whether memory is looked at for messages.
    pub(super) fn is_polled(&self) -> bool {
        self.notification != Notification::CompletionQueue
    }

    /// Registered bytes.
    pub(super) fn bytes(&self) -> usize {
        self.own.len() * self.slot_bytes + self.told.as_ref().map_or(0, Queue::bytes)
    }

    /// Completes what the peer is told of this end, before anything has come.
    pub(super) fn tell(&self, address: &mut ConnectionAddress) {
        let slots = self.own.iter().flatten();
        address.slots = slots.map(ExposedBuffer::remote_address).collect();
        address.slot_bytes = self.slot_bytes as u32;
        address.queue = self.told.as_ref().map(Queue::address);
    }

    /// Takes note of the peer's end.
    pub(super) fn begin(&mut self, remote: &ConnectionAddress, peer: &str) -> Result<()> {
        let refused = |reason: &str| ExchangeError::protocol(peer, reason);
        if remote.slots.is_empty() || (remote.slot_bytes as usize) < self.slot_bytes {
            return Err(refused("it has no room for messages of this node"));
        }
        let told = match (self.notification, remote.queue) {
            (Notification::CompletionQueue, _) => None,
            (Notification::MessageQueue, Some(queue))
                if queue.entries < remote.slots.len() as u32 =>
            {
                return Err(refused("its queue of messages has not room for all"));
            }
            (_, queue) => Some(RemoteQueue::valid(queue, peer)?),
        };
        let slots = remote.slots.iter().zip(0..).map(|(at, number)| Slot {
            at: *at,
            bytes: remote.slot_bytes as usize,
            number,
        });
        self.remote = Some(Remote {
            slots: slots.collect(),
            written: 0,
            told,
        });
        Ok(())
    }

    /// The requests for the peer's next message, for which there is credit; with these marks, of which only one is used
    /// where one request is enough.
    pub(super) fn write(
        &mut self,
        payload: Payload,
        ids: [u64; 2],
    ) -> Result<Vec<SendRequest>, &'static str> {
        let remote = self.remote.as_mut().ok_or("it is not connected")?;
        let turn = remote.written % remote.slots.len() as u64;
        remote.written += 1;
        let told = remote.told.as_mut();
        remote.slots[turn as usize].write(self.notification, told, payload, ids)
    }

    /// The message that a completion says has been written to a slot.
    pub(super) fn take(&mut self, slot: u32) -> Result<Place, &'static str> {
        match self.is_polled() {
            true => Err("it says by a completion what memory says"),
            false => self.take_at(slot.into(), 0),
        }
    }

    /// The next message that memory says is there, and where it ends in its buffer.
    pub(super) fn poll(&mut self) -> Option<Result<(Place, usize), &'static str>> {
        let (slot, at, length) = match self.notification {
            Notification::CompletionQueue => return None,
            Notification::MessageQueue => {
                let [slot, length, _] = self.told.as_mut()?.take()?;
                (slot, 0, usize::try_from(length).unwrap_or(usize::MAX))
            }
            Notification::Buffers => {
                let slot = self.turn();
                // One that is in hand has nothing new.
                let (at, length) = arrived(self.own[slot as usize].as_ref()?)?;
                (slot, at, length)
            }
        };
        let taken = self.take_at(slot, at);
        Some(taken.map(|place| (place, at.saturating_add(length))))
    }

    fn turn(&self) -> u64 {
        self.taken % self.own.len() as u64
    }

    fn take_at(&mut self, slot: u64, at: usize) -> Result<Place, &'static str> {
        if slot != self.turn() {
            return Err("it writes into a slot whose turn it is not");
        }
        let Some(buffer) = self.own[slot as usize].take() else {
            return Err("it writes into a slot that is in use");
        };
        self.taken += 1;
        Ok(Place {
            buffer: buffer.reclaim(),
            at,
            slot: slot as u32,
        })
    }

    /// Slots that are not free again, or wait for an older one that is not.
    pub(super) fn held(&self) -> usize {
        (self.taken - self.freed) as usize
    }

    /// Takes a slot back whose message has been taken in. Returns how many messages more the peer may write.
    pub(super) fn free(&mut self, place: Place) -> u32 {
        // It came out of exposed memory.
        if let Ok(buffer) = place.buffer.expose() {
            break_seal(&buffer);
            self.own[place.slot as usize] = Some(buffer);
        }
        let before = self.freed;
        let count = self.own.len() as u64;
        while self.freed < self.taken && self.own[(self.freed % count) as usize].is_some() {
            self.freed += 1;
        }
        (self.freed - before) as u32
    }

    /// Whether the peer has asked to be woken, and there is more for it.
    pub(super) fn must_ring(&mut self) -> bool {
        match (&self.told, &mut self.remote) {
            (Some(own), Some(remote)) => {
                let written = remote.written;
                let told = remote.told.as_mut();
                told.is_some_and(|told| told.must_ring(own, written))
            }
            _ => false,
        }
    }

    /// The request that asks the peer to wake this node when there is more, unless it has been asked.
    pub(super) fn ask_for_bell(&mut self, id: u64) -> Option<SendRequest> {
        let told = self.remote.as_mut()?.told.as_mut()?;
        told.ask_for_bell(id, self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::queue::QueueAddress;
    use roundel_verbs::shm::{self, ShmOptions};
    use roundel_verbs::{ArenaOptions, QueuePairAddress};

    fn fabric() -> Fabric {
        let device = shm::open(ShmOptions::default()).unwrap();
        Fabric::open(device, ArenaOptions::default()).unwrap()
    }

    fn slots(fabric: &Fabric, notification: Notification) -> Slots {
        let options = MultiplexerOptions {
            receives: 4,
            message_bytes: 256,
            ..MultiplexerOptions::new(fabric.device.capabilities())
        };
        Slots::open(notification, fabric, &options, &Regions::one()).unwrap()
    }

    #[tokio::test]
    async fn there_is_room_in_the_order_of_the_ring() {
        let mut slots = slots(&fabric(), Notification::CompletionQueue);
        let [first, second, third] = [0, 1, 2].map(|slot| slots.take(slot).unwrap());
        assert_eq!(slots.held(), 3);
        assert_eq!(slots.free(second), 0, "the first is in hand");
        assert_eq!(slots.free(first), 2);
        let fourth = slots.take(3).unwrap();
        assert_eq!(slots.held(), 2);
        assert_eq!((slots.free(fourth), slots.free(third)), (0, 2));
        let again = slots.take(0).unwrap();
        assert_eq!((slots.free(again), slots.held()), (1, 0));
    }

    #[tokio::test]
    async fn a_slot_that_is_in_use_or_not_next_is_refused() {
        let mut slots = slots(&fabric(), Notification::CompletionQueue);
        for wrong in [1, 4, u32::MAX] {
            assert!(slots.take(wrong).is_err(), "{wrong}");
        }
        let taken = [0, 1, 2, 3].map(|slot| slots.take(slot).unwrap());
        let error = slots.take(0).err().unwrap();
        assert!(error.contains("in use"), "{error}");
        drop(taken);
    }

    #[tokio::test]
    async fn what_memory_says_is_not_said_by_a_completion() {
        for notification in [Notification::MessageQueue, Notification::Buffers] {
            let mut slots = slots(&fabric(), notification);
            assert!(slots.take(0).is_err());
            assert!(slots.poll().is_none());
        }
    }

    #[tokio::test]
    async fn a_peer_without_room_is_refused() {
        let fabric = fabric();
        let mut own = slots(&fabric, Notification::MessageQueue);
        let queue_pair = QueuePairAddress {
            device: fabric.device.address(),
            number: 1,
            incarnation: 1,
            queue_key: 0,
        };
        let mut good = ConnectionAddress {
            design: crate::Design::SemqWr(Notification::MessageQueue),
            slots: Vec::new(),
            slot_bytes: 0,
            queue: None,
            queue_pair,
        };
        slots(&fabric, Notification::MessageQueue).tell(&mut good);
        let wrong = [
            ConnectionAddress {
                slots: Vec::new(),
                ..good.clone()
            },
            ConnectionAddress {
                slot_bytes: 255,
                ..good.clone()
            },
            ConnectionAddress {
                queue: None,
                ..good.clone()
            },
            ConnectionAddress {
                queue: good.queue.map(|queue| QueueAddress {
                    entries: 3,
                    ..queue
                }),
                ..good.clone()
            },
        ];
        for address in wrong {
            assert!(own.begin(&address, "it").is_err(), "{address:?}");
        }
        own.begin(&good, "it").unwrap();
    }
}
