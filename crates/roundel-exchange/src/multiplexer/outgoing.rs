//! What waits for a connection: control messages first, then the queries in turn, a message each.

use crate::designs::carrier::Filled;
use crate::wire::{Body, HEADER_LENGTH, Header};
use roundel_verbs::{Buffer, ExposedBuffer, SharedBuffer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A source among those of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceKey {
    pub(super) exchange: u64,
    pub(super) source: u32,
}

/// A message that waits for its connection, and what it is about.
pub(super) struct Outgoing {
    pub(super) message: Filled,
    pub(super) about: About,
}

/// What a request is about, for when it has completed.
pub(super) enum About {
    /// Short, and needs no second thought.
    Control,
    /// The first request of a message that takes two.
    Part,
    /// A READ, or a buffer that the peer may write to.
    Buffers,
    Data(Rows),
    /// The end of a source's rows for a destination.
    End(SourceKey, usize),
}

/// Rows of a source for some of its destinations.
pub(super) struct Rows {
    /// Whose memory they are in.
    pub(super) query: u64,
    pub(super) source: SourceKey,
    pub(super) destinations: Arc<[usize]>,
    /// Length of the message.
    pub(super) bytes: usize,
    pub(super) memory: Memory,
}

/// The memory of a message.
pub(super) enum Memory {
    /// In its request, whose completion brings it back.
    Posted,
    /// In the requests to several nodes.
    Shared(SharedBuffer),
    /// Where nodes read it.
    Exposed(Arc<ExposedBuffer>),
}

impl Memory {
    /// The whole of it, if it is not needed for another node: of what was posted, what came back.
    pub(super) fn whole(self, posted: Option<Buffer>) -> Option<Buffer> {
        match self {
            Self::Posted => posted,
            Self::Shared(shared) => shared.try_into_owned().ok(),
            Self::Exposed(exposed) => Arc::try_unwrap(exposed).ok().map(ExposedBuffer::reclaim),
        }
    }
}

impl Outgoing {
    /// Bytes of the message.
    pub(super) fn bytes(&self) -> usize {
        match &self.about {
            About::Data(rows) => rows.bytes,
            _ => HEADER_LENGTH,
        }
    }
}

/// The queues of a connection.
#[derive(Default)]
pub(super) struct Queues {
    control: VecDeque<Header>,
    queries: BTreeMap<u64, VecDeque<Outgoing>>,
    /// Queries that have messages, in the order of their turns.
    turns: VecDeque<u64>,
    /// Of these messages.
    count: usize,
    bytes: usize,
}

impl Queues {
    /// A message that overtakes rows. Of the credits of a link the last is said.
    pub(super) fn push_control(&mut self, header: Header) {
        let about = |one: &Header| (one.exchange, one.source, one.partition);
        let same = |waiting: &&mut Header| match (waiting.body, header.body) {
            (Body::Credit(_), Body::Credit(_)) => about(waiting) == about(&header),
            _ => false,
        };
        let before = match header.body {
            Body::Credit(_) => self.control.iter_mut().find(same),
            _ => None,
        };
        match before {
            Some(waiting) => *waiting = header,
            None => self.control.push_back(header),
        }
    }

    /// A message of a query, behind those that it has here already.
    pub(super) fn push(&mut self, query: u64, message: Outgoing) {
        let waiting = self.queries.entry(query).or_default();
        if waiting.is_empty() {
            self.turns.push_back(query);
        }
        self.count += 1;
        self.bytes += message.bytes();
        waiting.push_back(message);
    }

    /// How many messages of a query there are.
    pub(super) fn waiting_of(&self, query: u64) -> usize {
        self.queries.get(&query).map_or(0, VecDeque::len)
    }

    /// How many messages of queries there are, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.count, self.bytes)
    }

    pub(super) fn pop_control(&mut self) -> Option<Header> {
        self.control.pop_front()
    }

    /// The next message, of the query whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        let query = self.turns.pop_front()?;
        let waiting = self.queries.get_mut(&query)?;
        let message = waiting.pop_front();
        if waiting.is_empty() {
            self.queries.remove(&query);
        } else {
            self.turns.push_back(query);
        }
        if let Some(message) = &message {
            self.count -= 1;
            self.bytes -= message.bytes();
        }
        message
    }

    /// Takes everything that is about sources, which will not be sent.
    pub(super) fn take_all(&mut self) -> Vec<About> {
        self.control.clear();
        self.turns.clear();
        (self.count, self.bytes) = (0, 0);
        let queries = std::mem::take(&mut self.queries).into_values();
        queries.flatten().map(|message| message.about).collect()
    }
}

/// A word about a connection and none of its links.
pub(super) fn word(body: Body) -> Header {
    Header::of(0, 0, 0, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Credit;

    fn header(partition: u32, body: Body) -> Header {
        Header {
            flags: 0,
            group: 0,
            exchange: 1,
            source: 2,
            partition,
            sequence: 0,
            credit_seen: 0,
            body,
        }
    }

    fn credit(partition: u32, credit: u32) -> Header {
        let body = Body::Credit(Credit {
            credit,
            acknowledged: 0,
        });
        header(partition, body)
    }

    fn message(destination: usize) -> Outgoing {
        let source = SourceKey {
            exchange: 1,
            source: 2,
        };
        Outgoing {
            message: Filled::Header(word(Body::Leave)),
            about: About::End(source, destination),
        }
    }

    #[test]
    fn queries_take_turns() {
        let mut queues = Queues::default();
        for number in 0..3 {
            queues.push(7, message(number));
        }
        queues.push(8, message(10));
        queues.push(9, message(20));
        let order: Vec<_> = std::iter::from_fn(|| queues.pop())
            .map(|message| match message.about {
                About::End(_, destination) => destination,
                _ => unreachable!("only ends were pushed"),
            })
            .collect();
        assert_eq!(order, [0, 10, 20, 1, 2]);
    }

    #[test]
    fn of_what_is_said_again_the_last_is_said() {
        let mut queues = Queues::default();
        let end = Body::EndOfStream(Default::default());
        for header in [credit(3, 4), header(3, end), credit(4, 1), credit(3, 8)] {
            queues.push_control(header);
        }
        let said: Vec<_> = std::iter::from_fn(|| queues.pop_control()).collect();
        assert_eq!(said, [credit(3, 8), header(3, end), credit(4, 1)]);
    }
}
