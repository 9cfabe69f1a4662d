//! What both sides need of datagrams: the queue pair, receives for it, and the header of what
//! arrives.

use crate::error::{ExchangeError, Result};
use crate::fabric::Fabric;
use crate::link::header::header_at;
use crate::options::ExchangeOptions;
use crate::wire::Header;
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::{
    Buffer, Completion, CompletionQueue, CompletionStatus, QUEUE_KEY_MAX, QueuePair,
    QueuePairOptions, ReceiveRequest, Transport,
};

/// A datagram queue pair, ready to send and receive, on one completion queue.
pub(super) fn open(
    fabric: &Fabric,
    queue: &CompletionQueue,
    options: &ExchangeOptions,
) -> Result<QueuePair> {
    let depth = options.datagrams_max;
    let queue_pair = fabric.device.create_queue_pair(
        &QueuePairOptions {
            transport: Transport::UnreliableDatagram,
            send_depth: depth,
            receive_depth: depth,
            rnr_retry: 7,
            // At random: a fixed key would let any stranger's datagrams in.
            queue_key: options
                .queue_key
                .unwrap_or_else(|| fabric.context.random() as u32 & QUEUE_KEY_MAX),
        },
        queue,
        queue,
    )?;
    queue_pair.activate()?;
    Ok(queue_pair)
}

/// Posts receives for `count` messages of up to `bytes`.
pub(super) fn post_receives(
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

/// Posts one receive again.
pub(super) fn post_again(queue_pair: &QueuePair, buffer: Buffer) {
    let mut again = vec![ReceiveRequest {
        id: 0,
        buffer: Some(buffer),
    }];
    // A queue pair that refuses its own buffer is in error: completions say so.
    let _ = queue_pair.post_receive(&mut again);
}

pub(super) fn too_many_links(receives: usize) -> ExchangeError {
    ExchangeError::own(format!(
        "more links than a datagram queue pair of {receives} receives can serve"
    ))
}

/// The header of a datagram; `None` for what is none.
pub(super) fn header(completion: &Completion) -> Option<Header> {
    let buffer = completion.buffer.as_ref()?;
    // A receive that failed, or that a stranger's WRITE used up, has old bytes in its buffer.
    if completion.status != CompletionStatus::Success || completion.written {
        return None;
    }
    header_at(buffer, GRH_BYTES, completion.bytes).ok()
}
