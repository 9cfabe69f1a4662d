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

use super::carrier::{Bell, Filled, LinkSizes, Next, Place, ReceiverEnd, Requests, SourceEnd};
use crate::error::Result;
use crate::fabric::{Fabric, expose};
use crate::link::queue::{Entry, Queue, QueueAddress, RemoteQueue};
use crate::wire::Header;
use roundel_verbs::{
    Arena, Buffer, ExposedBuffer, Payload, QueuePair, RemoteAddress, SendOperation, SendRequest,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of a message that is about the link and not of a group.
const OF_LINK: u64 = u64::MAX;

/// The end of a source.
pub(super) struct Source {
    arena: Arena,
    /// `FreeArr`.
    free: Queue,
    /// `ValidArr`.
    valid: RemoteQueue,
    /// Messages that the receiver has been told of and has not read, and how many there may be.
    unread: u64,
    window: u64,
    /// Where its control messages wait: there is one at most.
    control: Option<ExposedBuffer>,
}

impl Source {
    pub(super) fn open(
        arena: &Arena,
        sizes: &LinkSizes,
        (offered, window): (Option<QueueAddress>, u32),
        peer: &str,
    ) -> Result<Self> {
        let valid = RemoteQueue::valid(offered.filter(|queue| queue.entries > 0), peer)?;
        Ok(Self {
            arena: arena.clone(),
            free: Queue::open(arena, sizes.most)?,
            valid,
            unread: 0,
            window: window.into(),
            control: None,
        })
    }
}

impl SourceEnd for Source {
    fn queue(&self) -> Option<&Queue> {
        Some(&self.free)
    }

    /// Both queues have room for them.
    fn left(&self, _: u32) -> u32 {
        let entries = self.valid.entries().min(self.free.address().entries.into());
        entries.min(self.window).saturating_sub(self.unread) as u32
    }

    fn allowed(&self, _: u32) -> u32 {
        (self.valid.count() + u64::from(self.left(0))) as u32
    }

    /// Tells the receiver where the message is.
    fn carry(&mut self, message: Filled, ids: [u64; 2]) -> Result<Requests, &'static str> {
        let Filled::Exposed { at, length, number } = message else {
            return Err("a message that it cannot read");
        };
        self.unread += 1;
        let key_and_length = u64::from(at.remote_key) | (length as u64) << 32;
        let entry = [at.address, key_and_length, number];
        Ok(vec![self.valid.put(ids[0], entry)])
    }

    fn control(&mut self, header: &Header) -> Result<Filled> {
        let bytes = header.emit();
        let mut memory = self.arena.allocate_exposable(bytes.len())?;
        memory.write(0, &bytes);
        let buffer = self.control.insert(expose(memory)?);
        Ok(Filled::Exposed {
            at: buffer.remote_address(),
            length: bytes.len(),
            number: OF_LINK,
        })
    }

    fn take(&mut self) -> Option<u64> {
        while let Some([number, window, _]) = self.free.take() {
            self.unread = self.unread.saturating_sub(1);
            self.window = window.max(1);
            if number != OF_LINK {
                return Some(number);
            }
            self.control = None;
        }
        None
    }

    fn has_all_read(&self) -> bool {
        self.unread == 0
    }

    fn bell(&mut self) -> Option<Bell<'_>> {
        Some(Bell {
            own: &self.free,
            taken: self.free.taken(),
            told: self.valid.count(),
            there: &mut self.valid,
        })
    }
}

/// The end of a receiver.
pub(super) struct Receiver {
    queue_pair: Arc<QueuePair>,
    buffer_bytes: usize,
    at_once: bool,
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
        queue_pair: &Arc<QueuePair>,
    ) -> Result<Self> {
        let capabilities = fabric.device.capabilities();
        let at_once = capabilities.reads_at_once;
        let buffers = if at_once { 0 } else { sizes.least };
        let mut local = Vec::with_capacity(buffers);
        for _ in 0..buffers {
            local.push(fabric.buffer(sizes.message_bytes, false)?);
        }
        Ok(Self {
            queue_pair: queue_pair.clone(),
            buffer_bytes: sizes.message_bytes,
            at_once,
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
        if self.at_once || self.in_flight.len() >= self.in_flight_max {
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
        !self.at_once
    }

    fn poll(&mut self, open: bool) -> Option<Result<(Place, usize), &'static str>> {
        if !open || !self.at_once {
            return None;
        }
        let entry = self.valid.take()?;
        Some(self.named(entry).map(|(at, length, number)| {
            let queue_pair = self.queue_pair.clone();
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
        if self.at_once {
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
        let there = self.free.as_mut()?;
        Some(Bell {
            own: &self.valid,
            taken: self.valid.taken(),
            told: there.count(),
            there,
        })
    }
}
