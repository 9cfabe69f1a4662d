//! What a connection posts, in which order and how much at a time: READs and free buffers, credit, control, rows, the bell.
//! And what of it is on its way.

use super::super::outgoing::{About, Outgoing};
use super::{CONTROL_SENDS, CREDITS_PER_WINDOW, Connection, REQUESTS_PER_BUFFER};
use crate::designs::carrier::{Bell, Filled};
use crate::link::queue_pair::empty_write;
use roundel_verbs::{Buffer, CompletionStatus, SendRequest};

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
        // Before the credit for them.
        self.tell_of_buffers(&mut requests)?;
        // Rounded up: there are spare receives for so many words and no more.
        let window = self.options.receives.div_ceil(CREDITS_PER_WINDOW);
        if self.grant.unsaid() as usize >= window && self.control_in_flight < CONTROL_SENDS {
            self.say_credit(&mut requests);
        }
        while self.left() > 0
            && self.control_in_flight + 1 < CONTROL_SENDS
            && let Some(header) = self.queues.pop_control()
        {
            self.put(Filled::Header(header), About::Control, &mut requests)?;
        }
        let for_control = (self.options.receives / CONTROL_SHARE) as u32;
        while posted_rows < rows
            && self.left() > for_control
            && self.messages_in_flight < self.options.posted
            && self.control_in_flight + 1 < CONTROL_SENDS
            && let Some(message) = self.queues.pop()
        {
            self.messages_in_flight += 1;
            posted_rows += message.bytes();
            let Outgoing { message, about } = message;
            self.put(message, about, &mut requests)?;
        }
        // Behind what the peer is woken for.
        if self.control_in_flight < CONTROL_SENDS {
            let bells = self.bells().into_iter().flatten();
            // One word is the bell of both, and each is asked.
            if bells.fold(false, |rings, mut bell| rings | bell.must_ring()) {
                self.say_credit(&mut requests);
            }
        }
        self.post_all(requests)?;
        Ok(posted_rows)
    }

    /// Messages that the peer has room for now.
    fn left(&self) -> u32 {
        let credit = self.credit.left();
        let carriers = self.carriers.as_ref();
        carriers.map_or(0, |carriers| carriers.source.left(credit))
    }

    /// Tells the peer of the buffers here, and posts READs.
    fn tell_of_buffers(&mut self, requests: &mut Vec<SendRequest>) -> Result<(), CompletionStatus> {
        let window = self.options.receives;
        while self.buffers_in_flight < REQUESTS_PER_BUFFER * window
            && let Some(carriers) = &mut self.carriers
            && let Some(next) = carriers.receiver.next_request(self.next, window, true)
        {
            requests.push(next.map_err(|reason| self.refused(reason))?);
            self.buffers_in_flight += 1;
            self.note(About::Buffers);
        }
        Ok(())
    }

    /// The connection carries something that this version does not understand: nothing on it can be trusted.
    pub(in crate::multiplexer) fn refused(&self, reason: &str) -> CompletionStatus {
        tracing::warn!(peer = self.name, reason, "connection refused");
        CompletionStatus::Failed
    }

    /// By which the peer and this node wake each other.
    fn bells(&mut self) -> [Option<Bell<'_>>; 2] {
        match &mut self.carriers {
            Some(carriers) => [carriers.source.bell(), carriers.receiver.bell()],
            None => [None, None],
        }
    }

    fn post_all(&self, mut requests: Vec<SendRequest>) -> Result<(), CompletionStatus> {
        let count = requests.len();
        match &self.carriers {
            Some(carriers) if count > 0 => match carriers.queue_pair.post_send(&mut requests) {
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
        message: Filled,
        about: About,
        requests: &mut Vec<SendRequest>,
    ) -> Result<(), CompletionStatus> {
        self.credit.spend();
        let first = self.next;
        let (message, about) = match self.options.design.reads() {
            // It is on its way until it has been read.
            true => {
                self.unread.insert(first, about);
                (message.with_number(first), About::Control)
            }
            false => (message, about),
        };
        if self.options.design.requests_each() > 1 {
            self.note(About::Part);
        }
        let id = self.note(about);
        if let Some(carriers) = &mut self.carriers {
            let carried = carriers.source.carry(message, [first, id]);
            requests.extend(carried.map_err(|reason| self.refused(reason))?);
        }
        Ok(())
    }

    /// Asks the peer, where it writes and nobody is woken, to wake this node when there is more.
    pub(in crate::multiplexer) fn ask_for_bells(&mut self) -> Result<(), CompletionStatus> {
        if !self.open {
            return Ok(());
        }
        let mut requests = Vec::new();
        for end in 0..2 {
            let next = self.next;
            if self.control_in_flight < CONTROL_SENDS
                && let Some(bell) = &mut self.bells()[end]
                && let Some(request) = bell.ask(next)
            {
                self.note(About::Control);
                requests.push(request);
            }
        }
        self.post_all(requests)
    }

    /// Takes note of a request that is about to be posted; returns its number.
    fn note(&mut self, about: About) -> u64 {
        let number = self.next;
        self.next += 1;
        self.control_in_flight += usize::from(matches!(about, About::Control));
        self.in_flight.push_back((number, about));
        number
    }

    /// Takes back what a completed request was about, and the memory of its message.
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
            About::Buffers => {
                self.buffers_in_flight -= 1;
                buffer
            }
            About::Data(_) | About::End(..) => {
                self.messages_in_flight -= 1;
                buffer.or_else(|| self.part.take())
            }
        };
        Some((about, buffer))
    }

    /// Takes back what a message was about that the peer has read here, if the peer was told of it.
    pub(in crate::multiplexer) fn was_read(&mut self, number: u64) -> Option<About> {
        let about = self.unread.remove(&number)?;
        let is_message = matches!(about, About::Data(_) | About::End(..));
        self.messages_in_flight -= usize::from(is_message);
        Some(about)
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
