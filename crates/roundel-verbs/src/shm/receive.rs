//! A receive of either kind of queue: as it is posted, and its completion.

use super::connected_ring::{Completed, Posted};
use super::layout::{HAS_IMMEDIATE, PairEntry, SlotEntry, TOO_LONG, WRITTEN};
use crate::counters::Opcode;
use crate::provider::RawCompletion;
use crate::work::CompletionStatus;

/// A receive as this process posted it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub id: u64,
    pub posted: Posted,
}

/// A ring as it lies in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    pub pair: &'a PairEntry,
    pub slots: &'a [SlotEntry],
}

/// The completion of a receive, as far as what the peer wrote is possible.
pub(super) fn completion(number: u32, request: &Request, completed: Completed) -> RawCompletion {
    let written = completed.flags & WRITTEN != 0;
    let too_long =
        completed.flags & TOO_LONG != 0 || (!written && completed.bytes > request.posted.length);
    RawCompletion {
        id: request.id,
        queue_pair: number,
        status: if too_long {
            CompletionStatus::LocalLength
        } else {
            CompletionStatus::Success
        },
        opcode: Opcode::Receive,
        bytes: if too_long {
            0
        } else {
            completed.bytes as usize
        },
        written,
        immediate: (completed.flags & HAS_IMMEDIATE != 0).then_some(completed.immediate),
        source_queue_pair: completed.source_pair,
    }
}

/// The completion of a receive that will not be used any more.
pub(super) fn flushed(number: u32, request: Request) -> RawCompletion {
    RawCompletion {
        id: request.id,
        queue_pair: number,
        status: CompletionStatus::Flushed,
        opcode: Opcode::Receive,
        bytes: 0,
        written: false,
        immediate: None,
        source_queue_pair: 0,
    }
}
