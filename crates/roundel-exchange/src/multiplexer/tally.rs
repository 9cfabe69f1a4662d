//! What the nodes have told the first of them about both ways to send, and when it is time for all nodes to change from
//! one way to the other. Knows no messages and no clock: nodes that have rows to send tell again and again, and while
//! no node has rows there is nothing to decide.
//!
//! The first way is guessed, by what waits: flows to all peers at once starve each other when there are many peers.
//! After a while the other way is tried, and the way by which rows leave better is kept. The guess may be wrong, so the
//! first trial comes soon. Each trial costs some windows, and tells less that is new than the one before, so trials
//! become rarer.

use std::collections::BTreeMap;

/// Windows of a way before it counts what a node told of it, see [`Window`](super::window::Window).
const TRIED: u32 = 4;
/// Windows until the other way is tried for the first time, and at most between trials: four times as many after each.
const KEPT_FIRST: u32 = 16;
const KEPT_MAX: u32 = 256;
/// Windows whose rates are averaged: one by itself says little of rows that go here and there.
const AVERAGED: u64 = 16;
/// How much better a schedule must be.
const GAIN: f64 = 1.05;

/// A node: a peer by its connection, or this one.
type Node = Option<usize>;

/// Who told what.
pub(super) struct Tally {
    /// Of the way in use.
    now: BTreeMap<Node, Told>,
    /// Of the other one, while this one is only tried.
    before: Option<BTreeMap<Node, Told>>,
    /// A trial has been decided: there is nothing to be guessed.
    decided: bool,
    /// Windows until the next trial.
    kept: u32,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            now: BTreeMap::new(),
            before: None,
            decided: false,
            kept: KEPT_FIRST,
        }
    }
}

/// What a node told of a way.
#[derive(Clone, Copy, Default)]
struct Told {
    windows: u32,
    /// Bytes per second, the mean of the last of them. The first one ends what was begun another way, and does not count.
    rate: u64,
    /// Rows wait for all peers, which are many.
    crowded: bool,
}

impl Told {
    fn add(&mut self, rate: u64, crowded: bool) {
        let averaged = u64::from(self.windows).clamp(1, AVERAGED);
        self.rate = self.rate - self.rate / averaged + rate / averaged;
        self.windows = self.windows.saturating_add(1);
        self.crowded = crowded;
    }
}

impl Tally {
    /// One of so many nodes has told how well its rows left in another window, with a schedule or without. Whether all
    /// shall change to the other way.
    pub(super) fn take(
        &mut self,
        node: Node,
        (rate, crowded): (u64, bool),
        scheduled: bool,
        nodes: usize,
    ) -> bool {
        self.now.entry(node).or_default().add(rate, crowded);
        if self.before.is_none() && !self.decided && self.guesses_other(scheduled, nodes) {
            self.now.clear();
            if scheduled {
                // That has been its trial.
                self.decided = true;
                self.kept = KEPT_MAX;
            }
            return true;
        }
        let trying = self.before.is_some();
        if !self.is_enough(if trying { TRIED } else { self.kept }, nodes) {
            return false;
        }
        let now = std::mem::take(&mut self.now);
        let Some(before) = self.before.take() else {
            self.before = Some(now);
            return true;
        };
        self.decided = true;
        self.kept = (4 * self.kept).min(KEPT_MAX);
        let (with, without) = match scheduled {
            true => (&now, &before),
            false => (&before, &now),
        };
        gains(with, without) != scheduled
    }

    /// Whether the other way looks better: a schedule where most nodes are crowded, and none where few are.
    fn guesses_other(&self, scheduled: bool, nodes: usize) -> bool {
        let crowded = self.now.values().filter(|told| told.crowded).count();
        match scheduled {
            false => self.is_enough(1, nodes) && 2 * crowded > self.now.len(),
            true => self.is_enough(TRIED, nodes) && 4 * crowded < self.now.len(),
        }
    }

    /// Whether most nodes have told of so many windows, and all of those that ever told. Who is twice as far waits for
    /// nobody: others may be slow, silent, or have no rows.
    fn is_enough(&self, wanted: u32, nodes: usize) -> bool {
        let windows = || self.now.values().map(|told| told.windows);
        let all = 2 * self.now.len() > nodes && windows().all(|windows| windows >= wanted);
        all || windows().any(|windows| windows >= 2 * wanted)
    }
}

