//! READ over Reliable Connection (Liu et al. 2019, section 5.4): MEMQ/RD and SEMQ/RD. Messages wait in buffers of the
//! source that the receiver may read. The source names those that are full in a queue of the receiver's, `ValidArr`.
//! The receiver reads them into local buffers, and names those that it has read in a queue of the source's, `FreeArr`.
//!
//! The paper's receivers do that only when they have consumed the message. This one does it as soon as it has read it,
//! unless the device can read at once: messages then stay where they are until they are copied to where their rows
//! belong, and there are no local buffers.
//!
//! With each message that was read the source is told how many it may have waiting: as many as the receiver has
//! buffers, or would have.

use super::carrier::{
    Allocate, Bell, Filled, LinkSizes, Next, Place, ReceiverEnd, Requests, SourceEnd,
};
use crate::error::Result;
use crate::fabric::Fabric;
use crate::link::queue::{Entry, Queue, QueueAddress, RemoteQueue};
use crate::wire::{HEADER_LENGTH, Header};
use roundel_verbs::{
    Arena, Buffer, ExposedBuffer, Payload, QueuePair, RemoteAddress, SendOperation, SendRequest,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The end of a source.
pub(super) struct Source {
    /// `FreeArr`.
    free: Queue,
    /// `ValidArr`, once the receiver is known.
    valid: Option<RemoteQueue>,
    /// Messages that the receiver has been told of and has not read, and how many there may be.
    unread: u64,
    window: u64,
    /// Where control messages wait, one after the other, and how many there were.
    control: ExposedBuffer,
    controls: usize,
}

impl Source {
    pub(super) fn open(arena: &Arena, sizes: &LinkSizes) -> Result<Self> {
        Ok(Self {
            free: Queue::open(arena, sizes.most)?,
            valid: None,
            unread: 0,
            window: 0,
            control: arena.allocate_exposed(sizes.control * HEADER_LENGTH)?,
            controls: 0,
        })
    }

    /// Puts a control message where the receiver can read it; those that were there before have been read.
    fn lay_out(&mut self, header: &Header) -> RemoteAddress {
        let at = self.controls * HEADER_LENGTH % self.control.len();
        self.controls += 1;
        let bytes = header.emit();
        for (word, bytes) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let word = self.control.word(at + word * 8);
            word.store(u64::from_ne_bytes(*bytes), Ordering::Release);
        }
        self.control.remote_address().offset(at)
    }
}

impl SourceEnd for Source {
    fn queue(&self) -> Option<&Queue> {
        Some(&self.free)
    }

    fn begin(&mut self, valid: Option<QueueAddress>, window: u32, peer: &str) -> Result<()> {
        let valid = valid.filter(|queue| queue.entries > 0);
        self.valid = Some(RemoteQueue::valid(valid, peer)?);
        self.window = window.into();
        Ok(())
    }

    /// Both queues have room for them.
    fn left(&self, _: u32) -> u32 {
        let entries = self.valid.as_ref().map_or(0, RemoteQueue::entries);
        let entries = entries.min(self.free.address().entries.into());
        entries.min(self.window).saturating_sub(self.unread) as u32
    }

    fn allowed(&self, _: u32) -> u32 {
        let told = self.valid.as_ref().map_or(0, RemoteQueue::count);
        (told + u64::from(self.left(0))) as u32
    }

    /// Tells the receiver where the message is.
    fn carry(&mut self, message: Filled, ids: [u64; 2]) -> Result<Requests, &'static str> {
        let (at, length, number) = match message {
            Filled::Exposed { at, length, number } => (at, length, number),
            Filled::Header(header) => (self.lay_out(&header), HEADER_LENGTH, ids[0]),
            Filled::Bytes(_) => return Err("a message that it cannot read"),
        };
        let valid = self.valid.as_mut().ok_or("a message before it is known")?;
        self.unread += 1;
        let key_and_length = u64::from(at.remote_key) | (length as u64) << 32;
        let entry = [at.address, key_and_length, number];
        Ok(vec![valid.put(ids[0], entry)])
    }

    fn take(&mut self) -> Option<u64> {
        let [number, window, _] = self.free.take()?;
        self.unread = self.unread.saturating_sub(1);
        self.window = window.max(1);
        Some(number)
    }

    fn has_all_read(&self) -> bool {
        self.unread == 0
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        Some(Bell::new(&self.free, self.valid.as_mut()?))
    }
}

