//! The window of a link: how many receives it has, and the credit that its source hears of.

use super::link::Stage;
use super::{Message, ReceiveEndpoint};
use crate::buffers::Rule;
use crate::error::Result;
use crate::link::queue_pair::empty_write;
use crate::report::CREDITS_PER_SAMPLE;
use crate::wire::{Body, Credit};
use roundel_verbs::ReceiveRequest;

/// A new link takes such a part of the spare memory.
const LINKS_AHEAD: usize = 32;
/// A new link over datagrams takes such a part of what the budget of its endpoint has left.
const DATAGRAM_LINKS_AHEAD: usize = 8;

impl ReceiveEndpoint {
    /// Buffers that a new link is to have: others shall find as many.
    pub(super) fn window_start(&self) -> usize {
        let share = self.fabric.spare_bytes() / LINKS_AHEAD / self.options.message_bytes;
        let budget = self.budget_left() / DATAGRAM_LINKS_AHEAD;
        self.options.window_start().min(share).min(budget)
    }

    /// Buffers that links may take before they need more than others leave.
    fn budget_left(&self) -> usize {
        let budget = self.options.endpoint_budget();
        budget.saturating_sub(self.datagram_receives)
    }

    /// Takes note of what the reader found: for each link that had any, how many of `found`, or that
    /// there was nothing at all.
    pub(super) fn note_look(&mut self, found: &[Message]) {
        for message in found {
            self.links[message.link.0].window.find();
        }
        let window = &self.options.window;
        for message in found {
            self.links[message.link.0].window.end_look(window);
        }
        match window.rule {
            Rule::Calm if found.is_empty() => {
                for link in self.links.iter_mut().filter(|link| link.is_open()) {
                    link.window.note_idle();
                }
            }
            Rule::Paper if found.is_empty() => self.add_in_turn(),
            _ => {}
        }
    }

    /// One more buffer for one link, each in turn.
    fn add_in_turn(&mut self) {
        self.turn += 1;
        let Some(index) = self.turn.checked_rem(self.links.len()) else {
            return;
        };
        let link = &self.links[index];
        let wider = link.window.buffers() + 1;
        let has_network = !matches!(link.stage, Stage::Closed);
        if has_network && link.is_open() && link.end.is_none() && wider <= self.options.window_max()
        {
            self.widen(index, wider);
        }
    }

    /// Takes note of how many buffers the source of a message had left when it sent it: of those that it
    /// may write to or that it had credit for, or, where messages are read into buffers, of those here.
    pub(super) fn note_unused(&mut self, index: usize, credit_left: usize) {
        let link = &mut self.links[index];
        let connection = link.connection();
        let unused = connection.and_then(|connection| connection.carrier.unused());
        let unused = unused.unwrap_or(credit_left);
        link.window.note_unused(unused, &self.options.window);
    }

    /// Whether a buffer in hand is to be given back; it is then none of the link's any more.
    pub(super) fn retires_buffer(&mut self, index: usize) -> bool {
        if !self.links[index].window.retires(&self.options.window) {
            return false;
        }
        if self.datagrams.is_some() {
            self.datagram_receives -= 1;
        }
        if self.has_buffers(index) {
            self.report.give_back(1, self.receive_bytes());
        }
        true
    }

    /// Whether a link has registered buffers here.
    fn has_buffers(&mut self, index: usize) -> bool {
        let connection = self.links[index].connection();
        connection.is_none_or(|connection| connection.carrier.has_buffers())
    }

    /// Doubles the window of a link whose source ran out of credit while there was nothing to do
    /// here.
    pub(super) fn grow(&mut self, index: usize) {
        if self.options.window.rule != Rule::Calm {
            return;
        }
        let most = self.options.window_max();
        let budget = self.budget_left();
        let link = &mut self.links[index];
        if let Some(window) = link.window.grows(budget, most)
            && link.end.is_none()
        {
            self.widen(index, window);
        }
    }

