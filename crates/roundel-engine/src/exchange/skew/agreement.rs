//! How the tasks of both inputs of a join agree on its heavy keys: they ask one worker, which answers when it has heard
//! from all that tell samples, and gives everybody the same answer.

use super::heavy::{Decision, HEAVY_MAX, Seen, decide};
use super::role::TASKS_MAX;
use super::sample::{CANDIDATES_MAX, SAMPLE_ROWS};
use crate::exchange::protocol::{Agree, Agreed, Heavy};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// How long samples are waited for, from when the first task asks. Then no key is heavy: a task may have ended without a
/// word.
const SAMPLES_DEADLINE: Duration = Duration::from_secs(30);
/// An answer is kept until all tasks have it. One that some never ask for goes when its query must long have ended: to
/// decide a second time would be wrong.
const ANSWER_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Most joins at a time.
const AGREEMENTS_MAX: usize = 1 << 16;
/// Most partitions of a join.
const PARTITIONS_MAX: u64 = 1 << 24;

/// A join of a query.
type Key = (Uuid, u64);
/// A task: which input it is of, and its number.
type Task = (u32, u64);

/// The joins whose tasks agree at this worker.
#[derive(Clone)]
pub(in crate::exchange) struct Agreements {
    joins: Arc<Mutex<HashMap<Key, Arc<Agreement>>>>,
    patience: Duration,
}

struct Agreement {
    /// What all tasks must say alike.
    terms: Terms,
    begun: Instant,
    heard: Mutex<Heard>,
    decision: watch::Sender<Option<Arc<Decision>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms {
    samplers: u64,
    tasks: u64,
    partitions: u64,
    expected: [Option<u64>; 2],
}

#[derive(Default)]
struct Heard {
    seen: [Seen; 2],
    /// Whose samples came.
    told: HashSet<Task>,
    /// Who knows what was decided.
    answered: HashSet<Task>,
}

impl Default for Agreements {
    fn default() -> Self {
        Self::with_patience(SAMPLES_DEADLINE)
    }
}

impl Agreements {
    fn with_patience(patience: Duration) -> Self {
        Self {
            joins: Arc::default(),
            patience,
        }
    }

    /// Takes a task's sample, if it tells one, and answers when it is decided which keys are heavy.
    ///
    /// # Errors
    /// What is wrong with the question.
    pub(in crate::exchange) async fn agree(&self, ask: Agree) -> Result<Agreed, String> {
        let query =
            Uuid::from_slice(&ask.query).map_err(|error| format!("a query's id: {error}"))?;
        let key = (query, ask.join);
        let terms = terms_of(&ask)?;
        let agreement = self.at(key, terms)?;
        if agreement.terms != terms {
            return Err("two tasks of a join were told different things of it".to_owned());
        }
        let task = (ask.side, ask.task);
        agreement.hear(task, &ask);
        let decision = agreement.decided(self.patience).await;
        let all_know = {
            let mut heard = agreement.heard.lock();
            heard.answered.insert(task);
            heard.answered.len() as u64 >= terms.tasks
        };
        if all_know {
            self.joins.lock().remove(&key);
        }
        let [left, right] = decision.0.clone();
        Ok(Agreed { left, right })
    }

    fn at(&self, key: Key, terms: Terms) -> Result<Arc<Agreement>, String> {
        let mut agreements = self.joins.lock();
        if let Some(agreement) = agreements.get(&key) {
            return Ok(Arc::clone(agreement));
        }
        if agreements.len() >= AGREEMENTS_MAX {
            agreements.retain(|_, agreement| agreement.begun.elapsed() < ANSWER_KEPT);
        }
        if agreements.len() >= AGREEMENTS_MAX {
            return Err(format!(
                "tasks of {AGREEMENTS_MAX} joins agree on heavy keys at this worker: set roundel.skew to off"
            ));
        }
        let agreement = Arc::new(Agreement {
            terms,
            begun: Instant::now(),
            heard: Mutex::default(),
            decision: watch::Sender::new(None),
        });
        agreements.insert(key, Arc::clone(&agreement));
        Ok(agreement)
    }
}

fn terms_of(ask: &Agree) -> Result<Terms, String> {
    let fits = ask.side < 2
        && ask.task < TASKS_MAX
        && (1..=TASKS_MAX).contains(&ask.tasks)
        && (1..=ask.tasks).contains(&ask.samplers)
        && (1..=PARTITIONS_MAX).contains(&ask.partitions);
    let sample_fits = ask.sample.as_ref().is_none_or(|sample| {
        let keys = &sample.heavy;
        let counted: u64 = keys.iter().map(|key| u64::from(key.count)).sum();
        sample.rows <= SAMPLE_ROWS && keys.len() <= CANDIDATES_MAX && counted <= sample.rows
    });
    match fits && sample_fits {
        true => Ok(Terms {
            samplers: ask.samplers,
            tasks: ask.tasks,
            partitions: ask.partitions,
            expected: [ask.expected_left, ask.expected_right],
        }),
        false => Err("a task of a join told what cannot be".to_owned()),
    }
}

impl Agreement {
    fn hear(&self, task: Task, ask: &Agree) {
        let Some(sample) = &ask.sample else { return };
        let mut heard = self.heard.lock();
        if !heard.told.insert(task) {
            return;
        }
        if sample.failed {
            // The query fails with that task: nobody is to wait for it.
            self.decide(Decision::default);
            return;
        }
        let seen = &mut heard.seen[ask.side as usize % 2];
        seen.rows += sample.rows;
        for Heavy { hash, count } in &sample.heavy {
            *seen.counts.entry(*hash).or_default() += u64::from(*count);
        }
        if heard.told.len() as u64 >= self.terms.samplers {
            let Terms {
                partitions,
                expected,
                ..
            } = self.terms;
            self.decide(|| decide(&heard.seen, partitions, expected));
            heard.seen = Default::default();
        }
    }

