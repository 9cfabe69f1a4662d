//! WRITE over Reliable Connection (Liu et al. 2019, section 5.5): MEMQ/WR and SEMQ/WR. The receiver has numbered
//! buffers, and names those that are free in a queue of the source's, `FreeArr`. The source writes messages into them.
//! How the receiver learns of a message is the [`Notification`]: a completion of a receive, for which the source has
//! credit; an entry in a queue of the receiver's, `ValidArr`; or a seal at the end of the buffer.
//!
//! With polled buffers, the receiver looks only at the one that the source was given first, since the source uses them
//! in the order in which it got them. The paper's receivers look at all of them, as ours do when asked to.

use super::Notification;
use super::carrier::{
    Allocate, Bell, Filled, LinkSizes, Next, Place, ReceiverEnd, Requests, SourceEnd,
};
use crate::error::Result;
use crate::fabric::{Fabric, expose};
use crate::link::queue::{Queue, QueueAddress, RemoteQueue};
use crate::link::seal::{arrived, break_seal, sealed_length, with_seal};
use roundel_verbs::context::Work;
use roundel_verbs::{
    Arena, Buffer, Completion, Context, ExposedBuffer, Payload, RemoteAddress, SendOperation,
    SendRequest,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a buffer that messages are written to.
fn slot_bytes(notification: Notification, message_bytes: usize) -> usize {
    match notification {
        Notification::Buffers | Notification::AllBuffers => sealed_length(message_bytes),
        // Exposed memory is words.
        _ => message_bytes.next_multiple_of(8),
    }
}

/// The queue of a receiver's: `ValidArr`, or one without entries for the bell alone.
fn valid(notification: Notification, arena: &Arena, entries: usize) -> Result<Option<Queue>> {
    let entries = match notification {
        Notification::CompletionQueue => return Ok(None),
        Notification::MessageQueue => entries,
        Notification::Buffers | Notification::AllBuffers => 0,
    };
    Queue::open(arena, entries).map(Some)
}

/// A buffer of the receiver's.
struct Slot {
    at: RemoteAddress,
    bytes: usize,
    number: u32,
}

impl Slot {
    /// The request that writes a message, and the one that tells of it in the receiver's queue where there is one
    /// (`valid`), with these marks. A payload in a buffer has its seal behind it already, where there is to be one.
    ///
    /// # Errors
    /// When the message is longer than the buffer.
    fn write(
        &self,
        notification: Notification,
        valid: Option<&mut RemoteQueue>,
        payload: Payload,
        ids: [u64; 2],
    ) -> Result<Vec<SendRequest>, &'static str> {
        let length = payload.len();
        let payload = match notification.is_sealed() {
            true => with_seal(payload),
            false => payload,
        };
        let Some(behind) = self.bytes.checked_sub(payload.len()) else {
            return Err("its buffers are smaller than messages");
        };
        let operation = match notification {
            Notification::CompletionQueue => {
                SendOperation::WriteWithImmediate(self.at, self.number)
            }
            Notification::MessageQueue => SendOperation::Write(self.at),
            Notification::Buffers | Notification::AllBuffers => {
                SendOperation::Write(self.at.offset(behind))
            }
        };
        let mut requests = vec![SendRequest {
            id: ids[0],
            operation,
            payload,
            destination: None,
        }];
        if let (Notification::MessageQueue, Some(valid)) = (notification, valid) {
            let entry = [self.number.into(), length as u64, 0];
            requests.push(valid.put(ids[1], entry));
        }
        Ok(requests)
    }
}

/// The end of a source.
pub(super) struct Source {
    notification: Notification,
    /// `FreeArr`.
    free: Queue,
    /// Where the receiver is told of messages, or is asked for the bell.
    valid: Option<RemoteQueue>,
    /// The receiver's buffers that are free.
    slots: VecDeque<Slot>,
    /// Messages written.
    sent: u64,
}

impl Source {
    pub(super) fn open(
        notification: Notification,
        arena: &Arena,
        sizes: &LinkSizes,
    ) -> Result<Self> {
        Ok(Self {
            notification,
            free: Queue::open(arena, sizes.most)?,
            valid: None,
            slots: VecDeque::new(),
            sent: 0,
        })
    }
}

impl SourceEnd for Source {
    fn queue(&self) -> Option<&Queue> {
        Some(&self.free)
    }

    fn begin(&mut self, valid: Option<QueueAddress>, _: u32, peer: &str) -> Result<()> {
        if self.notification != Notification::CompletionQueue {
            self.valid = Some(RemoteQueue::valid(valid, peer)?);
        }
        Ok(())
    }

    fn left(&self, credit: u32) -> u32 {
        let slots = self.slots.len() as u32;
        match self.notification {
            Notification::CompletionQueue => slots.min(credit),
            _ => slots,
        }
    }

