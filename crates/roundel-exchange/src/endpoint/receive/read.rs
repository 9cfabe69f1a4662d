//! MQ/RD at the receiver (section 5.4): the source names the messages that wait at its side in a queue
//! of this end's, `ValidArr`. They are read into local buffers, and named in a queue of the source's,
//! `FreeArr`, as soon as they have been: the paper's receivers do so when they have consumed them.

use super::super::Fabric;
use super::super::ring::{Entry, RemoteRing, Ring};
use crate::error::Result;
use crate::options::ExchangeOptions;
use roundel_verbs::{Buffer, Payload, RemoteAddress, SendOperation, SendRequest};
use std::collections::VecDeque;

/// One source that is read from.
pub(super) struct Reads {
    buffer_bytes: usize,
    /// `ValidArr`.
    pub(super) valid: Ring,
    /// `FreeArr`, once the source has answered.
    pub(super) free: Option<RemoteRing>,
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

impl Reads {
    pub(super) fn open(fabric: &Fabric, options: &ExchangeOptions) -> Result<Self> {
        let outstanding = fabric.device.capabilities().outstanding_reads_max;
        let mut local = Vec::with_capacity(options.window.least);
        for _ in 0..options.window.least {
            local.push(fabric.arena.allocate(options.message_bytes)?);
        }
        Ok(Self {
            buffer_bytes: options.message_bytes,
            valid: Ring::open(&fabric.arena, options.window_max())?,
            free: None,
            local,
            waiting: None,
            in_flight: VecDeque::new(),
            // More would wait in the send queue, and hold up what is behind them.
            in_flight_max: outstanding.clamp(1, options.window_max()),
            untold: VecDeque::new(),
        })
    }

    /// Adds up to so many buffers, as far as there is memory to spare; returns how many.
    pub(super) fn widen(&mut self, fabric: &Fabric, wanted: usize) -> usize {
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
        if self.in_flight.len() >= self.in_flight_max {
            return None;
        }
        if self.waiting.is_none() {
            self.waiting = self.valid.take();
        }
        let [address, key_and_length, number] = self.waiting?;
        let length = (key_and_length >> 32) as usize;
        if length > self.buffer_bytes {
            self.waiting = None;
            return Some(Err("its messages are longer than those of this exchange"));
        }
        let buffer = self.local.pop()?;
        self.waiting = None;
        self.in_flight.push_back(number);
        Some(Ok(SendRequest {
            id,
            operation: SendOperation::Read(RemoteAddress {
                address,
                remote_key: key_and_length as u32,
            }),
            payload: Payload::Owned { buffer, length },
            destination: None,
        }))
    }

    /// The oldest READ has ended.
    pub(super) fn was_read(&mut self) {
        self.untold.extend(self.in_flight.pop_front());
    }

    /// The request that tells the source of one more message that was read.
    pub(super) fn tell(&mut self, id: u64) -> Option<SendRequest> {
        let free = self.free.as_mut()?;
        let number = self.untold.pop_front()?;
        Some(free.put(id, [number, 0, 0]))
    }
}