    /// Posts receives up to a window, as far as there is memory to spare.
    pub(super) fn widen(&mut self, index: usize, window: usize) {
        let bytes = self.receive_bytes();
        let link = &mut self.links[index];
        let mut wanted = window.saturating_sub(link.window.buffers());
        if self.datagrams.is_some() {
            // Half of the queue's places are for new links. A receive that was taken and not
            // posted again has its place reserved.
            wanted =
                wanted.min((self.options.datagrams_max / 2).saturating_sub(self.datagram_receives));
        }
        if wanted == 0 {
            return;
        }
        if let Stage::Connected(connection) | Stage::Offered(Some(connection)) = &mut link.stage {
            let carrier = &mut connection.carrier;
            if let Some(added) = carrier.widen(&self.fabric, wanted) {
                link.window.add(added);
                if carrier.has_buffers() {
                    self.report.hold(added, self.options.message_bytes);
                }
                self.pump_queues(index);
                return;
            }
        }
        let mut receives = Vec::with_capacity(wanted);
        for _ in 0..wanted {
            let Some(buffer) = self.fabric.spare_buffer(bytes, false) else {
                break;
            };
            receives.push(ReceiveRequest {
                id: index as u64,
                buffer: Some(buffer),
            });
        }
        // A queue pair that has no room for all leaves the rest, and they go back to the arena.
        let posted = match (&link.stage, &self.datagrams) {
            (Stage::Connected(connection) | Stage::Offered(Some(connection)), _) => {
                connection.queue_pair.post_receive(&mut receives)
            }
            (_, Some(datagrams)) => datagrams.post_receive(&mut receives),
            _ => return,
        };
        let posted = posted.unwrap_or(0);
        if self.datagrams.is_some() {
            self.datagram_receives += posted;
        }
        link.window.add(posted);
        link.grant.add(posted as u32);
        self.report.hold(posted, bytes);
    }

    /// Counts the receives posted again for a link, and writes credit back when enough have been.
    pub(super) fn count_receives(&mut self, index: usize, posted: u32) {
        let frequency = self
            .options
            .credit_every(self.links[index].window.buffers());
        let link = &mut self.links[index];
        link.grant.add(posted);
        // After the end nobody needs credit.
        if link.grant.unsaid() >= frequency && link.end.is_none() {
            let group = link.groups.least_acknowledged();
            let sampled = (link.grant.granted() / frequency).is_multiple_of(CREDITS_PER_SAMPLE);
            let since = sampled.then(|| self.fabric.context.now());
            if let Err(error) = self.say_credit(index, group, 0) {
                self.links[index].fail(error);
            }
            if let Some(since) = since {
                let now = self.fabric.context.now();
                self.report.crediting += CREDITS_PER_SAMPLE * now.saturating_sub(since);
            }
        }
    }

    /// Says the credit of a link and, where lost messages are repaired, what has arrived of a
    /// group.
    pub(super) fn say_credit(&mut self, index: usize, group: u16, flags: u8) -> Result<()> {
        let link = &mut self.links[index];
        let credit = link.grant.say();
        match &mut link.stage {
            Stage::Connected(connection) => {
                if connection.carrier.counts_on_receives() {
                    let id = index as u64;
                    let in_memory = connection.carrier.tell_credit(id, credit);
                    let request = in_memory.unwrap_or_else(|| empty_write(id, Some(credit)));
                    // A full queue has newer credit to say than the sender has taken: it can wait.
                    connection.queue_pair.post_send(&mut vec![request])?;
                    connection.ring_bell(id);
                    self.report.credit_messages += 1;
                }
                Ok(())
            }
            Stage::Datagram(_) => {
                let acknowledged = link.groups.acknowledge(group);
                let body = Body::Credit(Credit {
                    credit,
                    acknowledged,
                });
                self.report.credit_messages += 1;
                self.say(index, group, flags, body)
            }
            Stage::Offered(_) | Stage::Closed => Ok(()),
        }
    }
}
