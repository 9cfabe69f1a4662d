//! What the completion queue brings: messages for the operators, credit for the sources, and memory that is free
//! again.

use super::State;
use super::arrivals::{Arrival, MessageHead};
use super::news::News;
use super::outgoing::{About, Memory, SourceKey, word};
use super::reads::Reads;
use super::way::{Place, Way};
use crate::link::header::header_at;
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
            Some((About::Reading, Some(buffer))) => self.take_read(index, buffer, completion.bytes),
            Some((about, buffer)) => self.sent(about, buffer),
            None => self.fail_connection(index, CompletionStatus::Failed),
        }
    }

    fn take_receive(&mut self, index: usize, completion: Completion) {
        let connection = &mut self.connections[index];
        if completion.written {
            connection.post_receive(completion.buffer);
            match (completion.immediate, completion.bytes) {
                (Some(credit), 0) => {
                    if connection.take_credit(credit) {
                        self.schedule_peers();
                    }
                }
                (Some(slot), bytes) => match &mut connection.way {
                    Way::Write(slots) => {
                        let place = slots.take(slot);
                        self.take_arrived(index, place.map(|place| (place, bytes)));
                    }
                    Way::Send | Way::Read(_) => {
                        self.refuse(index, "it writes where it should send")
                    }
                },
                (None, _) => self.refuse(index, "it writes without saying where"),
            }
            return;
        }
        match completion.buffer {
            Some(buffer) => self.take_arrived(index, Ok((Place::of(buffer), completion.bytes))),
            None => self.refuse(index, "it sends where it should write"),
        }
    }

    /// Takes what memory of a connection says has come.
    fn take_written(&mut self, index: usize) {
        while let Way::Write(slots) = &mut self.connections[index].way
            && let Some(arrived) = slots.poll()
        {
            self.take_arrived(index, arrived);
        }
    }

    /// Takes a message in registered memory, which ends at so many bytes of its buffer.
    fn take_arrived(&mut self, index: usize, arrived: Result<(Place, usize), &'static str>) {
        let (place, bytes) = match arrived {
            Ok(arrived) => arrived,
            Err(reason) => return self.refuse(index, reason),
        };
        match header_at(&place.buffer, place.at, bytes) {
            Ok(header) => match header.body {
                Body::Data(data) => self.take_rows(index, &header, data, place),
                _ => {
                    self.connections[index].free(place);
                    self.take_control(index, &header);
                }
            },
            Err(error) => self.refuse(index, &error.to_string()),
        }
    }

    /// A message has been read where its sender had it.
    fn take_read(&mut self, index: usize, buffer: Buffer, bytes: usize) {
        let Way::Read(reads) = &mut self.connections[index].way else {
            return;
        };
        let read = reads.was_read();
        self.say(index, word(Body::Read(read)));
        match header_at(&buffer, 0, bytes) {
            Ok(header) => match header.body {
                Body::Data(data) => self.take_rows(index, &header, data, Place::of(buffer)),
                _ => self.refuse(index, "a message to be read that is no rows"),
            },
            Err(error) => self.refuse(index, &error.to_string()),
        }
    }

    fn take_rows(&mut self, index: usize, header: &Header, data: Data, place: Place) {
        let group = (header.exchange, header.source, header.group);
        let connection = &mut self.connections[index];
        let Some(members) = connection.groups.get(&group).cloned() else {
            // Its links have been left, which the source has not heard of yet.
            connection.free_rows(place);
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
            Body::EndOfStream(end) => self.tell(index, about, News::End(end.sent)),
            Body::Abort => self.tell(index, about, News::Lost(CompletionStatus::Flushed)),
            Body::Credit(credit) => self.grant(index, source, about, credit.credit),
            Body::Leave => self.left(index, source, about),
            Body::Phase(_) | Body::Trial(_) => {
                if let Some((peer, answer)) = self.schedule.hear(index, header.body) {
                    self.say_of_schedule(peer, answer);
                }
            }
            Body::Full(full) => self.with_reads(index, |reads| reads.take_full(full)),
            Body::Read(read) => {
                let mut rows = Vec::new();
                self.with_reads(index, |reads| {
                    rows = reads.take_read(read)?;
                    Ok(())
                });
                self.connections[index].were_read(rows.len());
                for rows in rows {
                    self.sent(About::Data(rows), None);
                }
            }
            _ => self.refuse(index, "a message that multiplexers do not send"),
        }
    }

    /// Does something about what is read over a connection, whose peer may have broken the protocol.
    fn with_reads(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Reads) -> Result<(), &'static str>,
    ) {
        let done = match &mut self.connections[index].way {
            Way::Read(reads) => act(reads),
            Way::Send | Way::Write(_) => Err("its rows are not read where they lie"),
        };
        if let Err(reason) = done {
            self.refuse(index, reason);
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

    /// A message was sent, or read: its memory is free again, when no other connection needs it.
    fn sent(&mut self, about: About, buffer: Option<Buffer>) {
        match about {
            About::Control | About::Part | About::Reading => {}
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
