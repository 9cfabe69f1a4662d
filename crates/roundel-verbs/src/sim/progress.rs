//! How requests go on and end: they are taken up, sent again, completed in order, or flushed when their queue pair
//! breaks.

use super::packet::PairId;
use super::state::State;
use crate::queue_pair::QueuePairState;
use crate::work::CompletionStatus;

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
