//! A queue pair, as an end of a link posts to it and counts what is on its way.

use super::queue::NOWHERE;
use crate::error::{ExchangeError, Result};
use roundel_verbs::{
    Buffer, Payload, QueuePair, ReceiveRequest, SendOperation, SendRequest, VerbsError,
};

/// A queue pair, and what it is sending.
pub(crate) struct SendQueue {
    pub(crate) queue_pair: QueuePair,
    /// Requests posted and not completed, and how many there may be.
    pub(crate) in_flight: usize,
    depth: usize,
}

impl SendQueue {
    pub(crate) fn new(queue_pair: QueuePair, depth: usize) -> Self {
        Self {
            queue_pair,
            in_flight: 0,
            depth,
        }
    }

    /// Whether so many requests more fit.
    pub(crate) fn has_room(&self, requests: usize) -> bool {
        self.in_flight + requests <= self.depth
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// Posts requests, for which there is room.
    pub(crate) fn post(&mut self, mut requests: Vec<SendRequest>) -> Result<()> {
        self.in_flight += self.queue_pair.post_send(&mut requests)?;
        match requests.is_empty() {
            true => Ok(()),
            false => Err(ExchangeError::from(VerbsError::DeviceLimit {
                what: "sends in flight",
                requested: self.in_flight + 1,
                limit: self.in_flight,
            })),
        }
    }

    /// Posts a request that can be left out.
    pub(crate) fn try_post(&mut self, request: SendRequest) {
        self.in_flight += usize::from(post(&self.queue_pair, request));
    }

    /// A request has completed.
    pub(crate) fn complete(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

/// A SEND without bytes, which wakes the other end.
pub(crate) fn bell(id: u64) -> SendRequest {
    SendRequest {
        id,
        operation: SendOperation::Send,
        payload: Payload::Empty,
        destination: None,
    }
}

/// A WRITE without bytes: a credit with immediate data, a sign of life without.
pub(crate) fn empty_write(id: u64, immediate: Option<u32>) -> SendRequest {
    SendRequest {
        id,
        operation: match immediate {
            Some(immediate) => SendOperation::WriteWithImmediate(NOWHERE, immediate),
            None => SendOperation::Write(NOWHERE),
        },
        payload: Payload::Empty,
        destination: None,
    }
}

/// Posts one request; whether there was room. A queue pair that refuses is broken, which its
/// completions say.
pub(crate) fn post(queue_pair: &QueuePair, request: SendRequest) -> bool {
    let mut requests = vec![request];
    queue_pair
        .post_send(&mut requests)
        .is_ok_and(|posted| posted == 1)
}

/// Posts the receives that a new queue pair begins with.
pub(crate) fn post_receives(
    queue_pair: &QueuePair,
    id: u64,
    buffers: impl IntoIterator<Item = Option<Buffer>>,
) -> Result<()> {
    let receives = buffers.into_iter();
    let receives = receives.map(|buffer| ReceiveRequest { id, buffer });
    queue_pair.post_receive(&mut receives.collect())?;
    Ok(())
}

/// Posts a receive again that was used up.
pub(crate) fn post_receive(queue_pair: &QueuePair, id: u64, buffer: Option<Buffer>) {
    let mut again = vec![ReceiveRequest { id, buffer }];
    // A queue pair that refuses its own receive is in error: completions say so.
    let _ = queue_pair.post_receive(&mut again);
}
