//! What a connection posts, in which order and how much at a time: credit, control, rows, READs, the bell. And what of it
//! is on its way.

use super::super::outgoing::{About, Outgoing};
use super::super::way::Way;
use super::{CONTROL_SENDS, CREDITS_PER_WINDOW, Connection};
use crate::designs::carrier::inline;
use crate::link::queue_pair::empty_write;
use roundel_verbs::{Buffer, CompletionStatus, Payload, SendOperation, SendRequest};

/// Rows leave one part in so many of the credit to control messages.
const CONTROL_SHARE: usize = 4;

impl Connection {
    /// Posts what can be posted, of rows what begins within so many bytes; returns how many bytes of rows.
    pub(in crate::multiplexer) fn post(&mut self, rows: usize) -> Result<usize, CompletionStatus> {
        if !self.open {
            return Ok(0);
        }
        let mut posted_rows = 0;
        let mut requests = Vec::new();
        // Rounded up: there are spare receives for so many words and no more.
        let window = self.options.receives.div_ceil(CREDITS_PER_WINDOW);
        if self.grant.unsaid() as usize >= window && self.control_in_flight < CONTROL_SENDS {
            self.say_credit(&mut requests);
        }
        while self.credit.left() > 0
            && self.control_in_flight + 1 < CONTROL_SENDS
            && let Some(header) = self.queues.pop_control()
        {
            self.put(inline(&header), About::Control, &mut requests)?;
        }
        let for_control = (self.options.receives / CONTROL_SHARE) as u32;
        while posted_rows < rows
            && self.credit.left() > for_control
            && self.messages_in_flight < self.options.posted
            && self.control_in_flight + 1 < CONTROL_SENDS
            && let Some(message) = self.queues.pop()
        {
            self.messages_in_flight += 1;
            posted_rows += message.bytes();
            let Outgoing { payload, about } = message;
            self.put(payload, about, &mut requests)?;
        }
        if let Way::Read(reads) = &mut self.way {
            while let Some(read) = reads.next_read(self.next) {
                self.in_flight.push_back((self.next, About::Reading));
                self.next += 1;
                requests.push(read);
            }
        }
        // Behind what the peer is woken for.
        if let Way::Write(slots) = &mut self.way
            && self.control_in_flight < CONTROL_SENDS
            && slots.must_ring()
        {
            self.say_credit(&mut requests);
        }
        self.post_all(requests)?;
        Ok(posted_rows)
    }

    fn post_all(&self, mut requests: Vec<SendRequest>) -> Result<(), CompletionStatus> {
        let count = requests.len();
        match &self.queue_pair {
            Some(queue_pair) if count > 0 => match queue_pair.post_send(&mut requests) {
                Ok(posted) if posted == count => Ok(()),
                _ => Err(CompletionStatus::LocalOperation),
            },
            _ => Ok(()),
        }
    }

    /// A word about credit, which is also the bell.
    fn say_credit(&mut self, requests: &mut Vec<SendRequest>) {
        let mut word = empty_write(0, Some(self.grant.say()));
        word.id = self.note(About::Control);
        requests.push(word);
    }

    /// A message for which there is credit.
    fn put(
        &mut self,
        payload: Payload,
        about: About,
        requests: &mut Vec<SendRequest>,
    ) -> Result<(), CompletionStatus> {
        self.credit.spend();
        let about = match (&mut self.way, about) {
            (Way::Read(reads), About::Data(rows)) => {
                reads.lie(rows);
                About::Control
            }
            (_, about) => about,
        };
        let first = self.next;
        if self.options.design.requests_each() > 1 {
            self.note(About::Part);
        }
        let id = self.note(about);
        match &mut self.way {
            Way::Write(slots) => {
                let written = slots.write(payload, [first, id]);
                requests.extend(written.map_err(|_| CompletionStatus::LocalLength)?);
            }
            Way::Send | Way::Read(_) => requests.push(SendRequest {
                id,
                operation: SendOperation::Send,
                payload,
                destination: None,
            }),
        }
        Ok(())
    }

    /// Asks the peer, if it writes where nobody is woken, to wake this node when there is more.
    pub(in crate::multiplexer) fn ask_for_bell(&mut self) -> Result<(), CompletionStatus> {
        if !self.open || self.control_in_flight >= CONTROL_SENDS {
            return Ok(());
        }
        let Way::Write(slots) = &mut self.way else {
            return Ok(());
        };
        match slots.ask_for_bell(self.next) {
            Some(request) => {
                self.note(About::Control);
                self.post_all(vec![request])
            }
            None => Ok(()),
        }
    }

    /// Takes note of a request that is about to be posted; returns its number.
    fn note(&mut self, about: About) -> u64 {
        let number = self.next;
        self.next += 1;
        self.control_in_flight += usize::from(matches!(about, About::Control));
        self.in_flight.push_back((number, about));
        number
    }

    /// What the request was about that has completed, and the memory of its message.
    pub(in crate::multiplexer) fn completed(
        &mut self,
        number: u64,
        buffer: Option<Buffer>,
    ) -> Option<(About, Option<Buffer>)> {
        // Those of a connection complete in the order in which they were posted.
        let (first, _) = self.in_flight.front()?;
        if *first != number {
            return None;
        }
        let (_, about) = self.in_flight.pop_front()?;
        let buffer = match &about {
            About::Part => {
                self.part = buffer;
                None
            }
            About::Control => {
                self.control_in_flight -= 1;
                None
            }
            About::Reading => buffer,
            About::Data(_) | About::End(..) => {
                self.messages_in_flight -= 1;
                buffer.or_else(|| self.part.take())
            }
        };
        Some((about, buffer))
    }

    /// So many messages that lay here are on their way no more: the peer has read them.
    pub(in crate::multiplexer) fn were_read(&mut self, count: usize) {
        self.messages_in_flight -= count;
    }

    /// Probes a peer that has been silent since this was last called with an empty WRITE, if nothing is on its way
    /// that would fail by itself: devices notice that a peer is gone when they send to it.
    pub(in crate::multiplexer) fn probe(&mut self) -> Result<(), CompletionStatus> {
        let heard = std::mem::take(&mut self.heard);
        if heard || !self.open || !self.in_flight.is_empty() {
            return Ok(());
        }
        let mut probe = empty_write(0, None);
        probe.id = self.note(About::Control);
        self.post_all(vec![probe])
    }
}
