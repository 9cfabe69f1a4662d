//! How the tasks of a join's inputs come to one decision: what was decided first holds, whatever is heard later.

use super::heavy::{Decision, Sum, decide};
use super::sample::{CANDIDATES_MAX, SAMPLE_ROWS, Sample};
use std::collections::HashSet;
use std::sync::Arc;

/// Most partitions of a join.
const PARTITIONS_MAX: u64 = 1 << 24;
/// Most tasks of both inputs of a join.
pub const TASKS_MAX: u64 = 1 << 16;

/// A task: which input it is of, 0 or 1, and its number there.
pub type Task = (usize, u64);

/// What all tasks of a join know alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Tasks that tell samples, of all.
    pub samplers: u64,
    /// Tasks of both inputs, at most 65,536.
    pub tasks: u64,
    /// Partitions of the join, at most 16 million.
    pub partitions: u64,
    /// Rows that are expected of each input, where that is known.
    pub expected: [Option<u64>; 2],
}

impl Terms {
    /// Whether there can be such a join, with such a task.
    pub fn fit(&self, task: Task) -> bool {
        task.0 < 2
            && task.1 < TASKS_MAX
            && (1..=TASKS_MAX).contains(&self.tasks)
            && (1..=self.tasks).contains(&self.samplers)
            && (1..=PARTITIONS_MAX).contains(&self.partitions)
    }
}

/// What a task saw of its first rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Rows that it looked at.
    pub rows: u64,
    /// The hashes that may be heavy, with how often they came.
    pub keys: Vec<(u64, u32)>,
}

impl Seen {
    /// What a sample says to a join with so many partitions.
    pub fn of(sample: &Sample, partitions: u64) -> Self {
        Self {
            rows: sample.rows(),
            keys: sample.candidates(partitions),
        }
    }

    /// Whether a task can have seen that.
    pub fn fits(&self) -> bool {
        let counted: u64 = self.keys.iter().map(|(_, count)| u64::from(*count)).sum();
        self.rows <= SAMPLE_ROWS && self.keys.len() <= CANDIDATES_MAX && counted <= self.rows
    }
}

/// The tasks of one join.
#[derive(Debug)]
pub struct Agreement {
    terms: Terms,
    seen: [Sum; 2],
    /// Whose samples came.
    told: HashSet<Task>,
    /// Who knows what was decided.
    know: HashSet<Task>,
    decision: Option<Arc<Decision>>,
}

impl Agreement {
    /// Of tasks that know this of their join.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            seen: Default::default(),
            told: HashSet::new(),
            know: HashSet::new(),
            decision: None,
        }
    }

    /// What its tasks know alike.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Hears what a task has seen, which must [fit](Seen::fits); once from each. With the last one it is decided.
    pub fn hear(&mut self, task: Task, seen: &Seen) {
        if !self.told.insert(task) || self.decision.is_some() {
            return;
        }
        let sum = &mut self.seen[task.0 % 2];
        sum.rows += seen.rows;
        for (hash, count) in &seen.keys {
            *sum.counts.entry(*hash).or_default() += u64::from(*count);
        }
        if self.told.len() as u64 >= self.terms.samplers {
            let seen = std::mem::take(&mut self.seen);
            let decision = decide(&seen, self.terms.partitions, self.terms.expected);
            self.decision = Some(Arc::new(decision));
        }
    }

    /// Some sample will not come: no key is heavy, unless that is decided.
    pub fn give_up(&mut self) {
        self.decision.get_or_insert_default();
    }

    /// What was decided, if it was.
    pub fn decision(&self) -> Option<&Arc<Decision>> {
        self.decision.as_ref()
    }

    /// A task knows what was decided. Returns whether all do.
    pub fn knows(&mut self, task: Task) -> bool {
        self.know.insert(task);
        self.know.len() as u64 >= self.terms.tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        samplers: 2,
        tasks: 3,
        partitions: 8,
        expected: [None, None],
    };

    fn seen(count: u32) -> Seen {
        Seen {
            rows: 4000,
            keys: vec![(42, count)],
        }
    }

    #[test]
    fn the_last_sample_decides_once() {
        let mut agreement = Agreement::new(TERMS);
        agreement.hear((1, 0), &seen(100));
        // The same task once more is no other one.
        agreement.hear((1, 0), &seen(100));
        assert_eq!(agreement.decision(), None);
        agreement.hear((1, 1), &seen(100));
        let decided = agreement.decision().cloned().unwrap();
        assert_eq!(decided.0, [vec![], vec![42]]);
        agreement.give_up();
        assert_eq!(agreement.decision(), Some(&decided));
        let all = [(0, 0), (1, 0), (1, 0), (1, 1)].map(|task| agreement.knows(task));
        assert_eq!(all, [false, false, false, true]);
    }

    #[test]
    fn who_gives_up_has_decided() {
        let mut agreement = Agreement::new(TERMS);
        agreement.hear((1, 0), &seen(4000));
        agreement.give_up();
        agreement.hear((1, 1), &seen(4000));
        assert_eq!(**agreement.decision().unwrap(), Decision::default());
    }

    #[test]
    fn what_cannot_be_does_not_fit() {
        assert!(TERMS.fit((1, 5)) && seen(4000).fits());
        assert!(!TERMS.fit((2, 0)) && !TERMS.fit((0, TASKS_MAX)));
        for wrong in [
            Terms {
                samplers: 4,
                ..TERMS
            },
            Terms {
                samplers: 0,
                ..TERMS
            },
            Terms {
                partitions: 0,
                ..TERMS
            },
            Terms {
                tasks: u64::MAX,
                ..TERMS
            },
        ] {
            assert!(!wrong.fit((0, 0)), "{wrong:?}");
        }
        assert!(!seen(4001).fits());
        let long = Seen {
            rows: SAMPLE_ROWS + 1,
            keys: Vec::new(),
        };
        assert!(!long.fits());
    }
}
