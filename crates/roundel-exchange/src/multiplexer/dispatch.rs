//! What the completion queue brings: messages for the operators, credit for the sources, and memory that is free
//! again.

use super::State;
use super::arrivals::{Arrival, MessageHead};
use super::news::News;
use super::outgoing::{About, Memory, SourceKey};
use crate::designs::carrier::Place;
use crate::wire::{Body, Data, Header};
use roundel_verbs::{Buffer, Completion, CompletionQueue, CompletionStatus, Opcode};
use std::sync::Arc;

/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 64;

impl State {
    /// Takes the completions that are there, and what memory says has come.
    pub(super) fn poll(&mut self, queue: &CompletionQueue) {
        loop {
            let mut completions = std::mem::take(&mut self.completions);
            let found = queue.poll(&mut completions, POLL_BATCH);
            for completion in completions.drain(..) {
                self.take(completion);
            }
            self.completions = completions;
            if found < POLL_BATCH {
                break;
            }
        }
        for index in 0..self.connections.len() {
            self.take_written(index);
        }
    }

    fn take(&mut self, completion: Completion) {
        let Some(&index) = self.by_queue_pair.get(&completion.queue_pair) else {
            return;
        };
        if completion.status != CompletionStatus::Success {
            // What has come before it broke is there.
            self.take_written(index);
            self.fail_connection(index, completion.status);
        } else if completion.opcode == Opcode::Receive {
            self.take_receive(index, completion);
        } else {
            self.take_completed(index, completion);
        }
    }

    fn take_completed(&mut self, index: usize, completion: Completion) {
        let connection = &mut self.connections[index];
        match connection.completed(completion.id, completion.buffer) {
            Some((About::Buffers, Some(buffer))) => {
                if let Some(carriers) = &mut connection.carriers {
                    carriers.receiver.was_read();
                }
                self.take_arrived(index, Place::of(buffer), completion.bytes);
            }
            Some((about, buffer)) => self.sent(about, buffer),
            None => self.fail_connection(index, CompletionStatus::Failed),
        }
    }

    fn take_receive(&mut self, index: usize, completion: Completion) {
        let connection = &mut self.connections[index];
        if let (true, 0, Some(credit)) =
            (completion.written, completion.bytes, completion.immediate)
        {
            connection.post_receive(completion.buffer);
            if connection.take_credit(credit) {
                self.schedule_peers();
            }
            return;
        }
        let Some(carriers) = &mut connection.carriers else {
            return;
        };
        let bytes = completion.bytes;
        match carriers.receiver.received(completion) {
            Ok(Some(place)) => self.take_arrived(index, place, bytes),
            Ok(None) => connection.post_receive(None),
            Err(reason) => self.refuse(index, reason),
        }
    }

    /// Takes what memory of a connection says: messages that have come, and those that the peer has read.
    fn take_written(&mut self, index: usize) {
        while let Some(carriers) = &mut self.connections[index].carriers
            && let Some(number) = carriers.source.take()
        {
            match self.connections[index].was_read(number) {
                Some(about) => self.sent(about, None),
                None => self.refuse(index, "it has read a message that it was not told of"),
            }
        }
        while let Some(carriers) = &mut self.connections[index].carriers
            && let Some(arrived) = carriers.receiver.poll(true)
        {
            match arrived {
                Ok((place, bytes)) => self.take_arrived(index, place, bytes),
                Err(reason) => self.refuse(index, reason),
            }
        }
    }

    /// Takes a message of so many bytes in registered memory.
    fn take_arrived(&mut self, index: usize, place: Place, bytes: usize) {
        match place.header(bytes) {
            Ok(Ok(header)) => match header.body {
                Body::Data(data) => self.take_rows(index, &header, data, place),
                _ => {
                    self.connections[index].free(place);
                    self.take_control(index, &header);
                }
            },
            Ok(Err(error)) => self.refuse(index, &error.to_string()),
            Err(status) => self.fail_connection(index, status),
        }
    }

    fn take_rows(&mut self, index: usize, header: &Header, data: Data, place: Place) {
        let group = (header.exchange, header.source, header.group);
        let connection = &mut self.connections[index];
        let Some(members) = connection.groups.get(&group).cloned() else {
            // Its links have been left, which the source has not heard of yet.
            connection.free(place);
            return;
        };
        let head = MessageHead {
            partition: header.partition,
            group: header.group,
            sequence: header.sequence,
            data,
        };
        let arrival = Arc::new(Arrival::new(index, members, head, place));
        connection.hold(&arrival);
        arrival.push();
    }

    fn take_control(&mut self, index: usize, header: &Header) {
        let source = SourceKey {
            exchange: header.exchange,
            source: header.source,
        };
        // A control message is about a link: of the receiver's, or a destination of the source.
        let about = header.partition;
        match header.body {
            Body::Member => self.join_group(index, header),
            Body::EndOfStream(end) => self.tell(index, about, News::End(end)),
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

    fn refuse(&mut self, index: usize, reason: &str) {
        let status = self.connections[index].refused(reason);
        self.fail_connection(index, status);
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

    /// A message was sent, or read: its memory is free again, when no other connection needs it.
    fn sent(&mut self, about: About, buffer: Option<Buffer>) {
        match about {
            About::Control | About::Part | About::Buffers => {}
            About::Data(data) => {
                self.handed_over(data.source, &data.destinations);
                // The connection's own part of a shared message went with its completion.
                let whole = data.memory.whole(buffer);
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
            let lost = matches!(data.memory, Memory::Posted);
            let whole = data.memory.whole(None);
            if lost || whole.is_some() {
                self.message_back(data.query, whole);
            }
        }
    }

    /// A message of a query is free, or lost for the pool.
    pub(super) fn message_back(&mut self, query: u64, buffer: Option<Buffer>) {
        let waiting = self.pool.give_back(query, buffer);
        self.wakers.extend(waiting);
    }
}