    fn allowed(&self, _: u32) -> u32 {
        self.free.taken() as u32
    }

    fn carry(&mut self, message: Filled, ids: [u64; 2]) -> Result<Requests, &'static str> {
        let slot = self.slots.pop_front();
        let slot = slot.ok_or("a message without a buffer for it")?;
        let valid = self.valid.as_mut();
        let written = slot.write(self.notification, valid, message.into_bytes()?, ids);
        self.sent += 1;
        written
    }

    /// Takes the receiver's buffers that have become free.
    fn take(&mut self) -> Option<u64> {
        while let Some([address, key_and_bytes, number]) = self.free.take() {
            self.slots.push_back(Slot {
                at: RemoteAddress {
                    address,
                    remote_key: key_and_bytes as u32,
                },
                bytes: (key_and_bytes >> 32) as usize,
                number: number as u32,
            });
        }
        None
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        let bell = Bell::new(&self.free, self.valid.as_mut()?);
        let told = self.sent;
        Some(Bell { told, ..bell })
    }
}

/// The end of a receiver.
pub(super) struct Receiver {
    notification: Notification,
    buffer_bytes: usize,
    /// Receives for what is written.
    receives: usize,
    /// By number; those that hold a message in hand are not there, nor those without a buffer.
    slots: Vec<Option<ExposedBuffer>>,
    /// Numbers without a buffer.
    vacant: Vec<u32>,
    /// Numbers of free buffers that the source has not been told of.
    untold: VecDeque<u32>,
    /// Those that it has, in order, where buffers are polled.
    given: VecDeque<u32>,
    /// `ValidArr`, where it is polled; and for the source to ask for the bell.
    valid: Option<Queue>,
    /// `FreeArr`, once the source has answered.
    free: Option<RemoteQueue>,
    /// Messages taken.
    taken: u64,
    /// Looking at buffers takes time there.
    context: Arc<dyn Context>,
}

impl Receiver {
    pub(super) fn open(
        notification: Notification,
        fabric: &Fabric,
        sizes: &LinkSizes,
        allocate: Allocate<'_>,
        receives: usize,
    ) -> Result<Self> {
        let mut receiver = Self {
            notification,
            buffer_bytes: slot_bytes(notification, sizes.message_bytes),
            receives,
            slots: Vec::new(),
            vacant: Vec::new(),
            untold: VecDeque::new(),
            given: VecDeque::new(),
            valid: valid(notification, &fabric.arena, sizes.most)?,
            free: None,
            taken: 0,
            context: fabric.context.clone(),
        };
        for _ in 0..sizes.least {
            let buffer = allocate(receiver.buffer_bytes, true)?;
            receiver.add(expose(buffer)?);
        }
        Ok(receiver)
    }

    fn add(&mut self, buffer: ExposedBuffer) {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        self.put(buffer, slot);
    }

    /// A buffer of this number that is to be written to.
    fn put(&mut self, buffer: ExposedBuffer, slot: u32) {
        if self.notification.is_sealed() {
            break_seal(&buffer);
        }
        self.slots[slot as usize] = Some(buffer);
        self.untold.push_back(slot);
    }

    /// The message that was written to the buffer of a number, at `at` in it.
    fn take(&mut self, slot: u32, at: usize) -> Result<Place, &'static str> {
        let buffer = self.slots.get_mut(slot as usize).and_then(Option::take);
        let buffer = buffer.ok_or("it writes into a buffer that it was not given")?;
        self.taken += 1;
        Ok(Place::Here {
            buffer: buffer.reclaim(),
            at,
            slot,
        })
    }

    /// Where the message is in the buffer that is at a place among those given.
    fn look(&self, place: usize) -> Option<(u32, (usize, usize))> {
        let slot = *self.given.get(place)?;
        let part = arrived(self.slots.get(slot as usize)?.as_ref()?)?;
        Some((slot, part))
    }

    /// The place of the first full one of so many.
    fn first_full(&self, below: usize) -> Option<usize> {
        (0..below).find(|place| self.look(*place).is_some())
    }

    /// The full buffer at a place among those given, which is then not given any more.
    fn take_full(&mut self, place: usize) -> Option<(u32, (usize, usize))> {
        let full = self.look(place)?;
        self.given.remove(place);
        Some(full)
    }

    /// The request that tells the source of one more free buffer.
    fn tell(&mut self, id: u64) -> Option<SendRequest> {
        let free = self.free.as_mut()?;
        let slot = *self.untold.front()?;
        let buffer = self.slots.get(slot as usize)?.as_ref()?;
        self.untold.pop_front();
        if self.notification.is_sealed() {
            self.given.push_back(slot);
        }
        let at = buffer.remote_address();
        let bytes = buffer.len() - buffer.len() % 8;
        let key_and_bytes = u64::from(at.remote_key) | (bytes as u64) << 32;
        Some(free.put(id, [at.address, key_and_bytes, slot.into()]))
    }
}