    /// Decides, if nothing has been decided.
    fn decide(&self, decision: impl FnOnce() -> Decision) {
        self.decision.send_if_modified(|decided| {
            let first = decided.is_none();
            if first {
                *decided = Some(Arc::new(decision()));
            }
            first
        });
    }

    async fn decided(&self, patience: Duration) -> Arc<Decision> {
        let mut decision = self.decision.subscribe();
        let waited = timeout_at(self.begun + patience, decision.wait_for(Option::is_some));
        if waited.await.is_err() {
            self.decide(Decision::default);
        }
        let decided = self.decision.borrow().clone();
        decided.unwrap_or_default()
    }
}

/// What was decided, as an answer tells it.
///
/// # Errors
/// When nobody can have decided that.
pub(super) fn decision_of(agreed: Agreed) -> Result<Decision, String> {
    match agreed.left.len().max(agreed.right.len()) <= HEAVY_MAX {
        true => Ok(Decision([agreed.left, agreed.right])),
        false => Err("more heavy keys were told than there can be".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::protocol::KeySample;
    use futures::FutureExt as _;

    fn ask(side: u32, task: u64, sample: Option<KeySample>) -> Agree {
        Agree {
            query: vec![7; 16],
            join: 3,
            side,
            task,
            samplers: 2,
            tasks: 3,
            partitions: 8,
            expected_left: None,
            expected_right: None,
            sample,
        }
    }

    fn sample(count: u32) -> Option<KeySample> {
        Some(KeySample {
            rows: 4000,
            heavy: vec![Heavy { hash: 42, count }],
            failed: false,
        })
    }

    #[tokio::test]
    async fn all_get_one_answer_when_all_samples_are_there() {
        let agreements = Agreements::default();
        let mut follower = agreements.agree(ask(0, 0, None)).boxed();
        let mut first = agreements.agree(ask(1, 0, sample(100))).boxed();
        assert!((&mut follower).now_or_never().is_none());
        assert!((&mut first).now_or_never().is_none());
        let agreed = agreements.agree(ask(1, 1, sample(100))).await.unwrap();
        assert_eq!((agreed.left.len(), &*agreed.right), (0, &[42][..]));
        assert_eq!(first.await.unwrap(), agreed);
        assert_eq!(agreements.joins.lock().len(), 1);
        assert_eq!(follower.await.unwrap(), agreed);
        assert!(agreements.joins.lock().is_empty(), "all know");
    }

    #[tokio::test]
    async fn a_task_that_fails_ends_the_wait_with_no_heavy_keys() {
        let agreements = Agreements::default();
        let follower = agreements.agree(ask(0, 0, None));
        let failing = Some(KeySample {
            failed: true,
            ..KeySample::default()
        });
        let (follower, failed) = tokio::join!(follower, agreements.agree(ask(1, 0, failing)));
        assert_eq!(follower.unwrap(), Agreed::default());
        assert_eq!(failed.unwrap(), Agreed::default());
        // Whoever comes later hears the same.
        let late = agreements.agree(ask(1, 1, sample(4000))).await;
        assert_eq!(late.unwrap(), Agreed::default());
    }

    #[tokio::test]
    async fn a_sample_that_never_comes_is_not_waited_for_for_ever() {
        let agreements = Agreements::with_patience(Duration::from_millis(20));
        let first = agreements.agree(ask(1, 0, sample(4000))).await;
        assert_eq!(first.unwrap(), Agreed::default());
        let late = agreements.agree(ask(1, 1, sample(4000))).await;
        assert_eq!(late.unwrap(), Agreed::default());
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused() {
        let agreements = Agreements::default();
        let wrong = [
            Agree {
                query: vec![1],
                ..ask(0, 0, None)
            },
            ask(2, 0, None),
            Agree {
                samplers: 9,
                ..ask(0, 0, None)
            },
            Agree {
                partitions: 0,
                ..ask(0, 0, None)
            },
            ask(0, 0, sample(4001)),
            Agree {
                tasks: u64::MAX,
                ..ask(0, 0, None)
            },
        ];
        for wrong in wrong {
            assert!(agreements.agree(wrong.clone()).await.is_err(), "{wrong:?}");
        }
        assert!(agreements.agree(ask(0, 0, None)).now_or_never().is_none());
        let other = Agree {
            partitions: 4,
            ..ask(0, 1, None)
        };
        assert!(agreements.agree(other).await.is_err());
        let many = Agreed {
            left: vec![1; HEAVY_MAX + 1],
            right: Vec::new(),
        };
        assert!(decision_of(many).is_err());
    }
}
