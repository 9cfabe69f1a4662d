//! What travels between NICs.

use crate::memory::RemoteAddress;
use crate::work::CompletionStatus;
use std::sync::Arc;

/// A queue pair of the simulation, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PairId {
    pub node: usize,
    pub number: u32,
    pub incarnation: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub from: PairId,
    pub to: PairId,
    /// Of the link, headers included.
    pub wire_bytes: usize,
    pub payload_bytes: usize,
    /// Its checksum is wrong.
    pub spoilt: bool,
    pub content: Content,
}

/// The part of a message that a packet has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Number of the message on its connection.
    pub message: u64,
    /// Where it begins, and how long it is.
    pub offset: usize,
    pub length: usize,
    pub last: bool,
}

impl Part {
    pub(super) fn is_first(&self) -> bool {
        self.offset == 0
    }
}

/// What a packet says. Payload of reliable connections is not in it: it stays where it was posted from
/// until it is acknowledged, and is copied from there when the last packet has come.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A request of a reliable connection, which lies at its requester.
    Request(Part),
    /// Bytes that were read.
    Response(Part),
    /// What an atomic operation found.
    Found { message: u64, word: u64 },
    /// All requests before this number were carried out, but for what they return.
    Acknowledge(u64),
    /// This request found no receive.
    NotReady(u64),
    /// This request is the next one wanted: it, or one before the one that came, was lost.
    Missing(u64),
    /// This request was refused.
    Refused(u64, CompletionStatus),
    /// A message of an unreliable connection.
    Unreliable(Part, Arc<Loose>),
    /// A message without a connection, with its number at the sender.
    Datagram(u64, Arc<Loose>),
}

/// A message that its sender forgets when it has left.
#[derive(Debug)]
pub(super) struct Loose {
    pub bytes: Vec<u8>,
    pub immediate: Option<u32>,
    /// Where it is written to; else it is for a receive.
    pub write: Option<RemoteAddress>,
    pub queue_key: u32,
}

impl Loose {
    pub(super) fn consumes_receive(&self) -> bool {
        self.write.is_none() || self.immediate.is_some()
    }
}
