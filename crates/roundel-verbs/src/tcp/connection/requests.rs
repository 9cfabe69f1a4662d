//! What a connection carries: the requests of this end, and what the peer is told of its own. Knows
//! nothing of when they are sent.

use crate::memory::Pages;
use crate::provider::RawSendRequest;
use crate::tcp::frame::{Frame, Refusal};
use crate::work::{CompletionStatus, InlineBytes, SendOperation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A request of the send queue.
pub(super) struct Request {
    pub id: u64,
    pub operation: SendOperation,
    /// Bytes that travel, in either direction.
    pub length: usize,
    /// Where they are in this process, unless they are inline.
    pub address: usize,
    pub inline: Option<InlineBytes>,
    /// How it ends when its turn comes, without being sent.
    pub failed: Option<CompletionStatus>,
}

impl Request {
    /// A request on local memory at an address, which is `None` when the memory is not registered.
    pub(super) fn new(raw: &RawSendRequest, address: Option<*mut u8>) -> Self {
        Self {
            id: raw.id,
            operation: raw.operation,
            length: raw
                .inline
                .as_ref()
                .map_or(raw.local.length, |bytes| bytes.as_slice().len()),
            address: address.map_or(0, |address| address as usize),
            inline: raw.inline,
            failed: match address {
                Some(_) => None,
                None => Some(CompletionStatus::LocalProtection),
            },
        }
    }

    pub(super) fn frame(&self) -> Frame {
        let length = self.length as u32;
        match self.operation {
            SendOperation::Send => Frame::Send {
                length,
                immediate: None,
            },
            SendOperation::SendWithImmediate(immediate) => Frame::Send {
                length,
                immediate: Some(immediate),
            },
            SendOperation::Write(at) => Frame::Write {
                at,
                length,
                immediate: None,
            },
            SendOperation::WriteWithImmediate(at, immediate) => Frame::Write {
                at,
                length,
                immediate: Some(immediate),
            },
            SendOperation::Read(at) => Frame::Read { at, length },
            SendOperation::CompareAndSwap { at, compare, swap } => {
                Frame::CompareAndSwap { at, compare, swap }
            }
            SendOperation::FetchAndAdd { at, add } => Frame::FetchAndAdd { at, add },
        }
    }

    /// The bytes that follow its header.
    pub(super) fn payload(&self) -> (*const u8, usize) {
        if self.operation.returns_bytes() {
            return (std::ptr::null(), 0);
        }
        match &self.inline {
            Some(bytes) => (bytes.as_slice().as_ptr(), self.length),
            None => (self.address as *const u8, self.length),
        }
    }

    /// Whether the peer needs a receive for it.
    pub(super) fn takes_receive(&self) -> bool {
        matches!(
            self.operation,
            SendOperation::Send
                | SendOperation::SendWithImmediate(_)
                | SendOperation::WriteWithImmediate(..)
        )
    }
}

/// What the peer is to be told of its own requests.
pub(super) enum Response {
    /// So many of them are done; and how many receives are posted, as of when it is sent.
    Done(u64),
    /// What one of them read.
    Read {
        sequence: u64,
        address: usize,
        length: usize,
        /// Keeps the memory mapped.
        _pages: Option<Arc<Pages>>,
    },
    /// What a word was.
    Atomic { sequence: u64, word: u64 },
    /// One of them failed.
    Refused { sequence: u64, refusal: Refusal },
    /// There is nobody any more.
    Gone,
}

/// Receives that this end has posted, and what the peer knows of it.
#[derive(Default)]
pub(super) struct Credit {
    pub posted: AtomicU64,
    pub advertised: AtomicU64,
}

impl Response {
    pub(super) fn frame(&self, credit: &Credit) -> Frame {
        match *self {
            Self::Done(done) => Frame::Acknowledge {
                done,
                posted: credit.posted.load(Ordering::Acquire),
            },
            Self::Read {
                sequence, length, ..
            } => Frame::ReadResponse {
                sequence,
                length: length as u32,
            },
            Self::Atomic { sequence, word } => Frame::AtomicResponse { sequence, word },
            Self::Refused { sequence, refusal } => Frame::Refuse { sequence, refusal },
            Self::Gone => Frame::Gone,
        }
    }

    pub(super) fn payload(&self) -> (*const u8, usize) {
        match *self {
            Self::Read {
                address, length, ..
            } => (address as *const u8, length),
            _ => (std::ptr::null(), 0),
        }
    }
}
