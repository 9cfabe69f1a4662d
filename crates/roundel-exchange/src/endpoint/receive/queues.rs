//! What a RECEIVE endpoint does where messages are written or read: it looks at the queues and buffers
//! that sources write to, tells sources what is free again, and rings and asks for the bell.

use super::link::{Connection, Stage};
use super::{Message, ReceiveEndpoint};
use crate::designs::carrier::Place;
use crate::link::queue_pair::{bell, post};
use roundel_verbs::{Completion, CompletionStatus};

/// Marks requests that name buffers or read messages.
const ABOUT_BUFFERS: u64 = 1 << 63;

impl Connection {
    /// Wakes the source, if it has asked to be when there is more for it.
    pub(super) fn ring_bell(&mut self, id: u64) {
        if self.carrier.bell().is_some_and(|mut bell| bell.must_ring()) {
            post(&self.queue_pair, bell(id));
        }
    }

    /// Asks the source to wake this end when there is more.
    fn ask_for_bell(&mut self, id: u64) {
        if let Some(request) = self.carrier.bell().and_then(|mut bell| bell.ask(id)) {
            post(&self.queue_pair, request);
        }
    }
}

impl ReceiveEndpoint {
    /// Takes what has arrived where sources write to; returns whether there was anything.
    pub(super) fn poll_queues(&mut self, messages: &mut Vec<Message>, limit: usize) -> bool {
        if !self.options.has_queues() {
            return false;
        }
        let mut any = false;
        for index in 0..self.links.len() {
            any |= self.pump_queues(index);
            for _ in 0..limit {
                let link = &mut self.links[index];
                let open = link.is_open();
                let connection = link.connection();
                let polled = connection.and_then(|connection| connection.carrier.poll(open));
                let Some(message) = polled else {
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
        let Stage::Connected(connection) = &mut link.stage else {
            return false;
        };
        let id = index as u64 | ABOUT_BUFFERS;
        let mut refused = None;
        let mut requests = std::mem::take(&mut connection.unposted);
        let room = (connection.in_flight_max - connection.in_flight).saturating_sub(requests.len());
        let most = requests.len() + room;
        while requests.len() < most
            && let Some(next) = connection.carrier.next_request(id, window, open)
        {
            match next {
                Ok(request) => requests.push(request),
                Err(reason) => {
                    refused = Some(reason);
                    break;
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
        if let Some(connection) = link.connection() {
            connection.carrier.was_read();
        }
        if let Some(buffer) = completion.buffer {
            self.take_arrived(index, Place::of(buffer), completion.bytes, messages);
        }
        self.pump_queues(index);
    }

    /// Tells a source that a message was read where it was.
    pub(super) fn tell_read(&mut self, index: usize, number: u64) {
        if let Some(connection) = self.links[index].connection() {
            connection.carrier.consumed(number);
            self.pump_queues(index);
        }
    }

    /// Asks all sources to wake this end when they have more: it is about to sleep.
    pub(super) fn ask_for_bells(&mut self) {
        if !self.options.has_queues() {
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
        if self.options.has_queues() {
            for index in 0..self.links.len() {
                self.pump_queues(index);
            }
        }
    }
}
