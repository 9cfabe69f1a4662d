//! What a RECEIVE endpoint does where messages are written or read: it looks at the queues and buffers
//! that sources write to, tells sources what is free again, and rings and asks for the bell.

use super::link::{Carrier, Connection, Way};
use super::{Message, Place, ReceiveEndpoint};
use crate::design::Verb;
use crate::error::{ExchangeError, Result};
use crate::link::queue::{Queue, QueueAddress, RemoteQueue, empty_write, post};
use roundel_verbs::{Completion, CompletionStatus};

/// Marks requests that name buffers or read messages.
const ABOUT_BUFFERS: u64 = 1 << 63;

impl Connection {
    /// The queue that the source writes to.
    pub(super) fn queue(&self) -> Option<QueueAddress> {
        match &self.way {
            Way::Send => None,
            Way::Write(written) => written.valid.as_ref().map(Queue::address),
            Way::Read(reads) => Some(reads.valid.address()),
        }
    }

    /// Bytes of registered memory of that queue.
    pub(super) fn queue_bytes(&self) -> usize {
        match &self.way {
            Way::Send => 0,
            Way::Write(written) => written.valid.as_ref().map_or(0, Queue::bytes),
            Way::Read(reads) => reads.valid.bytes(),
        }
    }

    /// The source has answered, with a queue of its own.
    pub(super) fn begin(&mut self, answered: Option<QueueAddress>, peer: &str) -> Result<()> {
        let free = match &mut self.way {
            Way::Send => return Ok(()),
            Way::Write(written) => &mut written.free,
            Way::Read(reads) => &mut reads.free,
        };
        let Some(address) = answered.filter(|queue| queue.entries > 0) else {
            return Err(ExchangeError::Protocol {
                peer: peer.into(),
                reason: "it answers without a queue for free buffers".into(),
            });
        };
        *free = Some(RemoteQueue::new(address, peer)?);
        Ok(())
    }

    /// The queue at this end, the one at the source's, messages taken here, and what the source was
    /// told.
    fn bell(&mut self) -> Option<(&Queue, &mut RemoteQueue, u64, u64)> {
        let (own, free, taken) = match &mut self.way {
            Way::Send => return None,
            Way::Write(written) => {
                let taken = written.taken();
                (written.valid.as_ref()?, written.free.as_mut()?, taken)
            }
            Way::Read(reads) => {
                let taken = reads.valid.taken();
                (&reads.valid, reads.free.as_mut()?, taken)
            }
        };
        let told = free.count();
        Some((own, free, taken, told))
    }

    /// Wakes the source, if it has asked to be when there is more for it.
    fn ring_bell(&mut self, id: u64) {
        let must_ring = self
            .bell()
            .is_some_and(|(own, free, _, told)| free.must_ring(own, told));
        if must_ring {
            post(&self.queue_pair, empty_write(id, Some(0)));
        }
    }

    /// Asks the source to wake this end when there is more.
    fn ask_for_bell(&mut self, id: u64) {
        let request = self
            .bell()
            .and_then(|(_, free, taken, _)| free.ask_for_bell(id, taken));
        if let Some(request) = request {
            post(&self.queue_pair, request);
        }
    }
}

impl Way {
    /// Whether a message uses up a receive, for which its source needs credit.
    pub(super) fn counts_on_receives(&self) -> bool {
        match self {
            Self::Send => true,
            Self::Write(written) => written.counts_on_receives(),
            Self::Read(_) => false,
        }
    }

    /// Whether messages come into registered buffers of this end's.
    pub(super) fn has_buffers(&self) -> bool {
        !matches!(self, Self::Read(reads) if reads.at_once())
    }
}

impl ReceiveEndpoint {
    /// Takes what has arrived where sources write to; returns whether there was anything.
    pub(super) fn poll_queues(&mut self, messages: &mut Vec<Message>, limit: usize) -> bool {
        if self.options.design.verb() == Verb::Send {
            return false;
        }
        let mut any = false;
        for index in 0..self.links.len() {
            any |= self.pump_queues(index);
            for _ in 0..limit {
                let link = &mut self.links[index];
                let open = link.is_open();
                let Some(Connection {
                    queue_pair, way, ..
                }) = link.connection()
                else {
                    break;
                };
                let message = match way {
                    Way::Write(written) => written.poll(),
                    Way::Read(reads) if open && reads.at_once() => reads.look(queue_pair),
                    _ => None,
                };
                let Some(message) = message else {
                    break;
                };
                any = true;
                match message {
                    Ok((place, bytes)) => self.take_arrived(index, place, bytes, messages),
                    Err(reason) => {
                        let link = &mut self.links[index];
                        link.fail(link.broke_protocol(reason));
                        break;
                    }
                }
            }
        }
        any
    }

