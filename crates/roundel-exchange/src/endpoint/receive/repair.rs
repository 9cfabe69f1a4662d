//! Over datagrams: a receiver that misses messages asks for exactly those again.

use super::ReceiveEndpoint;
use super::link::Stage;
use crate::error::Result;
use crate::link::sequence::Arrival;
use crate::wire::{Body, FLAG_REPEATED, Header, Sent};

/// Groups whose messages a receiver acknowledges at a time when it has heard nothing for a while.
const ACKNOWLEDGEMENTS: usize = 4;

impl ReceiveEndpoint {
    /// Whether a data message has not arrived before. One that cannot be fails its link.
    pub(super) fn is_fresh(&mut self, index: usize, header: &Header) -> bool {
        let window = self.options.unarrived_max();
        let link = &mut self.links[index];
        let sequences = link.groups.of(header.group);
        let arrival = sequences.arrive(header.sequence, window);
        self.any_misses |= sequences.misses();
        match arrival {
            Arrival::Fresh => {}
            Arrival::Duplicate => self.report.duplicates += 1,
            Arrival::Impossible => link.fail(link.broke_protocol(format!(
                "message {} of group {} long before its turn",
                header.sequence, header.group
            ))),
        }
        arrival == Arrival::Fresh
    }

    /// The source has answered how much it has sent.
    pub(super) fn take_sent(&mut self, index: usize, group: u16, sent: Sent) {
        let link = &mut self.links[index];
        link.sent = link.sent.max(sent.on_link);
        if self.options.repairs() {
            let sequences = link.groups.of(group);
            sequences.told(sent.to_group, self.options.unarrived_max());
            self.any_misses |= sequences.misses();
        }
    }

    /// Asks for the messages that are late; `all_taken` says whether everything that had arrived was
    /// taken.
    pub(super) fn ask_for_missing(&mut self, all_taken: bool) {
        if !std::mem::take(&mut self.any_misses) {
            return;
        }
        let now = self.fabric.context.now();
        let interval = self.options.repeat_interval;
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            if !link.is_open() || !matches!(link.stage, Stage::Datagram(_)) {
                continue;
            }
            let asks = link.groups.ask(now, interval, all_taken);
            self.any_misses |= link.groups.misses();
            for (group, missing) in asks {
                self.report.repair_asks += 1;
                // Failing to ask is no failure: it asks again.
                let _ = self.say(index, group, 0, Body::Missing(missing));
            }
        }
    }

    /// When a link is silent: says what has arrived of its groups, of some of them at a time.
    pub(super) fn repeat_credit(&mut self, index: usize) -> Result<()> {
        let count = self.links[index].groups.count().clamp(1, ACKNOWLEDGEMENTS);
        for _ in 0..count {
            let group = self.links[index].groups.next_group();
            self.say_credit(index, group, FLAG_REPEATED)?;
        }
        Ok(())
    }
}
