//! Whether a schedule is worth it. All nodes find that out by trying, at once: a node that is the only one to keep to
//! phases just waits, and gains nothing. Nodes that send at random seldom collide for long, and phases only cost them
//! time. Nodes that all turn to the same node collide again and again.
//!
//! ```text
//!   every node                       the first node, by number, whether it sends or not
//!     measures a window                 tally: who told what of the way in use, and of the other one
//!     ── trial: number, rate ─────────► when enough have told enough: number + 1
//!     changes over at once ◄── trial: number ──
//! ```
//!
//! The number says how often all have changed over, and with it the way: odd numbers are scheduled. It only grows, and
//! whoever hears of a higher one takes it over; whoever hears a lower one tells its own. So nodes agree again after one
//! has come or gone, or has not been heard, and none ever waits for news: until they come, rows leave as before.

use super::tally::Tally;
use super::window::Window;
use crate::wire;
use std::time::Duration;

/// A window that is measured has so many phases to each peer.
const ROUNDS: usize = 2;
/// What is told where nothing was measured.
const ONLY_THE_NUMBER: (u64, bool) = (0, false);

/// What a node knows of the trials of all.
pub(super) struct Trial {
    number: u64,
    /// The peers, by connection.
    peers: Vec<usize>,
    /// The first node of all; absent where this is it.
    first: Option<usize>,
    /// What the first node was told.
    tally: Tally,
    window: Window,
    /// There are more peers than messages for each may wait.
    many: bool,
    said: Vec<(usize, wire::Trial)>,
}

impl Trial {
    /// Begins without a schedule.
    pub(super) fn new() -> Self {
        Self {
            number: 0,
            peers: Vec::new(),
            first: None,
            tally: Tally::default(),
            window: Window::new(usize::MAX, 1),
            many: false,
            said: Vec::new(),
        }
    }

    /// There are these peers, of which that one is before all others and this node. A phase has so many bytes, and so many
    /// messages may wait for each.
    pub(super) fn set_peers(
        &mut self,
        peers: &[usize],
        first: Option<usize>,
        (phase_bytes, messages): (usize, usize),
    ) {
        let bytes = (ROUNDS * peers.len() * phase_bytes).max(1);
        self.window = Window::new(bytes, phase_bytes / 4);
        self.many = messages < peers.len();
        self.peers = peers.to_vec();
        self.first = first;
        // What was told was told of other traffic.
        self.tally = Tally::default();
        if first.is_none() && self.number > 0 {
            self.tell_all();
        }
    }

    /// Whether rows are to be sent by the schedule.
    pub(super) fn is_scheduled(&self) -> bool {
        self.number % 2 == 1
    }

    /// How often all have changed over.
    pub(super) fn changes(&self) -> u64 {
        self.number
    }

    /// So many bytes of rows were posted to a peer.
    pub(super) fn count(&mut self, peer: usize, bytes: usize) {
        self.window.count(peer, bytes);
    }

    /// Nothing waits.
    pub(super) fn idle(&mut self) {
        self.window.idle();
    }

    /// There are rows for these peers, several, and enough for a phase for so many. Tells how well they leave when a window is
    /// full.
    pub(super) fn look(&mut self, now: Duration, busy: impl Iterator<Item = usize>, full: usize) {
        let all = self.peers.len();
        let Some(measured) = self.window.look(now, busy, (full, all)) else {
            return;
        };
        let told = (measured.rate, measured.crowded && self.many);
        match self.first {
            None => self.take(None, told),
            Some(first) => self.tell(first, told),
        }
    }

    /// What a peer says.
    pub(super) fn hear(&mut self, peer: usize, said: wire::Trial) {
        if said.number < self.number {
            self.tell(peer, ONLY_THE_NUMBER);
        } else if said.number > self.number {
            self.change(said.number);
            self.tally = Tally::default();
            if self.first.is_none() {
                self.tell_all();
            }
        } else if said.rate > 0 && self.first.is_none() {
            self.take(Some(peer), (said.rate, said.crowded));
        }
    }

    /// What peers are to hear.
    pub(super) fn take_said(&mut self) -> Vec<(usize, wire::Trial)> {
        std::mem::take(&mut self.said)
    }

    /// A node, this one or a peer, has told the first node how well its rows leave.
    fn take(&mut self, node: Option<usize>, told: (u64, bool)) {
        let nodes = self.peers.len() + 1;
        if self.tally.take(node, told, self.is_scheduled(), nodes) {
            self.change(self.number.saturating_add(1));
            self.tell_all();
        }
    }

    fn change(&mut self, number: u64) {
        self.number = number;
        self.window.restart();
    }

    fn tell(&mut self, peer: usize, (rate, crowded): (u64, bool)) {
        let said = wire::Trial {
            number: self.number,
            rate,
            crowded,
        };
        self.said.push((peer, said));
    }

