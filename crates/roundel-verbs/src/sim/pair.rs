//! A queue pair: what was posted, how far it is, and how it breaks.

use super::locks::Lock;
use super::packet::{Loose, PairId};
use super::state::State;
use super::time::Time;
use crate::counters::{Counters, Opcode};
use crate::provider::{ProviderAddressHandle, RawCompletion, RawLocal, RawSendRequest};
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::{CompletionStatus, InlineBytes, SendOperation};
use std::collections::VecDeque;
use std::sync::Arc;

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
    fn go_back(&mut self, message: u64) {
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
    fn send_completion(&self, request: &Request, status: CompletionStatus) -> RawCompletion {
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

impl State {
    /// A queue pair sends from a request on again.
    pub(super) fn go_back(&mut self, id: PairId, message: u64) {
        let Some(pair) = self.pair(id) else { return };
        pair.sending.go_back(message);
    }

    /// A NIC takes up as many READs and atomics of a queue pair as can be outstanding.
    pub(super) fn take_up(&mut self, id: PairId) {
        let most = self.parameters.nic.reads_max as u64;
        let Some(pair) = self.pair(id) else { return };
        let now = pair.sending.asked.min(most);
        let before = std::mem::replace(&mut pair.sending.taken_up, now);
        let reads = &mut self.nodes[id.node].nic.reads;
        *reads = *reads + now - before;
    }

    /// Completes what was carried out, in order.
    pub(super) fn complete_sends(&mut self, id: PairId) {
        let clock = self.clock;
        loop {
            let Some(pair) = self.pair(id) else { return };
            let sending = &mut pair.sending;
            let Some(request) = sending.requests.pop_front_if(|request| request.done) else {
                return;
            };
            sending.first += 1;
            if sending.next < sending.first {
                // It was to be sent again, and had come after all.
                (sending.next, sending.offset) = (sending.first, 0);
            }
            sending.progress = clock;
            sending.tries = 0;
            sending.not_ready = 0;
            let completion = pair.send_completion(&request, CompletionStatus::Success);
            pair.counters
                .add(request.operation.opcode(), request.bytes());
            let queue = pair.send_queue;
            let node = &mut self.nodes[id.node];
            node.queues.at(queue).push(completion);
        }
    }

    /// Moves a queue pair to the error state: the request of this number ends with this status, all others
    /// are flushed.
    pub(super) fn break_pair(&mut self, id: PairId, cause: Option<(u64, CompletionStatus)>) {
        let Some(pair) = self.pair(id) else { return };
        if pair.state == QueuePairState::Error {
            return;
        }
        pair.state = QueuePairState::Error;
        let first = pair.sending.first;
        let requests = std::mem::take(&mut pair.sending.requests);
        pair.sending.returning = 0;
        pair.sending.asked = 0;
        pair.sending.first += requests.len() as u64;
        let sends: Vec<_> = (first..)
            .zip(&requests)
            .map(|(message, request)| {
                let status = match cause {
                    Some((failed, status)) if failed == message => status,
                    _ => CompletionStatus::Flushed,
                };
                pair.send_completion(request, status)
            })
            .collect();
        let receives = std::mem::take(&mut pair.receiving.posted);
        let receives: Vec<_> = receives
            .iter()
            .map(|receive| pair.receive_completion(receive.id, CompletionStatus::Flushed))
            .collect();
        pair.receiving.responses.clear();
        let (send_queue, receive_queue) = (pair.send_queue, pair.receive_queue);
        self.take_up(id);
        let queues = &mut self.nodes[id.node].queues;
        for completion in sends {
            queues.at(send_queue).push(completion);
        }
        for completion in receives {
            queues.at(receive_queue).push(completion);
        }
    }
}
