//! What the completion queue brings: messages for the operators, credit for the sources, and memory that is free
//! again.

use super::State;
use super::arrivals::{Arrival, MessageHead};
use super::news::News;
use super::outbound::SourceKey;
use super::outgoing::About;
use crate::endpoint::header_at;
use crate::wire::{Body, Header};
use roundel_verbs::{Buffer, Completion, CompletionQueue, CompletionStatus, Opcode, SharedBuffer};
use std::sync::Arc;

/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 64;

impl State {
    /// Takes the completions that are there.
    pub(super) fn poll(&mut self, queue: &CompletionQueue) {
        loop {
            let mut completions = std::mem::take(&mut self.completions);
            let found = queue.poll(&mut completions, POLL_BATCH);
            for completion in completions.drain(..) {
                self.take(completion);
            }
            self.completions = completions;
            if found < POLL_BATCH {
                return;
            }
        }
    }

    fn take(&mut self, completion: Completion) {
        let Some(&index) = self.by_queue_pair.get(&completion.queue_pair) else {
            return;
        };
        if completion.status != CompletionStatus::Success {
            self.fail_connection(index, completion.status);
        } else if completion.opcode == Opcode::Receive {
            self.take_receive(index, completion);
        } else {
            self.take_sent(index, completion);
        }
    }

    fn take_sent(&mut self, index: usize, completion: Completion) {
        let Some(about) = self.connections[index].completed(completion.id) else {
            self.fail_connection(index, CompletionStatus::Failed);
            return;
        };
        self.sent(about, completion.buffer);
    }

    fn take_receive(&mut self, index: usize, completion: Completion) {
        let connection = &mut self.connections[index];
        if completion.written {
            match completion.immediate {
                Some(credit) => {
                    if connection.take_credit(credit, completion.buffer) {
                        self.schedule_peers();
                    }
                }
                None => self.refuse(index, "it writes where it should send"),
            }
            return;
        }
        let Some(buffer) = completion.buffer else {
            return;
        };
        match header_at(&buffer, 0, completion.bytes) {
            Ok(header) => self.take_message(index, &header, buffer),
            Err(error) => self.refuse(index, &error.to_string()),
        }
    }

    fn take_message(&mut self, index: usize, header: &Header, buffer: Buffer) {
        if let Body::Data(data) = header.body {
            let group = (header.exchange, header.source, header.group);
            let connection = &mut self.connections[index];
            let Some(members) = connection.groups.get(&group).cloned() else {
                // Its links have been left, which the source has not heard of yet.
                connection.receive_again(Some(buffer));
                return;
            };
            let head = MessageHead {
                partition: header.partition,
                group: header.group,
                sequence: header.sequence,
                data,
            };
            let arrival = Arc::new(Arrival::new(index, members, head, buffer));
            connection.hold(&arrival);
            arrival.push();
            return;
        }
        self.connections[index].receive_again(Some(buffer));
        let source = SourceKey {
            exchange: header.exchange,
            source: header.source,
        };
        // A control message is about a link: of the receiver's, or a destination of the source.
        let about = header.partition;
        match header.body {
            Body::Member => self.join_group(index, header),
            Body::EndOfStream(end) => self.tell(index, about, News::End(end.sent)),
            Body::Abort => self.tell(index, about, News::Lost(CompletionStatus::Flushed)),
            Body::Credit(credit) => self.grant(index, source, about, credit.credit),
            Body::Leave => self.left(index, source, about),
            Body::Phase(_) | Body::Trial(_) => {
                if let Some((peer, answer)) = self.schedule.hear(index, header.body) {
                    self.say_of_schedule(peer, answer);
                }
            }
            _ => self.refuse(index, "a message that multiplexers do not send"),
        }
    }

    /// What is on a connection is not what this version understands: nothing on it can be trusted.
    fn refuse(&mut self, index: usize, reason: &str) {
        tracing::warn!(
            peer = self.connections[index].name,
            reason,
            "connection refused"
        );
        self.fail_connection(index, CompletionStatus::Failed);
    }

    /// A connection is gone, and with it all links over it.
    pub(super) fn fail_connection(&mut self, index: usize, status: CompletionStatus) {
        let connection = &mut self.connections[index];
        if !connection.is_alive() {
            return;
        }
        if let Some(address) = connection.address() {
            self.by_queue_pair.remove(&address.number);
        }
        if self.by_peer.get(&connection.peer) == Some(&index) {
            self.by_peer.remove(&connection.peer);
        }
        let error = connection.lost(status);
        self.schedule_peers();
        let connection = &mut self.connections[index];
        for about in connection.fail() {
            self.unsent(about);
        }
        self.lose_destinations(index, &error);
        self.lose_links(index, status);
    }

    /// Looks after silent peers, and after memory that nobody needs.
    pub(super) fn attend(&mut self) {
        self.pool.shrink();
        for index in 0..self.connections.len() {
            if let Err(status) = self.connections[index].probe() {
                self.fail_connection(index, status);
            }
        }
    }

    /// A message was sent: its memory is free again, when no other connection needs it.
    fn sent(&mut self, about: About, buffer: Option<Buffer>) {
        match about {
            About::Control => {}
            About::Data(data) => {
                self.handed_over(data.source, &data.destinations);
                // The connection's own part of a shared message went with its completion.
                let whole = match data.shared {
                    Some(shared) => shared.try_into_owned().ok(),
                    None => buffer,
                };
                if whole.is_some() {
                    self.message_back(data.query, whole);
                }
            }
            About::End(source, destination) => self.handed_over(source, &[destination]),
        }
    }

    /// A message will never be sent; its memory goes with its connection, unless another has the last part.
    fn unsent(&mut self, about: About) {
        if let About::Data(data) = about {
            match data.shared.map(SharedBuffer::try_into_owned) {
                Some(Ok(whole)) => self.message_back(data.query, Some(whole)),
                Some(Err(_)) => {}
                None => self.message_back(data.query, None),
            }
        }
    }

    /// A message of a query is free, or lost for the pool.
    pub(super) fn message_back(&mut self, query: u64, buffer: Option<Buffer>) {
        let waiting = self.pool.give_back(query, buffer);
        self.wakers.extend(waiting);
    }
}
