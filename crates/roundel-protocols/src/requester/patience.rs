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
}

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
        }
    }

    /// An answer took so long. That of a request that was sent again tells nothing: it may be to either.
    pub(super) fn answered(&mut self, after: Duration) {
        let off = self.smoothed.abs_diff(after);
        let part = |of: Duration, shift: u32| of / (1 << shift);
        self.deviation =
            self.deviation - part(self.deviation, DEVIATION_SHIFT) + part(off, DEVIATION_SHIFT);
        self.smoothed =
            self.smoothed - part(self.smoothed, SMOOTHED_SHIFT) + part(after, SMOOTHED_SHIFT);
    }

    /// How long to wait. Twice the average: while a queue builds up, those behind wait longer than those that were
    /// answered.
    pub(super) fn wait(&self) -> Duration {
        self.least.max(2 * self.smoothed + 4 * self.deviation)
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
        assert_eq!(patience.wait(), LEAST);
    }

    #[test]
    fn it_grows_with_a_queue_and_shrinks_with_it() {
        let mut patience = Patience::new(LEAST);
        for after in 1..=100 {
            patience.answered(Duration::from_millis(after));
        }
        let long = patience.wait();
        assert!((180..300).contains(&long.as_millis()), "{long:?}");
        (0..100).for_each(|_| patience.answered(Duration::from_millis(1)));
        assert_eq!(patience.wait(), LEAST);
    }
}
