//! How well rows leave a node, measured over so many bytes at a time while rows wait. Knows nothing of schedules.
//!
//! Bytes per second are not all: where some peers get next to nothing while others are served, what is to be sent to all
//! is done when the last of them has it. So what counts is the rate times how even it is: the harmonic mean of what
//! the peers got, by their mean.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Windows that are looked at together: how even it is takes some to be seen.
const TOGETHER: usize = 3;
/// Rows wait for all peers when they do for so many of a hundred, on average.
const CROWDED_PERCENT: usize = 90;

/// What is measured.
pub(super) struct Window {
    /// Bytes of a window.
    bytes: usize,
    /// What a peer has got at least, for it would not be even at all otherwise.
    least: usize,
    /// Since when; absent while nothing waits.
    began: Option<Duration>,
    /// Since then, by peer.
    served: BTreeMap<usize, usize>,
    /// How often it was looked, and peers for which enough waited then.
    looks: usize,
    full: usize,
    /// The last windows, with how long they took.
    last: VecDeque<(Duration, BTreeMap<usize, usize>)>,
    /// The first one ends what was begun another way.
    first: bool,
}

/// What a window has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    /// In bytes per second, at least 1.
    pub(super) rate: u64,
    /// Rows waited for all peers.
    pub(super) crowded: bool,
}

impl Window {
    pub(super) fn new(bytes: usize, least: usize) -> Self {
        Self {
            bytes,
            least: least.max(1),
            began: None,
            served: BTreeMap::new(),
            looks: 0,
            full: 0,
            last: VecDeque::new(),
            first: true,
        }
    }

    /// So many bytes were posted to a peer.
    pub(super) fn count(&mut self, peer: usize, bytes: usize) {
        *self.served.entry(peer).or_default() += bytes;
    }

    /// Nothing waits: how long what comes next takes is another matter.
    pub(super) fn idle(&mut self) {
        self.began = None;
    }

    /// Rows leave another way from now on.
    pub(super) fn restart(&mut self) {
        self.began = None;
        self.last.clear();
        self.first = true;
    }

    /// Rows wait for some of the peers, and enough for `full` of `all`. What the window has shown when it is at its end.
    pub(super) fn look(&mut self, now: Duration, (full, all): (usize, usize)) -> Option<Measured> {
        let Some(began) = self.began else {
            self.began = Some(now);
            self.served.clear();
            (self.looks, self.full) = (0, 0);
            return None;
        };
        self.looks += 1;
        self.full += full;
        let took = now.saturating_sub(began);
        if self.served.values().sum::<usize>() < self.bytes || took.is_zero() {
            return None;
        }
        let crowded = 100 * self.full >= CROWDED_PERCENT * self.looks * all;
        self.began = Some(now);
        (self.looks, self.full) = (0, 0);
        let served = std::mem::take(&mut self.served);
        if std::mem::take(&mut self.first) {
            return Some(Measured {
                rate: rate(&[(took, served)], self.least),
                crowded,
            });
        }
        self.last.push_back((took, served));
        if self.last.len() > TOGETHER {
            self.last.pop_front();
        }
        let last = self.last.make_contiguous();
        Some(Measured {
            rate: rate(last, self.least),
            crowded,
        })
    }
}

/// Of some windows. A peer to which nothing was sent is not counted: there may have been nothing for it.
fn rate(windows: &[(Duration, BTreeMap<usize, usize>)], least: usize) -> u64 {
    let took: Duration = windows.iter().map(|(took, _)| *took).sum();
    let mut served: BTreeMap<usize, usize> = BTreeMap::new();
    for (peer, bytes) in windows.iter().flat_map(|(_, served)| served) {
        *served.entry(*peer).or_default() += bytes;
    }
    let got = || served.values().map(|bytes| (*bytes).max(least) as f64);
    let peers = served.len() as f64;
    let harmonic = peers / got().map(|bytes| 1.0 / bytes).sum::<f64>();
    let rate = peers * harmonic / took.as_secs_f64();
    (rate as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: (usize, usize) = (2, 2);

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// What so many windows of a microsecond show, in which two peers get so much.
    fn measured(got: [usize; 2], windows: u64) -> Option<Measured> {
        let mut window = Window::new(1000, 10);
        window.look(micros(0), ALL);
        let mut last = None;
        for number in 1..=windows {
            window.count(1, got[0]);
            window.count(2, got[1]);
            last = window.look(micros(number), ALL);
        }
        last
    }

    #[test]
    fn what_is_even_counts_in_full() {
        for windows in 1..6 {
            let rate = measured([500, 500], windows).unwrap().rate;
            assert!((999_999_000..=1_000_001_000).contains(&rate), "{rate}");
            let rate = measured([900, 100], windows).unwrap().rate;
            assert!((359_000_000..361_000_000).contains(&rate), "{rate}");
        }
        assert_eq!(measured([500, 499], 1), None, "not at its end");
    }

    #[test]
    fn the_first_window_is_left_behind() {
        let mut window = Window::new(1000, 10);
        window.look(micros(0), ALL);
        window.count(1, 5000);
        assert!(window.look(micros(1), ALL).unwrap().rate > 4_000_000_000);
        window.count(1, 1000);
        assert_eq!(window.look(micros(2), ALL).unwrap().rate, 1_000_000_000);
        window.restart();
        assert_eq!(window.look(micros(3), ALL), None);
    }

    #[test]
    fn it_is_crowded_while_rows_wait_for_nearly_all() {
        let crowded = |full: usize| {
            let mut window = Window::new(1000, 10);
            window.look(micros(0), (0, 100));
            for _ in 0..9 {
                window.look(micros(1), (full, 100));
            }
            window.count(1, 1000);
            window.look(micros(1), (full, 100)).unwrap().crowded
        };
        assert!(crowded(100));
        assert!(crowded(90));
        assert!(!crowded(89));
    }

    #[test]
    fn time_in_which_nothing_waits_does_not_count() {
        let mut window = Window::new(2000, 10);
        window.look(micros(0), ALL);
        window.count(1, 1999);
        window.idle();
        window.look(micros(1_000_000), ALL);
        window.count(1, 1999);
        assert_eq!(window.look(micros(2_000_000), ALL), None);
        window.count(1, 1);
        let rate = window.look(micros(2_000_000), ALL).unwrap().rate;
        assert_eq!(rate, 2000);
    }
}