impl ReceiverEnd for Receiver {
    fn queue(&self) -> Option<&Queue> {
        self.valid.as_ref()
    }

    fn begin(&mut self, free: Option<QueueAddress>, peer: &str) -> Result<()> {
        self.free = Some(RemoteQueue::free(free, peer)?);
        Ok(())
    }

    fn first_grant(&self, _: usize) -> usize {
        self.receives
    }

    fn counts_on_receives(&self) -> bool {
        self.notification == Notification::CompletionQueue
    }

    fn received(&mut self, completion: Completion) -> Result<Option<Place>, &'static str> {
        match completion.written {
            true if self.counts_on_receives() => {
                let slot = completion.immediate.unwrap_or(u32::MAX);
                self.take(slot, 0).map(Some)
            }
            false if completion.bytes > 0 => Err("it sends where it should write"),
            _ => Ok(None),
        }
    }

    fn poll(&mut self, _: bool) -> Option<Result<(Place, usize), &'static str>> {
        let (slot, (at, length)) = match self.notification {
            Notification::CompletionQueue => return None,
            Notification::MessageQueue => {
                let [slot, length, _] = self.valid.as_mut()?.take()?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                (u32::try_from(slot).unwrap_or(u32::MAX), (0, length))
            }
            Notification::Buffers => self.take_full(0)?,
            Notification::AllBuffers => {
                let given = self.given.len();
                self.context.charge(Work::Looks(given));
                // One that was given earlier may have been filled after it was looked at, and is then taken first.
                let full = self.first_full(given)?;
                self.take_full(self.first_full(full).unwrap_or(full))?
            }
        };
        Some(self.take(slot, at).map(|place| (place, length)))
    }

    fn give_back(&mut self, buffer: Buffer, slot: u32, retired: bool) -> Option<Option<Buffer>> {
        if retired {
            self.vacant.push(slot);
        // It came out of exposed memory.
        } else if let Ok(buffer) = buffer.expose() {
            self.put(buffer, slot);
        }
        self.counts_on_receives().then_some(None)
    }

    fn next_request(&mut self, id: u64, _: usize, _: bool) -> Next {
        self.tell(id).map(Ok)
    }

    fn widen(&mut self, fabric: &Fabric, wanted: usize) -> Option<usize> {
        for added in 0..wanted {
            let buffer = fabric.spare_buffer(self.buffer_bytes, true);
            let Some(Ok(buffer)) = buffer.map(Buffer::expose) else {
                return Some(added);
            };
            self.add(buffer);
        }
        Some(wanted)
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        let bell = Bell::new(self.valid.as_ref()?, self.free.as_mut()?);
        let taken = self.taken;
        Some(Bell { taken, ..bell })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::shm::{self, ShmOptions};
    use roundel_verbs::{ArenaOptions, CompletionStatus, Opcode};

    fn receiver(notification: Notification) -> Receiver {
        let device = shm::open(ShmOptions::default()).unwrap();
        let fabric = Fabric::open(device, ArenaOptions::default()).unwrap();
        let sizes = LinkSizes {
            message_bytes: 256,
            least: 4,
            most: 4,
            control: 1,
            credit_in_memory: false,
        };
        let mut allocate = |bytes, exposable| fabric.buffer(bytes, exposable);
        Receiver::open(notification, &fabric, &sizes, &mut allocate, 4).unwrap()
    }

    fn written(slot: u32) -> Completion {
        Completion {
            id: 0,
            queue_pair: 0,
            opcode: Opcode::Receive,
            status: CompletionStatus::Success,
            bytes: 64,
            immediate: Some(slot),
            written: true,
            source_queue_pair: 0,
            buffer: None,
        }
    }

    #[tokio::test]
    async fn a_buffer_that_was_not_given_is_refused() {
        let mut receiver = receiver(Notification::CompletionQueue);
        for wrong in [4, u32::MAX] {
            assert!(receiver.received(written(wrong)).is_err(), "{wrong}");
        }
        let place = receiver.received(written(2)).unwrap();
        assert!(receiver.received(written(2)).is_err(), "it is in hand");
        let Some(Place::Here { buffer, slot, .. }) = place else {
            panic!("{place:?}");
        };
        assert!(receiver.give_back(buffer, slot, false).is_some());
        assert!(receiver.received(written(2)).unwrap().is_some());
    }

    #[tokio::test]
    async fn what_memory_says_is_not_said_by_a_completion() {
        for notification in [
            Notification::MessageQueue,
            Notification::Buffers,
            Notification::AllBuffers,
        ] {
            let mut receiver = receiver(notification);
            assert!(receiver.received(written(0)).unwrap().is_none());
            assert!(receiver.poll(true).is_none());
        }
    }
}