/// Whether the nodes that told enough of both ways are better off with a schedule.
fn gains(with: &BTreeMap<Node, Told>, without: &BTreeMap<Node, Told>) -> bool {
    let counts = |told: &Told| told.windows >= TRIED;
    let both = with.iter().filter_map(|(node, with)| {
        let without = without.get(node)?;
        (counts(with) && counts(without)).then_some((with.rate as f64, without.rate as f64))
    });
    let (with, without) = both.fold((0.0, 0.0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
    with > GAIN * without
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Node = None;

    /// Three nodes tell their rates in turn, without a schedule and with one; the share of rounds with it.
    fn scheduled(rates: [[u64; 2]; 3]) -> f64 {
        let mut tally = Tally::default();
        let (mut scheduled, mut with, rounds) = (false, 0, 8000);
        for _ in 0..rounds {
            with += u32::from(scheduled);
            let mut change = false;
            for (node, rates) in [OWN, Some(0), Some(1)].into_iter().zip(rates) {
                // Who is told to change in between has not heard of it yet.
                change |= !change
                    && tally.take(node, (rates[usize::from(scheduled)], false), scheduled, 3);
            }
            scheduled ^= change;
        }
        f64::from(with) / f64::from(rounds)
    }

    #[test]
    fn the_faster_way_is_kept_and_the_other_tried_now_and_then() {
        let slower = scheduled([[1000, 800]; 3]);
        let faster = scheduled([[1000, 1600]; 3]);
        assert!((0.01..0.03).contains(&slower), "{slower}");
        assert!((0.97..0.99).contains(&faster), "{faster}");
    }

    #[test]
    fn what_counts_is_what_all_gain() {
        assert!(scheduled([[1000, 900], [1000, 900], [1000, 1500]]) > 0.9);
        assert!(scheduled([[1000, 1100], [1000, 1100], [1000, 500]]) < 0.1);
    }

    #[test]
    fn what_makes_no_difference_is_left_away() {
        assert!(scheduled([[1000, 1010]; 3]) < 0.03);
        assert!(scheduled([[u64::MAX; 2]; 3]) < 0.03);
    }

    #[test]
    fn where_most_are_crowded_a_schedule_is_tried_at_once() {
        let mut tally = Tally::default();
        assert!(!tally.take(OWN, (1000, true), false, 3), "the only one");
        assert!(tally.take(Some(1), (1000, true), false, 3));
        // And left when they are so no more.
        let turns = (0..2 * TRIED).map(|turn| [OWN, Some(1)][turn as usize % 2]);
        let mut left = turns.filter(|node| tally.take(*node, (1000, false), true, 3));
        assert_eq!(left.next(), Some(Some(1)));
        let mut tally = Tally::default();
        for (node, crowded) in [(OWN, false), (Some(1), true), (Some(2), false)] {
            assert!(!tally.take(node, (1000, crowded), false, 3));
        }
    }

    #[test]
    fn a_guess_that_was_wrong_does_not_last() {
        let mut tally = Tally::default();
        let (mut scheduled, mut with) = (false, 0);
        for _ in 0..1000 {
            with += u32::from(scheduled);
            let rate = if scheduled { 900 } else { 1000 };
            let tell = |node| tally.take(node, (rate, true), scheduled, 2);
            scheduled ^= [OWN, Some(1)].map(tell).contains(&true);
        }
        // The guess, and a trial after the 64 windows and each of the 256 that follow.
        assert!(!scheduled && with == KEPT_FIRST + 4 * TRIED, "{with}");
    }

    #[test]
    fn nobody_is_waited_for_for_ever() {
        // The others never tell anything.
        let mut tally = Tally::default();
        let mut moments = (0..).filter(|_| tally.take(Some(7), (1000, false), false, 16));
        assert_eq!(moments.next(), Some(2 * KEPT_FIRST - 1));
        // Who told of one way only proves nothing.
        let back = (0..2 * TRIED).any(|_| tally.take(Some(2), (9000, false), true, 3));
        assert!(back);
    }
}
