//! The window of a link at its receiver: how many messages there is room for. It doubles while the source runs out of
//! room and the receiver has nothing to do; buffers that are never wanted are given back. It knows numbers, and not
//! where buffers are.

use crate::buffers::{Circulation, Window};

pub(crate) struct ReceiveWindow {
    /// The buffers of the link.
    buffers: usize,
    /// The source ran out of room since the link last grew, and the receiver had nothing to do.
    starved: bool,
    idle: bool,
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
        if ready > 0 && window.retires {
            self.arriving.look(ready, ready);
            let kept = self.buffers - self.retiring;
            self.retiring += self.arriving.surplus(kept, window.least);
        }
    }

    /// A look found nothing anywhere.
    pub(crate) fn note_idle(&mut self) {
        self.idle = true;
        self.arriving.look(0, 0);
    }

    /// The source had so many buffers left when it sent a message.
    pub(crate) fn note_unused(&mut self, unused: usize, window: &Window) {
        if window.retires {
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

    /// The source has no room left.
    pub(crate) fn starve(&mut self) {
        self.starved = true;
    }

    /// How many buffers it should have now, if more: at most so many.
    pub(crate) fn grows(&mut self, most: usize) -> Option<usize> {
        if !self.starved || !self.idle {
            return None;
        }
        self.starved = false;
        self.idle = false;
        self.retiring = 0;
        Some((2 * self.buffers).min(most))
    }
}
