//! The window of a link at its receiver: how many messages there is room for. It doubles while the source runs out of
//! room and the receiver has nothing to do. Beyond a budget it does so only where the receiver had been away. Buffers that are never
//! wanted are given back. This knows numbers, and not where buffers are.

use crate::buffers::{Circulation, Rule, Window};

pub(crate) struct ReceiveWindow {
    /// The buffers of the link.
    buffers: usize,
    /// The source ran out of room since the link last grew, and the receiver had nothing to do.
    starved: bool,
    idle: bool,
    /// The receiver had not looked for long when the source had run out.
    away: bool,
    /// Messages that the receiver finds at its looks, and buffers that the source finds free when it sends.
    arriving: Circulation,
    unused: Circulation,
    /// Messages of the look that is being noted, and buffers that are to be given back.
    found: usize,
    retiring: usize,
}

impl ReceiveWindow {
    pub(crate) fn new(buffers: usize) -> Self {
        Self {
            buffers,
            starved: false,
            idle: false,
            away: false,
            arriving: Circulation::new(),
            unused: Circulation::new(),
            found: 0,
            retiring: 0,
        }
    }

    pub(crate) fn buffers(&self) -> usize {
        self.buffers
    }

    /// It has got more buffers.
    pub(crate) fn add(&mut self, buffers: usize) {
        self.buffers += buffers;
    }

    /// A look found a message.
    pub(crate) fn find(&mut self) {
        self.found += 1;
    }

    /// The look is over.
    pub(crate) fn end_look(&mut self, window: &Window) {
        let ready = std::mem::take(&mut self.found);
        if ready == 0 {
            return;
        }
        let kept = self.buffers - self.retiring;
        self.retiring += match window.rule {
            Rule::Fixed => 0,
            Rule::Calm => {
                self.arriving.look(ready, ready);
                self.arriving.surplus(kept, window.least)
            }
            Rule::Paper => (ready - 1).min(kept.saturating_sub(window.least)),
        };
    }

    /// A look found nothing anywhere.
    pub(crate) fn note_idle(&mut self) {
        self.idle = true;
        self.arriving.look(0, 0);
    }

    /// The source had so many buffers left when it sent a message.
    pub(crate) fn note_unused(&mut self, unused: usize, window: &Window) {
        if window.rule == Rule::Calm {
            // A message to several tells no credit.
            let known = unused <= self.buffers;
            self.unused.look(if known { unused } else { 0 }, 1);
            let kept = self.buffers - self.retiring;
            self.retiring += self.unused.excess(kept, window.least);
        }
    }

    /// Whether a buffer in hand is to be given back; it is then none of the link's any more.
    pub(crate) fn retires(&mut self, window: &Window) -> bool {
        if self.retiring == 0 || self.buffers <= window.least {
            return false;
        }
        self.retiring -= 1;
        self.buffers -= 1;
        true
    }

    /// The source has no room left. `away` says that the receiver had not looked for long.
    pub(crate) fn starve(&mut self, away: bool) {
        self.starved = true;
        self.away |= away;
    }

    /// How many buffers it should have now, if more: at most `budget` more than it has, unless the receiver was away, and at
    /// most `most`.
    pub(crate) fn grows(&mut self, budget: usize, most: usize) -> Option<usize> {
        if !self.starved || !self.idle {
            return None;
        }
        let budget = match std::mem::take(&mut self.away) {
            true => most,
            false => budget,
        };
        self.starved = false;
        self.idle = false;
        let within = self.buffers.saturating_add(budget).min(most);
        let grown = (2 * self.buffers).min(within);
        if grown <= self.buffers {
            return None;
        }
        self.retiring = 0;
        Some(grown)
    }
}
