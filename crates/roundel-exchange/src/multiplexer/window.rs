//! How well rows leave a node, measured over so many bytes at a time while rows wait. Knows nothing of schedules.
//!
//! Bytes per second are not all. Where some peers get next to nothing while others are served, what is to be sent to
//! all is done only when the last of them has it. So what counts is the rate times how even it is. That is the harmonic
//! mean of what the peers got while there was something for them, divided by the arithmetic mean.

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
    /// What has come of it since.
    now: Counted,
    /// Peers for which enough waited, at all looks.
    full: usize,
    /// The last windows, with how long they took.
    last: VecDeque<(Duration, Counted)>,
    /// The first one ends what was begun another way.
    first: bool,
}

/// What was counted.
#[derive(Default)]
struct Counted {
    /// How often it was looked.
    looks: usize,
    peers: BTreeMap<usize, Served>,
}

/// What one peer got.
#[derive(Clone, Copy, Default)]
struct Served {
    bytes: usize,
    /// How often there was something for it, when it was looked.
    busy: usize,
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
            now: Counted::default(),
            full: 0,
            last: VecDeque::new(),
            first: true,
        }
    }

    /// So many bytes were posted to a peer.
    pub(super) fn count(&mut self, peer: usize, bytes: usize) {
        self.now.peers.entry(peer).or_default().bytes += bytes;
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

    /// There is something for these peers, and enough waits for `full` of `all`. What the window has shown when it is at its
    /// end.
    pub(super) fn look(
        &mut self,
        now: Duration,
        busy: impl Iterator<Item = usize>,
        (full, all): (usize, usize),
    ) -> Option<Measured> {
        let Some(began) = self.began else {
            self.began = Some(now);
            self.now = Counted::default();
            self.full = 0;
            return None;
        };
        self.full += full;
        self.now.looks += 1;
        for peer in busy {
            self.now.peers.entry(peer).or_default().busy += 1;
        }
        let took = now.saturating_sub(began);
        if self.now.bytes() < self.bytes || took.is_zero() {
            return None;
        }
        let crowded = 100 * self.full >= CROWDED_PERCENT * self.now.looks * all;
        self.began = Some(now);
        self.full = 0;
        let window = (took, std::mem::take(&mut self.now));
        if std::mem::take(&mut self.first) {
            return Some(Measured {
                rate: rate(&[window], self.least),
                crowded,
            });
        }
        self.last.push_back(window);
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

impl Counted {
    fn bytes(&self) -> usize {
        self.peers.values().map(|peer| peer.bytes).sum()
    }
}

/// Of some windows. A peer to which nothing was sent is not counted.
fn rate(windows: &[(Duration, Counted)], least: usize) -> u64 {
    let took: Duration = windows.iter().map(|(took, _)| *took).sum();
    let looks: usize = windows.iter().map(|(_, counted)| counted.looks).sum();
    let bytes: usize = windows.iter().map(|(_, counted)| counted.bytes()).sum();
    let mut peers: BTreeMap<usize, Served> = BTreeMap::new();
    for (peer, served) in windows.iter().flat_map(|(_, counted)| &counted.peers) {
        let all = peers.entry(*peer).or_default();
        all.bytes += served.bytes;
        all.busy += served.busy;
    }
    peers.retain(|_, served| served.bytes > 0);
    // What each would have got if there had been something for it all the time.
    let got = || {
        let got = |one: &Served| {
            one.bytes.max(least) as f64 * looks.max(1) as f64 / one.busy.max(1) as f64
        };
        peers.values().map(got)
    };
    let peers = peers.len() as f64;
    let (mean, harmonic) = (
        got().sum::<f64>() / peers,
        peers / got().map(|bytes| 1.0 / bytes).sum::<f64>(),
    );
    let rate = bytes as f64 / took.as_secs_f64() * (harmonic / mean);
    (rate as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: (usize, usize) = (2, 2);
    const BOTH: [usize; 2] = [1, 2];

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// What so many windows of a microsecond show, in which two peers get so much.
    fn measured(got: [usize; 2], windows: u64) -> Option<Measured> {
        let mut window = Window::new(1000, 10);
        window.look(micros(0), BOTH.into_iter(), ALL);
        let mut last = None;
        for number in 1..=windows {
            window.count(1, got[0]);
            window.count(2, got[1]);
            last = window.look(micros(number), BOTH.into_iter(), ALL);
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
    fn a_peer_for_which_there_is_little_does_not_starve() {
        let measured = |busy: &dyn Fn(usize) -> usize| {
            let mut window = Window::new(1000, 10);
            window.look(micros(0), BOTH.into_iter(), ALL);
            for look in 1..10 {
                window.count(1, 100);
                assert_eq!(window.look(micros(1), 1..=busy(look), ALL), None);
            }
            window.count(2, 100);
            window.look(micros(1), 1..=2, ALL).unwrap().rate
        };
        let (seldom, always) = (measured(&|_| 1), measured(&|_| 2));
        assert!((990_000_000..1_001_000_000).contains(&seldom), "{seldom}");
        assert!((359_000_000..361_000_000).contains(&always), "{always}");
    }

    #[test]
    fn the_first_window_is_left_behind() {
        let mut window = Window::new(1000, 10);
        window.look(micros(0), BOTH.into_iter(), ALL);
        window.count(1, 5000);
        assert!(window.look(micros(1), BOTH.into_iter(), ALL).unwrap().rate > 4_000_000_000);
        window.count(1, 1000);
        assert_eq!(
            window.look(micros(2), BOTH.into_iter(), ALL).unwrap().rate,
            1_000_000_000
        );
        window.restart();
        assert_eq!(window.look(micros(3), BOTH.into_iter(), ALL), None);
    }

    #[test]
    fn it_is_crowded_while_rows_wait_for_nearly_all() {
        let crowded = |full: usize| {
            let mut window = Window::new(1000, 10);
            window.look(micros(0), BOTH.into_iter(), (0, 100));
            for _ in 0..9 {
                window.look(micros(1), BOTH.into_iter(), (full, 100));
            }
            window.count(1, 1000);
            window
                .look(micros(1), BOTH.into_iter(), (full, 100))
                .unwrap()
                .crowded
        };
        assert!(crowded(100));
        assert!(crowded(90));
        assert!(!crowded(89));
    }

    #[test]
    fn time_in_which_nothing_waits_does_not_count() {
        let mut window = Window::new(2000, 10);
        window.look(micros(0), BOTH.into_iter(), ALL);
        window.count(1, 1999);
        window.idle();
        window.look(micros(1_000_000), BOTH.into_iter(), ALL);
        window.count(1, 1999);
        assert_eq!(window.look(micros(2_000_000), BOTH.into_iter(), ALL), None);
        window.count(1, 1);
        let rate = window
            .look(micros(2_000_000), BOTH.into_iter(), ALL)
            .unwrap()
            .rate;
        assert_eq!(rate, 2000);
    }
}
