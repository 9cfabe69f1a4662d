//! A queue pair: what was posted, and how far it is.

use super::locks::Lock;
use super::packet::{Loose, PairId};
use super::time::Time;
use crate::counters::{Counters, Opcode};
use crate::memory::RemoteAddress;
use crate::provider::{ProviderAddressHandle, RawCompletion, RawLocal, RawSendRequest};
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::{CompletionStatus, InlineBytes, SendOperation};
use std::collections::VecDeque;
use std::sync::Arc;

/// For what a NIC needs a context: a queue pair has one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Requester,
    Responder,
}

pub(super) struct Pair {
    pub id: PairId,
    pub transport: Transport,
    pub queue_key: u32,
    pub state: QueuePairState,
    /// The other end of a connection.
    pub remote: Option<PairId>,
    pub send_queue: usize,
    pub receive_queue: usize,
    pub send_depth: usize,
    pub receive_depth: usize,
    pub rnr_retry: u8,
    pub sending: Sending,
    pub receiving: Receiving,
    /// Of its two queues.
    pub send_lock: Lock,
    pub receive_lock: Lock,
    /// Whether the NIC has it among those that may have something to send.
    pub active: bool,
    /// Where the NIC keeps its contexts.
    pub requester: Option<usize>,
    pub responder: Option<usize>,
    pub counters: Arc<Counters>,
}

/// The requests of a queue pair. Each has a number, from 0.
#[derive(Default)]
pub(super) struct Sending {
    /// Those that have not completed.
    pub requests: VecDeque<Request>,
    /// Number of the first of them.
    pub first: u64,
    /// Requests before this number are known to the NIC.
    pub rung: u64,
    /// The request that is sent next, and how much of it was.
    pub next: u64,
    pub offset: usize,
    /// READs and atomics that were sent and have no answer.
    pub returning: u64,
    /// Those that the NIC knows of, and those of them that it has taken up.
    pub asked: u64,
    pub taken_up: u64,
    /// When the last request was acknowledged, or there was none before.
    pub progress: Time,
    /// Whether somebody looks whether requests are acknowledged.
    pub watched: bool,
    /// How often in a row nobody acknowledged, and nobody was ready.
    pub tries: u32,
    pub not_ready: u32,
    /// Told to wait.
    pub waits: bool,
    /// The message that is being sent, where it is not kept until it is acknowledged.
    pub loose: Option<Arc<Loose>>,
}

/// What comes to a queue pair.
#[derive(Default)]
pub(super) struct Receiving {
    pub posted: VecDeque<Receive>,
    /// The request that is wanted next, and how much of it has come.
    pub expected: u64,
    pub offset: usize,
    /// Whether the requester was told that something is missing.
    pub complained: bool,
    /// Whether an acknowledgement waits to be sent. It says how far requests have come by then.
    pub acknowledges: bool,
    /// READs to answer.
    pub responses: VecDeque<Response>,
    /// What atomics found, by the number of their request, for those that ask again.
    pub found: VecDeque<(u64, u64)>,
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub id: u64,
    pub local: RawLocal,
}

/// A request to send.
#[derive(Clone)]
pub(super) struct Request {
    pub id: u64,
    pub operation: SendOperation,
    pub inline: Option<InlineBytes>,
    pub local: RawLocal,
    pub destination: Option<Arc<dyn ProviderAddressHandle>>,
    /// Carried out; it completes after those before it.
    pub done: bool,
    /// Bytes of what it asked for that have come.
    pub returned: usize,
}

impl From<&RawSendRequest> for Request {
    fn from(raw: &RawSendRequest) -> Self {
        Self {
            id: raw.id,
            operation: raw.operation,
            inline: raw.inline,
            local: raw.local,
            destination: raw.destination.clone(),
            done: false,
            returned: 0,
        }
    }
}

impl Request {
    pub(super) fn bytes(&self) -> usize {
        match &self.inline {
            Some(inline) => inline.as_slice().len(),
            None => self.local.length,
        }
    }

    /// The memory that it is about, where that is not a receive's.
    pub(super) fn remote_address(&self) -> Option<RemoteAddress> {
        match self.operation {
            SendOperation::Write(at)
            | SendOperation::WriteWithImmediate(at, _)
            | SendOperation::Read(at)
            | SendOperation::CompareAndSwap { at, .. }
            | SendOperation::FetchAndAdd { at, .. } => Some(at),
            SendOperation::Send | SendOperation::SendWithImmediate(_) => None,
        }
    }

    pub(super) fn returns(&self) -> bool {
        self.operation.returns_bytes()
    }

    pub(super) fn consumes_receive(&self) -> bool {
        matches!(
            self.operation,
            SendOperation::Send
                | SendOperation::SendWithImmediate(_)
                | SendOperation::WriteWithImmediate(..)
        )
    }

    pub(super) fn immediate(&self) -> Option<u32> {
        match self.operation {
            SendOperation::SendWithImmediate(immediate)
            | SendOperation::WriteWithImmediate(_, immediate) => Some(immediate),
            _ => None,
        }
    }
}

/// A UD destination.
pub(super) struct SimAddressHandle {
    pub pair: PairId,
    pub queue_key: u32,
}

impl ProviderAddressHandle for SimAddressHandle {}

/// A READ that is being answered.
#[derive(Clone, Copy)]
pub(super) struct Response {
    pub message: u64,
    pub bytes: usize,
    /// Bytes of it that were sent.
    pub offset: usize,
}

impl Sending {
    pub(super) fn request(&mut self, message: u64) -> Option<&mut Request> {
        let at = message.checked_sub(self.first)?;
        self.requests.get_mut(at as usize)
    }

    /// Sends from this request on again.
    pub(super) fn go_back(&mut self, message: u64) {
        self.next = self.next.min(message.max(self.first));
        self.offset = 0;
        let sent = (self.next - self.first) as usize;
        for request in self.requests.iter_mut().skip(sent) {
            request.returned = 0;
        }
        let sent = self.requests.iter().take(sent);
        let left = sent.filter(|request| request.returns() && !request.done);
        self.returning = left.count() as u64;
    }
}

impl Pair {
    pub(super) fn send_completion(
        &self,
        request: &Request,
        status: CompletionStatus,
    ) -> RawCompletion {
        RawCompletion {
            id: request.id,
            queue_pair: self.id.number,
            status,
            opcode: request.operation.opcode(),
            bytes: request.bytes(),
            written: false,
            immediate: None,
            source_queue_pair: 0,
        }
    }

    /// The end of a receive that nothing came to.
    pub(super) fn receive_completion(&self, id: u64, status: CompletionStatus) -> RawCompletion {
        RawCompletion {
            id,
            queue_pair: self.id.number,
            status,
            opcode: Opcode::Receive,
            bytes: 0,
            written: false,
            immediate: None,
            source_queue_pair: 0,
        }
    }
}
