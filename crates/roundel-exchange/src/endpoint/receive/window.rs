//! The window of a link: how many receives it has, and the credit that its source hears of.

use super::super::ring::empty_write;
use super::link::{Carrier, Connection, Link, Way};
use super::{Message, ReceiveEndpoint};
use crate::error::Result;
use crate::report::CREDITS_PER_SAMPLE;
use crate::wire::{Body, Credit};
use roundel_verbs::ReceiveRequest;
use roundel_verbs::capabilities::GRH_BYTES;

/// A new link takes such a part of the spare memory.
const LINKS_AHEAD: usize = 32;

impl Link {
    /// Gives back what is never wanted, as one of its circulations says of its buffers.
    fn retire(&mut self, unwanted: impl Fn(&mut Self, usize) -> usize) {
        let buffers = self.buffers - self.retiring;
        self.retiring += unwanted(self, buffers);
    }
}

impl ReceiveEndpoint {
    /// Buffers that a new link is to have: others shall find as many.
    pub(super) fn window_start(&self) -> usize {
        let share = self.fabric.spare_bytes() / LINKS_AHEAD / self.options.message_bytes;
        self.options.window_start().min(share)
    }

    /// Takes note of what the reader found: for each link that had any, how many of `found`, or that
    /// there was nothing at all.
    pub(super) fn note_look(&mut self, found: &[Message]) {
        for message in found {
            self.links[message.link.0].found += 1;
        }
        for message in found {
            let link = &mut self.links[message.link.0];
            let ready = std::mem::take(&mut link.found);
            if ready > 0 && self.options.window.retires {
                link.arriving.look(ready, ready);
                let least = self.options.window.least;
                link.retire(|link, buffers| link.arriving.surplus(buffers, least));
            }
        }
        let window = &self.options.window;
        if found.is_empty() && window.least < window.most {
            for link in self.links.iter_mut().filter(|link| link.is_open()) {
                link.idle = true;
                link.arriving.look(0, 0);
            }
        }
    }

    /// Takes note of how many buffers the source of a message had left when it sent it: of those that it
    /// may write to or that it had credit for, or, where messages are read into buffers, of those here.
    pub(super) fn note_unused(&mut self, index: usize, credit_seen: u32) {
        let link = &mut self.links[index];
        let unused = match link.connection() {
            Some(Connection {
                way: Way::Read(reads),
                ..
            }) if !reads.at_once() => reads.free(),
            _ => credit_seen.wrapping_sub(link.heard) as usize,
        };
        if self.options.window.retires {
            // A message to several tells no credit.
            let known = unused <= link.buffers;
            link.unused.look(if known { unused } else { 0 }, 1);
            let least = self.options.window.least;
            link.retire(|link, buffers| link.unused.excess(buffers, least));
        }
    }

    /// Whether a buffer in hand is to be given back; it is then none of the link's any more.
    pub(super) fn retires_buffer(&mut self, index: usize) -> bool {
        let link = &mut self.links[index];
        if link.retiring == 0 || link.buffers <= self.options.window.least {
            return false;
        }
        link.retiring -= 1;
        link.buffers -= 1;
        if self.datagrams.is_some() {
            self.datagram_receives -= 1;
        }
        if self.has_buffers(index) {
            self.report.registered_bytes -= self.options.message_bytes;
        }
        true
    }

    /// Whether a link has registered buffers here.
    fn has_buffers(&mut self, index: usize) -> bool {
        let connection = self.links[index].connection();
        connection.is_none_or(|connection| connection.way.has_buffers())
    }

    /// Doubles the window of a link whose source ran out of credit while there was nothing to do
    /// here.
    pub(super) fn grow(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.starved = false;
        link.idle = false;
        link.retiring = 0;
        if link.end.is_none() {
            let window = (2 * link.buffers).min(self.options.window_max());
            self.widen(index, window);
        }
    }

    /// Posts receives up to a window, as far as there is memory to spare.
    pub(super) fn widen(&mut self, index: usize, window: usize) {
        let link = &mut self.links[index];
        let mut wanted = window.saturating_sub(link.buffers);
        if self.datagrams.is_some() {
            // Half of the queue's places are for new links. A receive that was taken and not
            // posted again has its place reserved.
            wanted =
                wanted.min((self.options.datagrams_max / 2).saturating_sub(self.datagram_receives));
        }
        if wanted == 0 {
            return;
        }
        if let Carrier::Connected(Connection { way, .. })
        | Carrier::Offered(Some(Connection { way, .. })) = &mut link.carrier
        {
            let added = match way {
                Way::Send => None,
                Way::Write(written) => Some(written.widen(&self.fabric, wanted)),
                Way::Read(reads) => Some(reads.widen(&self.fabric, wanted)),
            };
            if let Some(added) = added {
                link.buffers += added;
                if way.has_buffers() {
                    self.report.registered_bytes += added * self.options.message_bytes;
                }
                self.pump_rings(index);
                return;
            }
        }
        let bytes = match self.datagrams {
            Some(_) => GRH_BYTES + self.options.message_bytes,
            None => self.options.message_bytes,
        };
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
        let posted = match (&link.carrier, &self.datagrams) {
            (Carrier::Connected(connection) | Carrier::Offered(Some(connection)), _) => {
                connection.queue_pair.post_receive(&mut receives)
            }
            (_, Some(datagrams)) => datagrams.post_receive(&mut receives),
            _ => return,
        };
        let posted = posted.unwrap_or(0);
        if self.datagrams.is_some() {
            self.datagram_receives += posted;
        }
        link.buffers += posted;
        link.credit = link.credit.wrapping_add(posted as u32);
        link.unsaid += posted as u32;
        self.report.registered_bytes += posted * self.options.message_bytes;
    }

    /// Counts the receives posted again for a link, and writes credit back when enough have been.
    pub(super) fn count_receives(&mut self, index: usize, posted: u32) {
        let frequency = self.options.credit_every(self.links[index].buffers);
        let link = &mut self.links[index];
        link.credit = link.credit.wrapping_add(posted);
        link.unsaid += posted;
        // After the end nobody needs credit.
        if link.unsaid >= frequency && link.end.is_none() {
            let group = link.least_acknowledged();
            let sampled = (link.credit / frequency).is_multiple_of(CREDITS_PER_SAMPLE);
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
        link.unsaid = 0;
        let credit = link.credit;
        match &link.carrier {
            Carrier::Connected(Connection {
                queue_pair, way, ..
            }) => {
                if way.counts_on_receives() {
                    // A full queue has newer credit to say than the sender has taken: it can wait.
                    let mut requests = vec![empty_write(index as u64, Some(credit))];
                    queue_pair.post_send(&mut requests)?;
                }
                Ok(())
            }
            Carrier::Datagram(_) => {
                let acknowledged = link.acknowledge(group);
                let body = Body::Credit(Credit {
                    credit,
                    acknowledged,
                });
                self.say(index, group, flags, body)
            }
            Carrier::Offered(_) | Carrier::Closed => Ok(()),
        }
    }
}
