//! Whether a schedule is worth it, found out by trying: how fast rows leave with it, and without. Nodes that send at random
//! seldom collide for long, and phases only cost them time; those that all turn to the same node do, again and again.

use std::time::Duration;

/// A window that is measured has so many phases to each peer.
const ROUNDS: usize = 2;
/// Windows of the way that is not in use, of which the last one counts: the others end what was begun.
const TRIED: u32 = 2;
/// Windows until the other way is tried again.
const KEPT: u32 = 64;
/// How much faster a schedule must be.
const GAIN: f64 = 1.05;

/// Measures both ways in turn.
pub(super) struct Trial {
    /// Whether rows are sent by the schedule now.
    scheduled: bool,
    /// Bytes per second without the schedule and with it, once they were measured.
    rates: [Option<f64>; 2],
    /// It is only tried, or kept, for so many windows.
    trying: bool,
    left: u32,
    window_bytes: usize,
    /// Since when, and how much was sent since: while rows wait.
    began: Option<Duration>,
    bytes: usize,
}

impl Trial {
    /// Begins without a schedule.
    pub(super) fn new() -> Self {
        Self {
            scheduled: false,
            rates: [None; 2],
            trying: false,
            left: 1,
            window_bytes: usize::MAX,
            began: None,
            bytes: 0,
        }
    }

    /// There are so many peers, and a phase has so many bytes.
    pub(super) fn set_phases(&mut self, peers: usize, phase_bytes: usize) {
        self.window_bytes = (ROUNDS * peers * phase_bytes).max(1);
        self.idle();
    }

    /// Whether rows are to be sent by the schedule.
    pub(super) fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    /// So many bytes of rows were posted.
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Nothing waits: how long what comes next takes is another matter.
    pub(super) fn idle(&mut self) {
        self.began = None;
    }

    /// Rows wait for several peers. Goes on to the other way when it is time.
    pub(super) fn look(&mut self, now: Duration) {
        let Some(began) = self.began else {
            self.began = Some(now);
            self.bytes = 0;
            return;
        };
        let took = now.saturating_sub(began);
        if self.bytes < self.window_bytes || took.is_zero() {
            return;
        }
        let rate = self.bytes as f64 / took.as_secs_f64();
        self.rates[usize::from(self.scheduled)] = Some(rate);
        self.began = Some(now);
        self.bytes = 0;
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        if self.trying {
            let [without, with] = self.rates;
            let gains = |(without, with)| with > GAIN * without;
            self.scheduled = without.zip(with).is_some_and(gains);
            self.left = KEPT;
        } else {
            self.scheduled = !self.scheduled;
            self.left = TRIED;
        }
        self.trying = !self.trying;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends at these rates, without a schedule and with it, in bytes per microsecond; the share of time with it.
    fn scheduled(rates: [usize; 2]) -> f64 {
        let mut trial = Trial::new();
        trial.set_phases(3, 1000);
        let steps = 20_000;
        let mut with = 0;
        for step in 0..steps {
            trial.look(Duration::from_micros(step));
            trial.count(rates[usize::from(trial.is_scheduled())]);
            with += u32::from(trial.is_scheduled());
        }
        f64::from(with) / steps as f64
    }

    #[test]
    fn the_faster_way_is_kept_and_the_other_tried_now_and_then() {
        let (slower, faster) = (scheduled([1000, 800]), scheduled([1000, 1600]));
        assert!((0.001..0.06).contains(&slower), "{slower}");
        assert!((0.94..0.999).contains(&faster), "{faster}");
    }

    #[test]
    fn what_makes_no_difference_is_left_away() {
        assert!(scheduled([1000, 1010]) < 0.06);
    }

    #[test]
    fn time_in_which_nothing_waits_does_not_count() {
        let mut trial = Trial::new();
        trial.set_phases(1, 1000);
        trial.look(Duration::ZERO);
        trial.count(1999);
        trial.idle();
        trial.look(Duration::from_secs(1));
        trial.count(1999);
        trial.look(Duration::from_secs(2));
        assert!(!trial.is_scheduled());
        trial.count(1);
        trial.look(Duration::from_secs(2));
        assert!(trial.is_scheduled(), "it is tried");
    }
}
