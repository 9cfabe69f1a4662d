//! MQ/RD at the receiver (section 5.4): the source names the messages that wait at its side in a queue of this end's,
//! `ValidArr`. This end reads them into local buffers. As soon as a message has been read, it is named in a queue of
//! the source's, `FreeArr`. The paper's receivers do that only when they have consumed the message. This one does the
//! same where the device can read at once: messages then stay where they are until they are copied to where their rows
//! belong, and there are no local buffers.
//!
//! With each message that was read the source is told how many it may have waiting: as many as this
//! end has buffers, or would have.

use super::Place;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::link::queue::{Entry, Queue, RemoteQueue};
use crate::options::ExchangeOptions;
use roundel_verbs::{
    Buffer, CompletionStatus, Payload, QueuePair, RemoteAddress, SendOperation, SendRequest,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// One source that is read from.
pub(super) struct Reads {
    buffer_bytes: usize,
    at_once: bool,
    /// `ValidArr`.
    pub(super) valid: Queue,
    /// `FreeArr`, once the source has answered.
    pub(super) free: Option<RemoteQueue>,
    /// Local buffers that are free.
    local: Vec<Buffer>,
    /// A message that waits for one.
    waiting: Option<Entry>,
    /// Numbers of the messages that are being read, in order.
    in_flight: VecDeque<u64>,
    in_flight_max: usize,
    /// Numbers of those that were read and that the source has not been told of.
    pub(super) untold: VecDeque<u64>,
}

impl Reads {
    pub(super) fn open(fabric: &Fabric, options: &ExchangeOptions) -> Result<Self> {
        let capabilities = fabric.device.capabilities();
        let at_once = capabilities.reads_at_once;
        let buffers = match at_once {
            true => 0,
            false => options.window.least,
        };
        let mut local = Vec::with_capacity(buffers);
        for _ in 0..buffers {
            local.push(fabric.arena.allocate(options.message_bytes)?);
        }
        Ok(Self {
            buffer_bytes: options.message_bytes,
            at_once,
            valid: Queue::open(&fabric.arena, options.window_max())?,
            free: None,
            local,
            waiting: None,
            in_flight: VecDeque::new(),
            // More would wait in the send queue, and hold up what is behind them.
            in_flight_max: capabilities
                .outstanding_reads_max
                .clamp(1, options.window_max()),
            untold: VecDeque::new(),
        })
    }

    /// Whether messages are read where they are, by whoever takes them.
    pub(super) fn at_once(&self) -> bool {
        self.at_once
    }

    /// The next message that waits, and its bytes, where messages are read at once; `Err` for one that
    /// cannot be.
    pub(super) fn look(
        &mut self,
        queue_pair: &Arc<QueuePair>,
    ) -> Option<Result<(Place, usize), &'static str>> {
        let entry = self.valid.take()?;
        Some(self.named(entry).map(|(at, length, number)| {
            let queue_pair = queue_pair.clone();
            (
                Place::There {
                    queue_pair,
                    at,
                    number,
                },
                length,
            )
        }))
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

    /// Adds up to so many buffers, as far as there is memory to spare, here or at the source; returns how
    /// many.
    pub(super) fn widen(&mut self, fabric: &Fabric, wanted: usize) -> usize {
        if self.at_once {
            return wanted;
        }
        let before = self.local.len();
        self.local.extend(
            std::iter::from_fn(|| fabric.spare_buffer(self.buffer_bytes, false)).take(wanted),
        );
        self.local.len() - before
    }

    /// Local buffers that nothing is read into.
    pub(super) fn free(&self) -> usize {
        self.local.len()
    }

    /// Takes a buffer back.
    pub(super) fn give(&mut self, buffer: Buffer) {
        self.local.push(buffer);
    }

    /// Whether messages wait and there is no buffer for them.
    pub(super) fn is_starved(&self) -> bool {
        self.waiting.is_some() && self.local.is_empty()
    }

    /// The next READ, if a message waits and there is a buffer for it; `Err` for one that cannot
    /// be read.
    pub(super) fn next_read(&mut self, id: u64) -> Option<Result<SendRequest, &'static str>> {
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

    /// The oldest READ has ended.
    pub(super) fn was_read(&mut self) {
        self.untold.extend(self.in_flight.pop_front());
    }

    /// The request that tells the source of one more message that was read, and how many it may have waiting.
    pub(super) fn tell(&mut self, id: u64, window: usize) -> Option<SendRequest> {
        let free = self.free.as_mut()?;
        let number = self.untold.pop_front()?;
        Some(free.put(id, [number, window as u64, 0]))
    }
}

/// How reading at once ended.
pub(super) fn ended(
    read: Result<CompletionStatus, roundel_verbs::VerbsError>,
) -> Result<(), CompletionStatus> {
    match read {
        Ok(CompletionStatus::Success) => Ok(()),
        Ok(status) => Err(status),
        // Asked only of devices that can.
        Err(_) => Err(CompletionStatus::LocalOperation),
    }
}