/// The end of a receiver.
pub(super) struct Receiver {
    /// Over what messages are read at once, where they are.
    at_once: Option<Arc<QueuePair>>,
    buffer_bytes: usize,
    /// `ValidArr`.
    valid: Queue,
    /// `FreeArr`, once the source has answered.
    free: Option<RemoteQueue>,
    /// Local buffers that are free.
    local: Vec<Buffer>,
    /// A message that waits for one.
    waiting: Option<Entry>,
    /// Numbers of the messages that are being read, in order.
    in_flight: VecDeque<u64>,
    in_flight_max: usize,
    /// Numbers of those that were read and that the source has not been told of.
    untold: VecDeque<u64>,
}

impl Receiver {
    pub(super) fn open(
        fabric: &Fabric,
        sizes: &LinkSizes,
        allocate: Allocate<'_>,
        at_once: Option<&Arc<QueuePair>>,
    ) -> Result<Self> {
        let capabilities = fabric.device.capabilities();
        let buffers = if at_once.is_some() { 0 } else { sizes.least };
        let local = (0..buffers).map(|_| allocate(sizes.message_bytes, false));
        let local = local.collect::<Result<_>>()?;
        Ok(Self {
            at_once: at_once.cloned(),
            buffer_bytes: sizes.message_bytes,
            valid: Queue::open(&fabric.arena, sizes.most)?,
            free: None,
            local,
            waiting: None,
            in_flight: VecDeque::new(),
            // More would wait in the send queue, and hold up what is behind them.
            in_flight_max: capabilities.outstanding_reads_max.clamp(1, sizes.most),
            untold: VecDeque::new(),
        })
    }

    /// The message that an entry names: where it is, its bytes, and its number.
    fn named(&self, entry: Entry) -> Result<(RemoteAddress, usize, u64), &'static str> {
        let [address, key_and_length, number] = entry;
        let length = (key_and_length >> 32) as usize;
        if length > self.buffer_bytes {
            return Err("its messages are longer than those of this exchange");
        }
        let remote_key = key_and_length as u32;
        let at = RemoteAddress {
            address,
            remote_key,
        };
        Ok((at, length, number))
    }

    /// The request that tells the source of one more message that was read, and how many it may have waiting.
    fn tell(&mut self, id: u64, window: usize) -> Option<SendRequest> {
        let free = self.free.as_mut()?;
        let number = self.untold.pop_front()?;
        Some(free.put(id, [number, window as u64, 0]))
    }

    /// The next READ, if a message waits and there is a buffer for it; `Err` for one that cannot
    /// be read.
    fn next_read(&mut self, id: u64) -> Next {
        if self.at_once.is_some() || self.in_flight.len() >= self.in_flight_max {
            return None;
        }
        if self.waiting.is_none() {
            self.waiting = self.valid.take();
        }
        let (at, length, number) = match self.named(self.waiting?) {
            Ok(named) => named,
            Err(reason) => {
                self.waiting = None;
                return Some(Err(reason));
            }
        };
        let buffer = self.local.pop()?;
        self.waiting = None;
        self.in_flight.push_back(number);
        Some(Ok(SendRequest {
            id,
            operation: SendOperation::Read(at),
            payload: Payload::Owned { buffer, length },
            destination: None,
        }))
    }
}

impl ReceiverEnd for Receiver {
    fn queue(&self) -> Option<&Queue> {
        Some(&self.valid)
    }

    fn begin(&mut self, free: Option<QueueAddress>, peer: &str) -> Result<()> {
        self.free = Some(RemoteQueue::free(free, peer)?);
        Ok(())
    }

    /// It may have as many messages waiting before anything was read.
    fn first_credit(&self, buffers: usize) -> u32 {
        buffers as u32
    }

