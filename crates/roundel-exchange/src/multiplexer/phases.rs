//! When rows may go where, so that no two nodes send to the same one at a time (Rödiger et al. 2015, section 3.2.3): in
//! phase `p` the node at place `r` of `n` sends to the one at place `r + 1 + p mod (n - 1)`, and gets rows from one
//! alone. This module knows only how many bytes wait for whom. It knows no messages, and not whether all this is worth
//! it.
//!
//! ```text
//!   phase 0:  0→1 1→2 2→3 3→0      whoever has done with phase p may be followed, at its target, by the one on
//!   phase 1:  0→2 1→3 2→0 3→1      its left: it tells that one, and begins phase p + 1 when the one on its
//!   phase 2:  0→3 1→0 2→1 3→2      right has told it the same
//! ```
//!
//! A phase ends when its bytes are sent or there are no more. Phases in which there is nothing to send are passed over.
//! A node that has nothing to send at all leaves, and nobody waits for it. Nobody waits for a node that is too late.
//! Nothing but speed depends on all this: nodes that disagree about who takes part collide, as they would without it.

use crate::wire::{Phase, Step};
use std::time::Duration;

/// A node waits for its neighbour at most so many times as long as its own phases take.
const PATIENCE: u32 = 4;
/// The least that this limit can be: what the network and a thread that sleeps may take.
const PATIENCE_MIN: Duration = Duration::from_micros(500);
/// The most that this limit can be.
const PATIENCE_MAX: Duration = Duration::from_millis(20);

/// How the phases went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleReport {
    /// Phases in which rows were sent.
    pub phases: u64,
    /// Time in which there were rows to send, and the neighbour had not done with its phase.
    pub stalled: Duration,
    /// Phases that began although it had not.
    pub overruns: u64,
    /// How often all nodes have changed to a schedule or from it, where that is left to them.
    pub changes: u64,
}

/// What waits for one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// Rows that have not been posted.
    pub(super) bytes: usize,
    pub(super) messages: usize,
    /// Those that have been, and are on their way.
    pub(super) in_flight: usize,
}

/// Who may be sent rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Everybody,
    Nobody,
    /// One peer, so many bytes and what begins within them.
    Peer(usize, usize),
}

/// The phases of a node. Peers are numbered by their connections.
pub(super) struct Phases {
    /// Bytes of a phase, and most of them whatever may wait.
    phase_bytes: usize,
    phase_bytes_max: usize,
    /// The peers in the order of their places, from the one on the right.
    peers: Vec<usize>,
    /// It takes part, and the peer on its left has been told so.
    inside: bool,
    phase: u64,
    /// Bytes sent in it; absent while it has not begun.
    sent: Option<usize>,
    began: Duration,
    /// How long phases take, as far as there were any.
    pace: Option<Duration>,
    /// The peer on the right: phases below this one it has done with; absent while it takes no part.
    right_at: Option<u64>,
    stalled_since: Option<Duration>,
    report: ScheduleReport,
}

