//! SEND over Unreliable Datagram (Liu et al. 2019, section 5.2): MESQ/SR and SESQ/SR. All links of an endpoint share a
//! queue pair and its receives. What is lost, and what is said again, is the endpoints' business.

use super::carrier::{Filled, Requests, SourceEnd};
use crate::error::{ExchangeError, Result};
use crate::fabric::Fabric;
use crate::link::header::header_at;
use crate::wire::Header;
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::{
    AddressHandle, Completion, CompletionQueue, CompletionStatus, Payload, QUEUE_KEY_MAX,
    QueuePair, QueuePairOptions, ReceiveRequest, SendOperation, SendRequest, Transport,
};

/// The end of a source.
pub(super) struct Source(pub(super) AddressHandle);

impl SourceEnd for Source {
    fn carry(&mut self, message: Filled, ids: [u64; 2]) -> Result<Requests, &'static str> {
        Ok(vec![datagram(ids[0], message.into_bytes()?, &self.0)])
    }
}

/// The request that sends a datagram.
pub(crate) fn datagram(id: u64, payload: Payload, to: &AddressHandle) -> SendRequest {
    SendRequest {
        id,
        operation: SendOperation::Send,
        payload,
        destination: Some(to.clone()),
    }
}

/// A datagram queue pair, ready to send and receive, on one completion queue.
pub(crate) fn open(
    fabric: &Fabric,
    queue: &CompletionQueue,
    depth: usize,
    queue_key: Option<u32>,
) -> Result<QueuePair> {
    let queue_pair = fabric.device.create_queue_pair(
        &QueuePairOptions {
            transport: Transport::UnreliableDatagram,
            send_depth: depth,
            receive_depth: depth,
            rnr_retry: 7,
            // At random: a fixed key would let any stranger's datagrams in.
            queue_key: queue_key.unwrap_or_else(|| fabric.context.random() as u32 & QUEUE_KEY_MAX),
        },
        queue,
        queue,
    )?;
    queue_pair.activate()?;
    Ok(queue_pair)
}

/// Posts receives for `count` messages of up to `bytes`.
pub(crate) fn post_receives(
    fabric: &Fabric,
    queue_pair: &QueuePair,
    count: usize,
    bytes: usize,
) -> Result<()> {
    let mut receives = Vec::with_capacity(count);
    for _ in 0..count {
        receives.push(ReceiveRequest {
            id: 0,
            buffer: Some(fabric.arena.allocate(GRH_BYTES + bytes)?),
        });
    }
    match queue_pair.post_receive(&mut receives)? {
        posted if posted < count => Err(ExchangeError::own(format!(
            "a datagram queue pair has room for {posted} more receives, and a link needs {count}"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn too_many_links(receives: usize) -> ExchangeError {
    ExchangeError::own(format!(
        "more links than a datagram queue pair of {receives} receives can serve"
    ))
}

/// The header of a datagram; `None` for what is none.
pub(crate) fn header(completion: &Completion) -> Option<Header> {
    let buffer = completion.buffer.as_ref()?;
    // A receive that failed, or that a stranger's WRITE used up, has old bytes in its buffer.
    if completion.status != CompletionStatus::Success || completion.written {
        return None;
    }
    header_at(buffer, GRH_BYTES, completion.bytes).ok()
}
