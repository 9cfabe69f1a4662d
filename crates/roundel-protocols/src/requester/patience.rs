//! How long to wait for an answer before its request is taken for lost. Where many calls wait in queues, answers take
//! as long as those queues do: to ask again sooner would only make them longer.

use std::time::Duration;

/// Learns from answers how long they take (as RFC 6298 has it for segments).
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    least: Duration,
    /// Of the time that answers take: its average over the last ones, and how far they are from it.
    smoothed: Duration,
    deviation: Duration,
    /// How often the wait was doubled since.
    doubled: u32,
}

/// It is doubled at most so often.
const DOUBLED_MAX: u32 = 5;

/// The last answer's part of both averages, as a power of 2.
const SMOOTHED_SHIFT: u32 = 3;
const DEVIATION_SHIFT: u32 = 2;

impl Patience {
    /// Waits at least so long.
    pub(super) fn new(least: Duration) -> Self {
        Self {
            least,
            smoothed: Duration::ZERO,
            deviation: Duration::ZERO,
            doubled: 0,
        }
    }

    /// An answer took so long, which is how long others may take. That of a request that was sent again tells nothing: it may be to either.
    pub(super) fn answered(&mut self, after: Duration) {
        let off = self.smoothed.abs_diff(after);
        let part = |of: Duration, shift: u32| of / (1 << shift);
        self.deviation =
            self.deviation - part(self.deviation, DEVIATION_SHIFT) + part(off, DEVIATION_SHIFT);
        self.smoothed =
            self.smoothed - part(self.smoothed, SMOOTHED_SHIFT) + part(after, SMOOTHED_SHIFT);
        self.doubled = 0;
    }

    /// A request was sent again for the so-manieth time. Those that are new wait as long as it does, until one of them is
    /// answered: where all are sent again, nothing else tells how long answers take.
    pub(super) fn sent_again(&mut self, times: u32) {
        self.doubled = self.doubled.max(times).min(DOUBLED_MAX);
    }

    /// How long to wait for the answer to a request that was sent again so many times. Twice the average: while a queue
    /// builds up, those behind wait longer than those that were answered.
    pub(super) fn wait(&self, again: u32) -> Duration {
        let once = self.least.max(2 * self.smoothed + 4 * self.deviation);
        once * (1 << again.max(self.doubled).min(DOUBLED_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(20);

    #[test]
    fn short_answers_do_not_shorten_it() {
        let mut patience = Patience::new(LEAST);
        (0..100).for_each(|_| patience.answered(Duration::from_micros(5)));
        assert_eq!(patience.wait(0), LEAST);
    }

    #[test]
    fn it_grows_with_a_queue_and_shrinks_with_it() {
        let mut patience = Patience::new(LEAST);
        for after in 1..=100 {
            patience.answered(Duration::from_millis(after));
        }
        let long = patience.wait(0);
        assert!((180..300).contains(&long.as_millis()), "{long:?}");
        (0..100).for_each(|_| patience.answered(Duration::from_millis(1)));
        assert_eq!(patience.wait(0), LEAST);
    }

    #[test]
    fn new_requests_wait_as_long_as_those_that_were_sent_again() {
        let mut patience = Patience::new(LEAST);
        patience.sent_again(1);
        assert_eq!((patience.wait(0), patience.wait(2)), (2 * LEAST, 4 * LEAST));
        (0..100).for_each(|times| patience.sent_again(times));
        assert_eq!(patience.wait(0), (1 << DOUBLED_MAX) * LEAST);
        patience.answered(LEAST / 4);
        assert_eq!(patience.wait(0), LEAST);
    }
}
