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
pub(crate) struct Sequences {
    /// Every message below this one has arrived.
    next: u64,
    /// From `next` on: whether it has arrived. It ends with one that has.
    arrived: VecDeque<bool>,
    /// Messages that are known to have been sent.
    sent: u64,
    /// Messages below this one have been known of for long enough to be late.
    late: u64,
    /// Messages below this one become late at this time.
    late_next: (u64, Duration),
    /// Messages below this one have been asked for, and when to ask for them again.
    asked: u64,
    ask_again_at: Duration,
    /// The source was last told that messages below this one have arrived.
    pub(crate) acknowledged: u64,
}

/// What a message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Fresh,
    /// It had arrived before.
    Duplicate,
    /// The source cannot have sent it yet.
    Impossible,
}

impl Sequences {
    /// Every message below this one has arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// A message has arrived. A source has at most `window` that are not acknowledged.
    pub(crate) fn arrive(&mut self, sequence: u64, window: usize) -> Arrival {
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
    pub(crate) fn told(&mut self, sent: u64, window: usize) {
        let most = self.next.saturating_add(window as u64);
        self.sent = self.sent.max(sent.min(most));
        self.late = self.late.max(self.sent);
    }

    /// Whether messages are missing.
    pub(crate) fn misses(&self) -> bool {
        self.next < self.sent
    }

    /// What to ask for now, in several messages if need be: what is late and has not been asked
    /// for, and after `interval` all that is late. The latter only when everything that had arrived
    /// was taken: it may be waiting there.
    pub(crate) fn ask(
        &mut self,
        now: Duration,
        interval: Duration,
        all_taken: bool,
    ) -> Vec<Missing> {
        if !self.misses() {
            return Vec::new();
        }
        let (below, since) = self.late_next;
        if now.saturating_sub(since) >= LATE {
            self.late = self.late.max(below);
            self.late_next = (self.sent, now);
        }
        let late = self.late.max(self.sent.saturating_sub(LATER_MESSAGES));
        let again = all_taken && now >= self.ask_again_at;
        let from = match self.next < self.asked && !again {
            true => self.asked,
            false => self.next,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const INTERVAL: Duration = Duration::from_millis(20);
    const WINDOW: usize = 100;

    fn asked(sequences: &mut Sequences, now: Duration) -> Vec<u64> {
        let asked = sequences.ask(now, INTERVAL, true);
        asked.into_iter().flat_map(Missing::sequences).collect()
    }

    #[test]
    fn what_was_overtaken_is_not_asked_for() {
        let mut sequences = Sequences::default();
        let now = Duration::from_secs(1);
        for sequence in 1..LATER_MESSAGES {
            assert_eq!(sequences.arrive(sequence, WINDOW), Arrival::Fresh);
            assert!(asked(&mut sequences, now).is_empty());
        }
        assert!(sequences.misses());
        sequences.arrive(0, WINDOW);
        assert!(!sequences.misses());
        assert!(asked(&mut sequences, now + INTERVAL).is_empty());
        assert_eq!(sequences.next(), LATER_MESSAGES);
    }

    #[test]
    fn what_is_late_is_asked_for_once_per_interval() {
        let mut sequences = Sequences::default();
        let start = Duration::from_secs(1);
        for sequence in [1, 2, 4] {
            sequences.arrive(sequence, WINDOW);
        }
        assert!(asked(&mut sequences, start).is_empty());
        assert_eq!(asked(&mut sequences, start + LATE), [0, 3]);
        assert!(asked(&mut sequences, start + LATE).is_empty());
        // Messages that are missing since have a time of their own.
        sequences.arrive(6, WINDOW);
        sequences.arrive(0, WINDOW);
        assert!(asked(&mut sequences, start + 2 * LATE).is_empty());
        assert_eq!(asked(&mut sequences, start + 3 * LATE), [5]);
        let again = start + LATE + INTERVAL;
        assert!(sequences.ask(again, INTERVAL, false).is_empty());
        assert_eq!(asked(&mut sequences, again), [3, 5]);
        assert!(asked(&mut sequences, again).is_empty());
    }

    #[test]
    fn many_later_messages_make_one_late_at_once() {
        let mut sequences = Sequences::default();
        for sequence in 1..=LATER_MESSAGES {
            sequences.arrive(sequence, WINDOW);
        }
        assert_eq!(asked(&mut sequences, Duration::ZERO), [0]);
    }

    #[test]
    fn what_the_source_tells_of_is_asked_for() {
        let mut sequences = Sequences::default();
        sequences.arrive(0, WINDOW);
        sequences.told(4, WINDOW);
        assert_eq!(asked(&mut sequences, Duration::ZERO), [1, 2, 3]);
        // It tells of nothing new, and of what cannot be.
        sequences.told(2, WINDOW);
        sequences.told(u64::MAX, WINDOW);
        let all: Vec<u64> = (1..=WINDOW as u64).collect();
        assert_eq!(asked(&mut sequences, INTERVAL), all);
        assert_eq!(sequences.ask(2 * INTERVAL, INTERVAL, true).len(), 2);
    }

    proptest! {
        /// Whatever arrives, and however often: it knows exactly what has.
        #[test]
        fn it_knows_what_has_arrived(steps in prop::collection::vec((0u64..160, 0u64..50), 0..400)) {
            let mut sequences = Sequences::default();
            let mut arrived = BTreeSet::new();
            let mut now = Duration::ZERO;
            for (step, millis) in steps {
                // Mostly near, now and then anywhere.
                let sequence = match step {
                    0..150 => sequences.next() + step % 20,
                    150..158 => step * 3,
                    _ => u64::MAX - step,
                };
                let next = sequences.next();
                let expected = if arrived.contains(&sequence) {
                    Arrival::Duplicate
                } else if sequence >= next + WINDOW as u64 {
                    Arrival::Impossible
                } else {
                    arrived.insert(sequence);
                    Arrival::Fresh
                };
                prop_assert_eq!(sequences.arrive(sequence, WINDOW), expected);
                let next = (0..).find(|sequence| !arrived.contains(sequence)).unwrap();
                prop_assert_eq!(sequences.next(), next);
                let sent = arrived.last().map_or(0, |last| last + 1);
                prop_assert_eq!(sequences.misses(), next < sent);
                now += Duration::from_millis(millis / 10);
                for sequence in asked(&mut sequences, now) {
                    prop_assert!(sequence < sent && !arrived.contains(&sequence));
                }
            }
            // Nothing that is missing is forgotten.
            asked(&mut sequences, now + LATE);
            let all = asked(&mut sequences, now + LATE + INTERVAL);
            let sent = arrived.last().map_or(0, |last| last + 1);
            let missing: Vec<u64> = (0..sent).filter(|sequence| !arrived.contains(sequence)).collect();
            prop_assert_eq!(all, missing);
        }
    }
}