    fn has_buffers(&self) -> bool {
        self.at_once.is_none()
    }

    fn poll(&mut self, open: bool) -> Option<Result<(Place, usize), &'static str>> {
        let queue_pair = self.at_once.clone().filter(|_| open)?;
        let entry = self.valid.take()?;
        Some(self.named(entry).map(|(at, length, number)| {
            let place = Place::There {
                queue_pair,
                at,
                number,
            };
            (place, length)
        }))
    }

    fn was_read(&mut self) {
        self.untold.extend(self.in_flight.pop_front());
    }

    fn consumed(&mut self, number: u64) {
        self.untold.push_back(number);
    }

    fn give_back(&mut self, buffer: Buffer, _: u32, retired: bool) -> Option<Option<Buffer>> {
        if !retired {
            self.local.push(buffer);
        }
        None
    }

    fn next_request(&mut self, id: u64, window: usize, open: bool) -> Next {
        match self.tell(id, window) {
            Some(told) => Some(Ok(told)),
            None if open => self.next_read(id),
            None => None,
        }
    }

    fn widen(&mut self, fabric: &Fabric, wanted: usize) -> Option<usize> {
        if self.at_once.is_some() {
            return Some(wanted);
        }
        let before = self.local.len();
        self.local.extend(
            std::iter::from_fn(|| fabric.spare_buffer(self.buffer_bytes, false)).take(wanted),
        );
        Some(self.local.len() - before)
    }

    fn is_starved(&self) -> bool {
        self.waiting.is_some() && self.local.is_empty()
    }

    fn unused(&self) -> Option<usize> {
        self.has_buffers().then_some(self.local.len())
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        Some(Bell::new(&self.valid, self.free.as_mut()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::ArenaOptions;
    use roundel_verbs::shm::{self, ShmOptions};

    const SIZES: LinkSizes = LinkSizes {
        message_bytes: 256,
        least: 2,
        most: 3,
        control: 3,
        credit_in_memory: false,
    };

    fn fabric() -> Fabric {
        let device = shm::open(ShmOptions::default()).unwrap();
        Fabric::open(device, ArenaOptions::default()).unwrap()
    }

    #[tokio::test]
    async fn a_source_has_room_for_as_many_as_may_wait() {
        let fabric = fabric();
        let mut source = Source::open(&fabric.arena, &SIZES).unwrap();
        assert!(source.begin(None, 9, "it").is_err(), "it has no queue");
        let valid = Queue::open(&fabric.arena, 3).unwrap();
        source.begin(Some(valid.address()), 9, "it").unwrap();
        let header = Header::of(1, 2, 3, crate::wire::Body::Leave);
        for left in [3, 2, 1] {
            assert_eq!(source.left(0), left);
            let told = source.carry(Filled::Header(header), [7, 8]).unwrap();
            assert_eq!(told.len(), 1);
        }
        assert_eq!((source.left(0), source.has_all_read()), (0, false));
    }

    #[tokio::test]
    async fn messages_that_cannot_be_are_refused_and_others_need_a_buffer() {
        let fabric = fabric();
        let mut allocate = |bytes, exposable| fabric.buffer(bytes, exposable);
        let mut receiver = Receiver::open(&fabric, &SIZES, &mut allocate, None).unwrap();
        let entry = |length: u64| Some([1, 2 | length << 32, 5]);
        for length in [257, u64::from(u32::MAX)] {
            receiver.waiting = entry(length);
            assert!(receiver.next_read(0).unwrap().is_err(), "{length}");
        }
        let mut read = |id| {
            receiver.waiting = receiver.waiting.or(entry(256));
            receiver
                .next_read(id)
                .map(|read| (read.unwrap().id, receiver.in_flight.len()))
        };
        assert_eq!([1, 2, 3].map(&mut read), [Some((1, 1)), Some((2, 2)), None]);
        assert!(receiver.is_starved());
        assert!(
            receiver
                .give_back(fabric.buffer(256, false).unwrap(), 0, false)
                .is_none()
        );
        assert!(receiver.next_read(3).is_some());
    }
}
