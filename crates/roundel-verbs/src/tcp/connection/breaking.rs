//! How a connected queue pair comes to its end: by its owner, by a request that failed at either
//! end, or because the connection is lost.

use super::requests::Response;
use super::send_side::SendSide;
use super::{ERROR, Receiving, Stage, StreamPair};
use crate::tcp::frame::Refusal;
use crate::tcp::socket;
use crate::work::CompletionStatus;
use std::sync::atomic::Ordering;

/// How a queue pair breaks.
pub(super) struct Break {
    /// How its oldest request ends; the others are flushed.
    first: CompletionStatus,
    /// What the peer's request gets that broke it.
    refusal: Option<Refusal>,
    /// The connection is of no use any more.
    lost: bool,
}

impl Break {
    /// By its owner.
    pub(super) const OWN: Self = Self {
        first: CompletionStatus::Flushed,
        refusal: None,
        lost: false,
    };
    /// Because the connection ended.
    pub(super) const LOST: Self = Self {
        first: CompletionStatus::RetryExceeded,
        refusal: None,
        lost: true,
    };

    /// Because a request failed.
    pub(super) fn request(first: CompletionStatus) -> Self {
        Self {
            first,
            refusal: None,
            lost: false,
        }
    }

    /// Because a request of the peer failed.
    pub(super) fn of_peer(refusal: Refusal) -> Self {
        Self {
            refusal: Some(refusal),
            ..Self::OWN
        }
    }
}

impl StreamPair {
    /// Goes to the error state: posted requests end, and the peer is told.
    pub(super) fn break_off(&self, cause: Break) {
        self.break_with(&mut self.receiving.lock(), cause);
    }

    pub(super) fn break_with(&self, receiving: &mut Receiving, cause: Break) {
        if self.is(ERROR) {
            if cause.lost {
                self.close(receiving);
            }
            return;
        }
        let mut ended = std::mem::take(&mut receiving.received);
        {
            let mut posted = self.posted.lock();
            self.state.store(ERROR, Ordering::Release);
            posted.broken = true;
            let under_way = receiving.reader.abandon().and_then(|then| then.receive());
            let waiting = posted.requests.drain(..).map(|request| request.id);
            ended.extend(
                under_way
                    .into_iter()
                    .chain(waiting)
                    .map(|id| self.failed_receive(id, CompletionStatus::Flushed)),
            );
        }
        let unusable = {
            let mut send = self.send.lock();
            send.broken = true;
            let (requests, unusable) = send.take_requests();
            let mut done = std::mem::take(&mut receiving.completed);
            let mut status = cause.first;
            for request in requests {
                done.push(self.completion(&request, status));
                status = CompletionStatus::Flushed;
            }
            self.send_queue.push(&mut done);
            send.acknowledge(receiving.done);
            if let Some(refusal) = cause.refusal {
                send.responses.push_back(Response::Refused {
                    sequence: receiving.done,
                    refusal,
                });
            }
            unusable
        };
        self.receive_queue.push(&mut ended);
        for call in receiving.early.drain(..) {
            self.device.turn_away(&call.socket, call.token);
        }
        if let Some(socket) = &unusable {
            socket::shut(socket);
        }
        if cause.lost || unusable.is_some() {
            self.close(receiving);
            return;
        }
        match receiving.stage {
            Stage::Open => {}
            Stage::Calling(_) => return self.depart(receiving),
            _ => return self.close(receiving),
        }
        let mut send = self.send.lock();
        send.responses.push_back(Response::Gone);
        if send.transmit().is_err() {
            drop(send);
            self.close(receiving);
        }
    }

    /// Closes the connection for good.
    pub(super) fn close(&self, receiving: &mut Receiving) {
        receiving.stage = Stage::Closed;
        receiving.deadline = None;
        self.device.forget(receiving.token);
        if let Some(socket) = receiving.reader.socket.take() {
            socket::shut(&socket);
        }
        let mut send = self.send.lock();
        if let Some(socket) = send.socket.take() {
            socket::shut(&socket);
        }
        send.peer_gone = true;
        send.partial = None;
        send.responses.clear();
    }

    /// The connection ended without a word: the peer's device is gone, or cannot be reached.
    pub(super) fn lost(&self, receiving: &mut Receiving) {
        if self.reliable {
            self.break_with(receiving, Break::LOST);
        } else {
            self.receive_queue.push(&mut receiving.received);
            self.close(receiving);
            self.drop_requests();
        }
    }

    /// On an unreliable connection without a peer: posted requests go nowhere, and that is a
    /// success.
    pub(super) fn drop_requests(&self) {
        let mut send = self.send.lock();
        if send.broken {
            return;
        }
        self.drop_posted(&mut send);
    }

    pub(super) fn drop_posted(&self, send: &mut SendSide) {
        let (mut requests, unusable) = send.take_requests();
        if let Some(socket) = unusable {
            // Its reader closes the rest.
            socket::shut(&socket);
        }
        // One that cannot be carried out breaks the queue pair also here, when its turn comes.
        if let Some(failed) = requests.iter().position(|one| one.failed.is_some()) {
            send.requests = requests.split_off(failed);
        }
        let mut done = requests
            .iter()
            .map(|request| self.completion(request, CompletionStatus::Success))
            .collect();
        self.send_queue.push(&mut done);
    }
}
