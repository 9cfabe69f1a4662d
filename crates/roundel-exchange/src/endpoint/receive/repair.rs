//! Over datagrams: a receiver that misses messages asks for exactly those again.

use super::ReceiveEndpoint;
use super::link::{Carrier, Link};
use super::sequence::Arrival;
use crate::error::Result;
use crate::wire::{Body, FLAG_REPEATED, Header, Sent};

/// Groups whose messages a receiver acknowledges at a time when it has heard nothing for a while.
const ACKNOWLEDGEMENTS: usize = 4;

impl ReceiveEndpoint {
    /// Whether a data message has not arrived before. One that cannot be fails its link.
    pub(super) fn is_fresh(&mut self, index: usize, header: &Header) -> bool {
        let window = self.options.unarrived_max();
        let link = &mut self.links[index];
        let sequences = link.groups.entry(header.group).or_default();
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
            let sequences = link.groups.entry(group).or_default();
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
            if !link.is_open() || !matches!(link.carrier, Carrier::Datagram(_)) {
                continue;
            }
            let mut asks = Vec::new();
            for (group, sequences) in &mut link.groups {
                let missing = sequences.ask(now, interval, all_taken).into_iter();
                asks.extend(missing.map(|missing| (*group, missing)));
                self.any_misses |= sequences.misses();
            }
            for (group, missing) in asks {
                self.report.repair_asks += 1;
                // Failing to ask is no failure: it asks again.
                let _ = self.say(index, group, 0, Body::Missing(missing));
            }
        }
    }

    /// When a link is silent: says what has arrived of its groups, of some of them at a time.
    pub(super) fn repeat_credit(&mut self, index: usize) -> Result<()> {
        let count = self.links[index].groups.len().clamp(1, ACKNOWLEDGEMENTS);
        for _ in 0..count {
            let group = self.links[index].next_group();
            self.say_credit(index, group, FLAG_REPEATED)?;
        }
        Ok(())
    }
}

impl Link {
    /// Every message of a group below this one has arrived, as the source is told now.
    pub(super) fn acknowledge(&mut self, group: u16) -> u64 {
        let Some(sequences) = self.groups.get_mut(&group) else {
            return 0;
        };
        sequences.acknowledged = sequences.next();
        sequences.acknowledged
    }

    /// The group of which most has arrived that its source has not been told.
    pub(super) fn least_acknowledged(&self) -> u16 {
        let untold = self.groups.iter();
        let untold = untold.max_by_key(|(_, group)| group.next() - group.acknowledged);
        untold.map_or(0, |(group, _)| *group)
    }

    /// The groups in turn.
    fn next_group(&mut self) -> u16 {
        let after = self.groups.range(self.group_in_turn.saturating_add(1)..);
        let next = after.map(|(group, _)| *group).next();
        let next = next.or_else(|| self.groups.keys().next().copied());
        self.group_in_turn = next.unwrap_or(0);
        self.group_in_turn
    }
}