    /// Posts what a link has to say and to read, as far as there is room; returns whether it posted
    /// anything.
    pub(super) fn pump_queues(&mut self, index: usize) -> bool {
        let link = &mut self.links[index];
        let open = link.is_open();
        let window = link.window.buffers();
        let Carrier::Connected(connection) = &mut link.carrier else {
            return false;
        };
        let id = index as u64 | ABOUT_BUFFERS;
        let mut refused = None;
        let mut requests = std::mem::take(&mut connection.unposted);
        let room = (connection.in_flight_max - connection.in_flight).saturating_sub(requests.len());
        let most = requests.len() + room;
        match &mut connection.way {
            Way::Send => return false,
            Way::Write(written) => {
                requests.extend(std::iter::from_fn(|| written.tell(id)).take(room));
            }
            Way::Read(reads) => {
                requests.extend(std::iter::from_fn(|| reads.tell(id, window)).take(room));
                while open && requests.len() < most {
                    match reads.next_read(id) {
                        Some(Ok(request)) => requests.push(request),
                        Some(Err(reason)) => {
                            refused = Some(reason);
                            break;
                        }
                        None => break,
                    }
                }
            }
        }
        let posted = match requests.is_empty() {
            true => 0,
            // A queue pair that refuses is broken, which its completions say.
            false => connection.queue_pair.post_send(&mut requests).unwrap_or(0),
        };
        // A full queue takes them when some of those before them have completed.
        connection.unposted = requests;
        connection.in_flight += posted;
        connection.ring_bell(index as u64);
        if let Some(reason) = refused {
            link.fail(link.broke_protocol(reason));
        }
        posted > 0
    }

    /// A request has completed.
    pub(super) fn count_completed(&mut self, completion: &Completion) {
        if completion.id & ABOUT_BUFFERS != 0
            && let Some(&index) = self.by_queue_pair.get(&completion.queue_pair)
            && let Some(connection) = self.links[index].connection()
        {
            connection.in_flight = connection.in_flight.saturating_sub(1);
        }
    }

    /// A READ has ended.
    pub(super) fn take_read(&mut self, completion: Completion, messages: &mut Vec<Message>) {
        self.count_completed(&completion);
        let Some(&index) = self.by_queue_pair.get(&completion.queue_pair) else {
            return;
        };
        let link = &mut self.links[index];
        if completion.status != CompletionStatus::Success {
            link.broken.get_or_insert(completion.status);
            return;
        }
        if let Some(Connection {
            way: Way::Read(reads),
            ..
        }) = link.connection()
        {
            reads.was_read();
        }
        if let Some(buffer) = completion.buffer {
            let place = Place::Here {
                buffer,
                at: 0,
                slot: 0,
            };
            self.take_arrived(index, place, completion.bytes, messages);
        }
        self.pump_queues(index);
    }

    /// Tells a source that a message was read where it was.
    pub(super) fn tell_read(&mut self, index: usize, number: u64) {
        if let Some(Connection {
            way: Way::Read(reads),
            ..
        }) = self.links[index].connection()
        {
            reads.untold.push_back(number);
            self.pump_queues(index);
        }
    }

    /// Asks all sources to wake this end when they have more: it is about to sleep.
    pub(super) fn ask_for_bells(&mut self) {
        if self.options.design.verb() == Verb::Send {
            return;
        }
        for (index, link) in self.links.iter_mut().enumerate() {
            if link.is_open()
                && let Some(connection) = link.connection()
            {
                connection.ask_for_bell(index as u64);
            }
        }
    }

    /// Rings the bells that sources have asked for since this end last told them something.
    pub(super) fn ring_bells(&mut self) {
        if self.options.design.verb() != Verb::Send {
            for index in 0..self.links.len() {
                self.pump_queues(index);
            }
        }
    }
}
