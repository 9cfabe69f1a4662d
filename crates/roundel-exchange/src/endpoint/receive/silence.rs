//! Over datagrams: what a receiver says, and what it does when it hears nothing.

use super::super::LinkState;
use super::link::Stage;
use super::{LinkId, ReceiveEndpoint};
use crate::designs::carrier::inline;
use crate::designs::send_ud;
use crate::error::Result;
use crate::link::queue_pair::{empty_write, post};
use crate::wire::{Body, Header};
use std::time::Duration;

/// Intervals between acknowledgements of an end, at most.
const RAREST: u32 = 16;

impl ReceiveEndpoint {
    /// When nothing was heard for a while. Over datagrams: asks the senders, and gives up on
    /// messages that are missing for too long. Over connections: probes whether they live. Call it
    /// when everything that had arrived was taken and a wait has lasted
    /// [`repeat_interval`](crate::ExchangeOptions::repeat_interval).
    pub fn on_silence(&mut self) {
        if self.datagrams.is_none() {
            self.probe_connections();
            return;
        }
        let now = self.fabric.context.now();
        let interval = self.options.repeat_interval;
        let repairs = self.options.repairs();
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let silent = link.silence.lasts(now);
            if !link.is_open() || !matches!(link.stage, Stage::Datagram(_)) || silent < interval {
                continue;
            }
            let short = link.is_short();
            if !short {
                link.silence.asks = 0;
            }
            // Readers and sources may have been silent for long before anything was missing.
            let waited = match repairs {
                true => interval.saturating_mul(link.silence.asks),
                false => silent,
            };
            if short && waited >= self.options.missing_deadline {
                link.fail(link.missing(silent, self.options.on_loss));
            } else if (repairs || link.end.is_none()) && link.silence.asks_again(now, interval) {
                // Its credit may be lost, or its end, or data and with it the credit it used up.
                if let Err(error) = self.repeat_credit(index) {
                    self.links[index].fail(error);
                }
            }
        }
        self.ask_for_missing(true);
    }

    fn probe_connections(&mut self) {
        let now = self.fabric.context.now();
        for (index, link) in self.links.iter_mut().enumerate() {
            if let (Stage::Connected(connection), true) = (&link.stage, link.is_open())
                && link.silence.probes(now)
            {
                post(&connection.queue_pair, empty_write(index as u64, None));
            }
        }
    }

    /// Gives a link up one of whose messages is missing while very many later ones have come.
    pub fn give_up(&mut self, link: LinkId) {
        let link = &mut self.links[link.0];
        link.fail(link.missing(Duration::ZERO, self.options.on_loss));
    }

    /// Whether messages of this endpoint can be lost.
    pub fn may_lose(&self) -> bool {
        self.datagrams.is_some()
    }

    /// Whether a sender may still have to be told that all has arrived: its link was complete less
    /// than `linger` ago and is not closed.
    pub fn owes_acknowledgement(&self, linger: Duration) -> bool {
        let now = self.fabric.context.now();
        self.links.iter().any(|link| {
            matches!(link.state, LinkState::Complete)
                && matches!(link.stage, Stage::Datagram(_))
                && link.acknowledgement.age(now) < linger
        })
    }

    /// Does what no reader does, and has to be done now and then: acknowledges ends again, and wakes
    /// sources that went to sleep as they were told something.
    pub fn attend(&mut self) {
        self.repeat_acknowledgements();
        self.ring_bells();
    }

    /// Acknowledges the ends of complete links again, more and more rarely at first: an
    /// acknowledgement may be lost, and a sender without credit cannot ask for another.
    fn repeat_acknowledgements(&mut self) {
        let now = self.fabric.context.now();
        let rarest = self.options.repeat_interval.saturating_mul(RAREST);
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            if matches!(link.state, LinkState::Complete)
                && matches!(link.stage, Stage::Datagram(_))
                && link.acknowledgement.repeats(now, rarest)
            {
                let messages = link.arrived.count;
                self.acknowledge(index, messages);
            }
        }
    }

    /// Acknowledges an end-of-stream that told of so many messages.
    pub(super) fn acknowledge(&mut self, index: usize, messages: u64) {
        // Failing to say so is no failure: the sender repeats its end.
        let _ = self.say(index, 0, 0, Body::Acknowledge(messages));
    }

    pub(super) fn say(&self, index: usize, group: u16, flags: u8, body: Body) -> Result<()> {
        let link = &self.links[index];
        let (Some(datagrams), Stage::Datagram(handle)) = (&self.datagrams, &link.stage) else {
            return Ok(());
        };
        let header = Header {
            flags,
            group,
            ..Header::of(link.exchange, link.source, link.destination, body)
        };
        let mut requests = vec![send_ud::datagram(index as u64, inline(&header), handle)];
        // Control over datagrams may be lost, here as on the way.
        datagrams.post_send(&mut requests)?;
        Ok(())
    }
}