impl Phases {
    /// Of so many bytes at most.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            phase_bytes: bytes,
            phase_bytes_max: bytes,
            peers: Vec::new(),
            inside: false,
            phase: 0,
            sent: None,
            began: Duration::ZERO,
            pace: None,
            right_at: None,
            stalled_since: None,
            report: ScheduleReport::default(),
        }
    }

    pub(super) fn report(&self) -> ScheduleReport {
        self.report
    }

    /// Bytes of a phase.
    pub(super) fn bytes(&self) -> usize {
        self.phase_bytes
    }

    /// Takes note of the peers that there are, from the one on the right, for each of which so many bytes may wait. A phase
    /// is shorter than that, so that it need not end early, or wait for more.
    pub(super) fn set_peers(&mut self, peers: &[usize], waiting_bytes: usize) {
        self.phase_bytes = self.phase_bytes_max.min(waiting_bytes / 2).max(1);
        if peers.first() != self.peers.first() {
            self.right_at = None;
        }
        if peers.last() != self.peers.last() {
            self.inside = false;
        }
        self.peers = peers.to_vec();
        self.sent = None;
        self.stalled_since = None;
    }

    /// Who may be sent rows now.
    pub(super) fn turn(&self) -> Turn {
        if !self.inside {
            return Turn::Everybody;
        }
        match (self.target(self.phase), self.sent) {
            (Some(peer), Some(sent)) => Turn::Peer(peer, self.phase_bytes.saturating_sub(sent)),
            _ => Turn::Nobody,
        }
    }

    /// Until when it waits for its neighbour.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let patience = self.pace.map_or(PATIENCE_MAX, |pace| pace * PATIENCE);
        let patience = patience.clamp(PATIENCE_MIN, PATIENCE_MAX);
        self.stalled_since.map(|since| since + patience)
    }

    /// So many bytes of rows were posted.
    pub(super) fn count(&mut self, bytes: usize) {
        if let Some(sent) = &mut self.sent {
            *sent += bytes;
        }
    }

    /// What the neighbours say. Returns what to answer.
    pub(super) fn hear(&mut self, peer: usize, heard: Phase) -> Option<(usize, Phase)> {
        let right = self.peers.first() == Some(&peer);
        match heard.step {
            Step::Done if right => self.right_at = Some(heard.number),
            Step::Out if right => self.right_at = None,
            Step::In if right => {
                self.right_at = Some(heard.number);
                // It was away, and may not know how far the others are.
                let behind = self.inside && heard.number < self.phase;
                return behind.then(|| (peer, self.say(Step::At)));
            }
            Step::At
                if self.peers.last() == Some(&peer)
                    && self.inside
                    && self.sent.is_none()
                    && heard.number > self.phase =>
            {
                self.phase = heard.number;
            }
            _ => {}
        }
        None
    }

    /// Goes on as far as it can, if this node shall take part while it has rows. Returns what the peer on the left shall
    /// hear, if anything.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        takes_part: bool,
        backlog: impl Fn(usize) -> Backlog,
    ) -> Option<(usize, Phase)> {
        let left = *self.peers.last()?;
        if self.inside && !takes_part {
            return Some((left, self.leave()));
        }
        if !self.inside {
            let waits = self.peers.iter().any(|peer| backlog(*peer).messages > 0);
            if !waits || !takes_part {
                return None;
            }
            self.inside = true;
            self.sent = None;
            self.phase = self.phase.max(self.right_at.unwrap_or(0));
            self.enter(now, &backlog);
            return Some((left, self.say(Step::In)));
        }
        let before = self.phase;
        if let (Some(sent), Some(peer)) = (self.sent, self.target(self.phase)) {
            let Backlog {
                messages,
                in_flight,
                ..
            } = backlog(peer);
            if in_flight > 0 || messages > 0 && sent < self.phase_bytes {
                return None;
            }
            let took = now.saturating_sub(self.began);
            self.pace = Some(self.pace.map_or(took, |pace| (pace * 3 + took) / 4));
            self.report.phases += u64::from(sent > 0);
            self.sent = None;
            self.phase += 1;
        }
        if !self.peers.iter().any(|peer| backlog(*peer).messages > 0) {
            let idle = self.peers.iter().all(|peer| backlog(*peer).in_flight == 0);
            if idle {
                return Some((left, self.leave()));
            }
        }
        self.enter(now, &backlog);
        (self.phase != before).then(|| (left, self.say(Step::Done)))
    }

    /// Passes over phases in which there is nothing to send, and begins the next one if the neighbour has done with
    /// the one before.
    fn enter(&mut self, now: Duration, backlog: &impl Fn(usize) -> Backlog) {
        if self.sent.is_some() {
            return;
        }
        let phases = self.peers.len() as u64;
        let wanted = (self.phase..self.phase + phases).find(|phase| {
            let target = self.target(*phase);
            target.is_some_and(|peer| backlog(peer).messages > 0)
        });
        let Some(wanted) = wanted else {
            self.stalled_since = None;
            return;
        };
        self.phase = wanted;
        let free = self.right_at.is_none_or(|right| right >= wanted);
        let late = self.deadline().is_some_and(|deadline| now >= deadline);
        if !free && !late {
            self.stalled_since.get_or_insert(now);
            return;
        }
        if let Some(since) = self.stalled_since.take() {
            self.report.stalled += now.saturating_sub(since);
            self.report.overruns += u64::from(!free);
        }
        self.sent = Some(0);
        self.began = now;
    }

    /// Takes part no more; what to tell the peer on the left.
    fn leave(&mut self) -> Phase {
        self.inside = false;
        self.sent = None;
        self.stalled_since = None;
        self.say(Step::Out)
    }

    /// The peer that is sent to in a phase.
    fn target(&self, phase: u64) -> Option<usize> {
        let phases = self.peers.len() as u64;
        let place = phase.checked_rem(phases)?;
        self.peers.get(place as usize).copied()
    }

    fn say(&self, step: Step) -> Phase {
        Phase {
            number: self.phase,
            step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const BYTES: usize = 1000;

    /// Nodes that hear each other at once, and send messages of 100 bytes a step each.
    struct Cluster {
        nodes: Vec<Phases>,
        /// Messages that wait, by node and target.
        waiting: Vec<Vec<usize>>,
        now: Duration,
    }

    impl Cluster {
        fn new(count: usize) -> Self {
            let nodes = (0..count).map(|own| {
                let mut node = Phases::new(BYTES);
                let others: Vec<_> = (1..count).map(|after| (own + after) % count).collect();
                node.set_peers(&others, 2 * BYTES);
                node
            });
            Self {
                nodes: nodes.collect(),
                waiting: vec![vec![0; count]; count],
                now: Duration::ZERO,
            }
        }

        fn advance(&mut self) {
            loop {
                let mut said = Vec::new();
                for (own, node) in self.nodes.iter_mut().enumerate() {
                    let backlog = |peer: usize| Backlog {
                        bytes: 100_000 * self.waiting[own][peer],
                        messages: self.waiting[own][peer],
                        in_flight: 0,
                    };
                    let word = node.advance(self.now, true, backlog);
                    said.extend(word.map(|(to, phase)| (own, to, phase)));
                }
                if said.is_empty() {
                    return;
                }
                let answers = RefCell::new(Vec::new());
                for (from, to, phase) in said {
                    let answer = self.nodes[to].hear(from, phase);
                    answers
                        .borrow_mut()
                        .extend(answer.map(|(back, phase)| (to, back, phase)));
                }
                for (from, to, phase) in answers.into_inner() {
                    assert!(self.nodes[to].hear(from, phase).is_none());
                }
            }
        }

        /// Everybody sends a message where it may; who sends to whom.
        fn step(&mut self) -> Vec<(usize, usize)> {
            self.advance();
            let mut sends = Vec::new();
            for (own, node) in self.nodes.iter_mut().enumerate() {
                if let Turn::Peer(peer, left) = node.turn()
                    && left > 0
                    && self.waiting[own][peer] > 0
                {
                    self.waiting[own][peer] -= 1;
                    node.count(100);
                    sends.push((own, peer));
                }
            }
            self.now += Duration::from_micros(10);
            sends
        }
    }

    #[test]
    fn no_two_send_to_one_and_everything_is_sent() {
        for count in 2..9 {
            let mut cluster = Cluster::new(count);
            for own in 0..count {
                for peer in (0..count).filter(|peer| *peer != own) {
                    cluster.waiting[own][peer] = 35;
                }
            }
            let mut steps = 0;
            while cluster.waiting.iter().flatten().any(|waiting| *waiting > 0) {
                let mut targets: Vec<_> = cluster.step().iter().map(|(_, to)| *to).collect();
                assert_eq!(targets.len(), count, "everybody sends at step {steps}");
                targets.sort_unstable();
                targets.dedup();
                assert_eq!(targets.len(), count, "no collision at step {steps}");
                steps += 1;
            }
            assert_eq!(steps, 35 * (count - 1));
            cluster.advance();
            assert!(
                cluster
                    .nodes
                    .iter()
                    .all(|node| node.turn() == Turn::Everybody)
            );
            assert!(cluster.nodes.iter().all(|node| node.report().overruns == 0));
        }
    }

    #[test]
    fn nobody_waits_for_those_that_have_nothing_to_send() {
        let mut cluster = Cluster::new(5);
        cluster.waiting[2][0] = 12;
        cluster.waiting[4][1] = 12;
        let sends: usize = (0..12).map(|_| cluster.step().len()).sum();
        assert_eq!(sends, 24);
    }

    #[test]
    fn who_comes_back_joins_the_phase_of_the_others() {
        let mut cluster = Cluster::new(4);
        for own in 0..3 {
            for peer in (0..4).filter(|peer| *peer != own) {
                cluster.waiting[own][peer] = 200;
            }
        }
        for _ in 0..100 {
            cluster.step();
        }
        for peer in 0..3 {
            cluster.waiting[3][peer] = 50;
        }
        let mut collisions = 0;
        for step in 0..150 {
            let mut targets: Vec<_> = cluster.step().iter().map(|(_, to)| *to).collect();
            let sends = targets.len();
            targets.sort_unstable();
            targets.dedup();
            if step > 40 {
                collisions += sends - targets.len();
            }
        }
        assert_eq!(collisions, 0);
        assert_eq!(cluster.waiting[3].iter().sum::<usize>(), 0);
    }

    #[test]
    fn a_neighbour_that_says_nothing_is_waited_for_only_so_long() {
        let mut node = Phases::new(BYTES);
        node.set_peers(&[1, 2], 2 * BYTES);
        let all = |_| Backlog {
            bytes: 100_000,
            messages: 1,
            in_flight: 0,
        };
        node.hear(
            1,
            Phase {
                number: 0,
                step: Step::In,
            },
        );
        let now = Duration::from_secs(1);
        assert!(node.advance(now, true, all).is_some());
        assert_eq!(node.turn(), Turn::Peer(1, BYTES));
        node.count(BYTES);
        assert!(node.advance(now, true, all).is_some());
        assert_eq!(node.turn(), Turn::Nobody);
        let deadline = node.deadline().unwrap();
        assert!(deadline <= now + PATIENCE_MAX);
        node.advance(deadline, true, all);
        assert_eq!(node.turn(), Turn::Peer(2, BYTES));
        assert_eq!(node.report().overruns, 1);
        assert!(node.report().stalled >= PATIENCE_MIN);
    }
}
