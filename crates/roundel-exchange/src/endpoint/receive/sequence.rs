//! Which messages of a source's group have arrived, and which of the missing ones to ask for. It
//! knows numbers and times; what a message is and how one asks are others' business.

use crate::wire::Missing;
use std::collections::VecDeque;
use std::time::Duration;

/// A message counts as late when so many that were sent after it have arrived. Networks overtake
/// within a few microseconds.
const LATER_MESSAGES: u64 = 32;
/// It does so too when it is known to have been sent for so long.
const LATE: Duration = Duration::from_millis(1);

/// The messages of one group of one source.
#[derive(Default)]
pub(super) struct Sequences {
    /// Every message below this one has arrived.
    next: u64,
    /// From `next` on: whether it has arrived. It ends with one that has.
    arrived: VecDeque<bool>,
    /// Messages that are known to have been sent.
    sent: u64,
    /// Messages below this one have been known of for long enough to be late.
    late: u64,
    /// Those below this one are, when the time comes.
    late_next: (u64, Duration),
    /// Messages below this one have been asked for, and when to ask for them again.
    asked: u64,
    ask_again_at: Duration,
    /// What the source was last told has arrived.
    pub(super) acknowledged: u64,
}

/// What a message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Fresh,
    /// It had arrived before.
    Duplicate,
    /// The source cannot have sent it yet.
    Impossible,
}

impl Sequences {
    /// Every message below this one has arrived.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// A message has arrived. A source has at most `window` that are not acknowledged.
    pub(super) fn arrive(&mut self, sequence: u64, window: usize) -> Arrival {
        let Some(ahead) = sequence.checked_sub(self.next) else {
            return Arrival::Duplicate;
        };
        let Some(ahead) = usize::try_from(ahead).ok().filter(|ahead| *ahead < window) else {
            return Arrival::Impossible;
        };
        self.sent = self.sent.max(sequence + 1);
        if ahead == 0 && self.arrived.is_empty() {
            self.next += 1;
            return Arrival::Fresh;
        }
        if ahead >= self.arrived.len() {
            self.arrived.resize(ahead + 1, false);
        }
        if std::mem::replace(&mut self.arrived[ahead], true) {
            return Arrival::Duplicate;
        }
        while self.arrived.front() == Some(&true) {
            self.arrived.pop_front();
            self.next += 1;
        }
        Arrival::Fresh
    }

    /// The source says how many it has sent, after a silence: those that have not arrived are late.
    /// More than a window cannot be on their way.
    pub(super) fn told(&mut self, sent: u64, window: usize) {
        let most = self.next.saturating_add(window as u64);
        self.sent = self.sent.max(sent.min(most));
        self.late = self.late.max(self.sent);
    }

    /// Whether messages are missing.
    pub(super) fn misses(&self) -> bool {
        self.next < self.sent
    }

    /// What to ask for now, in several messages if need be: what is late and has not been asked
    /// for, and after `interval` all that is late.
    pub(super) fn ask(&mut self, now: Duration, interval: Duration) -> Vec<Missing> {
        if !self.misses() {
            return Vec::new();
        }
        let (below, since) = self.late_next;
        if now.saturating_sub(since) >= LATE {
            self.late = self.late.max(below);
            self.late_next = (self.sent, now);
        }
        let late = self.late.max(self.sent.saturating_sub(LATER_MESSAGES));
        let from = if self.next < self.asked && now < self.ask_again_at {
            self.asked
        } else {
            self.next
        };
        let missing = self.missing(from, late);
        if !missing.is_empty() {
            if from == self.next {
                self.ask_again_at = now.saturating_add(interval);
            }
            self.asked = self.asked.max(late);
        }
        missing
    }

    /// The missing ones of a range, from its start.
    fn missing(&self, from: u64, below: u64) -> Vec<Missing> {
        let mut missing: Vec<Missing> = Vec::new();
        for sequence in from..below.max(from) {
            let ahead = (sequence - self.next) as usize;
            if self.arrived.get(ahead) == Some(&true) {
                continue;
            }
            match missing.last_mut() {
                Some(last) if sequence - last.first < Missing::SPAN => {
                    last.bitmap |= 1 << (sequence - last.first);
                }
                _ => missing.push(Missing {
                    first: sequence,
                    bitmap: 1,
                }),
            }
        }
        missing
    }
}