    fn tell_all(&mut self) {
        for at in 0..self.peers.len() {
            self.tell(self.peers[at], ONLY_THE_NUMBER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASE_BYTES: usize = 1000;

    /// Nodes by number, of which those that are there hear each other at once.
    struct Cluster {
        nodes: Vec<Trial>,
        there: Vec<bool>,
        now: Duration,
    }

    impl Cluster {
        fn new(count: usize) -> Self {
            let mut cluster = Self {
                nodes: (0..count).map(|_| Trial::new()).collect(),
                there: vec![true; count],
                now: Duration::ZERO,
            };
            cluster.meet();
            cluster
        }

        fn meet(&mut self) {
            let all = (0..self.nodes.len()).filter(|node| self.there[*node]);
            let all: Vec<_> = all.collect();
            for own in &all {
                let peers: Vec<_> = all.iter().copied().filter(|peer| peer != own).collect();
                let first = Some(all[0]).filter(|first| first != own);
                self.nodes[*own].set_peers(&peers, first, (PHASE_BYTES, 4));
            }
            self.say();
        }

        fn comes(&mut self, node: usize) {
            self.there[node] = true;
            self.meet();
        }

        fn goes(&mut self, node: usize) {
            self.there[node] = false;
            self.nodes[node] = Trial::new();
            self.meet();
        }

        fn say(&mut self) {
            for _ in 0..100 {
                let mut words = Vec::new();
                for (own, node) in self.nodes.iter_mut().enumerate() {
                    let said = node.take_said().into_iter();
                    words.extend(said.map(|(to, word)| (own, to, word)));
                }
                if words.is_empty() {
                    return;
                }
                for (from, to, word) in words {
                    if self.there[from] && self.there[to] {
                        self.nodes[to].hear(from, word);
                    }
                }
            }
            panic!("they never have said it all");
        }

        /// So many steps, in each of which a node sends so much, without a schedule and with one.
        fn run(&mut self, steps: u32, senders: &[usize], bytes: [usize; 2]) {
            for _ in 0..steps {
                self.now += Duration::from_micros(1);
                for sender in senders.iter().filter(|sender| self.there[**sender]) {
                    let node = &mut self.nodes[*sender];
                    node.count(1, bytes[usize::from(node.is_scheduled())]);
                    node.look(self.now, std::iter::once(1), 1);
                }
                self.say();
            }
        }

        fn scheduled(&self) -> Vec<bool> {
            let there = self.nodes.iter().zip(&self.there).filter(|one| *one.1);
            there.map(|(node, _)| node.is_scheduled()).collect()
        }
    }

    #[test]
    fn all_do_what_is_faster_for_all() {
        let senders = [0, 1, 2, 3];
        let mut cluster = Cluster::new(4);
        cluster.run(4000, &senders, [1000, 1500]);
        assert_eq!(cluster.scheduled(), [true; 4]);
        // When that changes they find out.
        cluster.run(8000, &senders, [1000, 500]);
        assert_eq!(cluster.scheduled(), [false; 4]);
        assert!(cluster.nodes.iter().all(|node| node.changes() < 40));
    }

    #[test]
    fn the_first_need_not_send() {
        let mut cluster = Cluster::new(5);
        cluster.run(5600, &[2, 4], [1000, 1500]);
        assert_eq!(cluster.scheduled(), [true; 5]);
    }

    #[test]
    fn who_comes_does_as_the_others_and_who_goes_leaves_them_agreed() {
        let senders = [0, 1, 2, 3];
        for newcomer in [0, 2] {
            let mut cluster = Cluster::new(4);
            cluster.goes(newcomer);
            cluster.run(4000, &senders, [1000, 1500]);
            assert_eq!(cluster.scheduled(), [true; 3]);
            cluster.comes(newcomer);
            cluster.run(8, &senders, [1000, 1500]);
            assert_eq!(cluster.scheduled(), [true; 4], "as node {newcomer} comes");
            // Also one that was told of a trial the others have not heard of.
            cluster.nodes[3].change(4);
            cluster.goes(0);
            cluster.run(8000, &senders, [1000, 500]);
            assert_eq!(cluster.scheduled(), [false; 3]);
        }
    }

    #[test]
    fn words_that_make_no_sense_do_no_harm() {
        let mut cluster = Cluster::new(3);
        for (peer, number, rate) in [(1, u64::MAX, 0), (1, u64::MAX, 7), (2, 3, 9), (1, 0, 0)] {
            let said = wire::Trial {
                number,
                rate,
                crowded: true,
            };
            cluster.nodes[0].hear(peer, said);
            cluster.say();
        }
        cluster.run(500, &[0, 1, 2], [1000, 500]);
        let scheduled = cluster.scheduled();
        assert!(scheduled.iter().all(|one| *one == scheduled[0]));
    }
}
