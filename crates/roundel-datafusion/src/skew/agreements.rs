//! How the tasks of both inputs of a join agree on its heavy keys: they ask one worker, which answers when it has heard
//! from all that tell samples, and gives everybody the same answer.

use crate::protocol::{Agree, Agreed, Heavy, KeySample};
use parking_lot::Mutex;
use roundel_exchange::skew::{Agreement, Decision, HEAVY_MAX, Sample, Seen, Task, Terms};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// How long samples are waited for, from when the first task asks. After that no key is heavy: a task may have ended
/// without telling its sample.
const SAMPLES_DEADLINE: Duration = Duration::from_secs(30);
/// An answer is kept until all tasks have it. If some tasks never ask, it is kept for this long, by which time its
/// query must have ended: to decide a second time would be wrong.
const ANSWER_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Most joins at a time.
const AGREEMENTS_MAX: usize = 1 << 16;

/// What is wrong with a question that no task asks.
const CANNOT_BE: &str = "a task of a join told what cannot be";

/// A join of a query.
type Key = (Uuid, u64);

/// The joins whose tasks agree at this worker.
#[derive(Clone)]
pub(crate) struct Agreements {
    joins: Arc<Mutex<HashMap<Key, Arc<Join>>>>,
    patience: Duration,
}

struct Join {
    begun: Instant,
    agreement: watch::Sender<Agreement>,
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
    pub(crate) async fn agree(&self, ask: Agree) -> Result<Agreed, String> {
        let query =
            Uuid::from_slice(&ask.query).map_err(|error| format!("a query's id: {error}"))?;
        let key = (query, ask.join);
        let (task, terms) = terms_of(&ask)?;
        let join = self.at(key, terms)?;
        if *join.agreement.borrow().terms() != terms {
            return Err("two tasks of a join were told different things of it".to_owned());
        }
        if let Some(sample) = ask.sample {
            join.hear(task, sample)?;
        }
        let decision = join.decided(self.patience).await;
        let mut all_know = false;
        join.agreement.send_if_modified(|agreement| {
            all_know = agreement.knows(task);
            false
        });
        if all_know {
            self.joins.lock().remove(&key);
        }
        let [left, right] = decision.0.clone();
        Ok(Agreed { left, right })
    }

    fn at(&self, key: Key, terms: Terms) -> Result<Arc<Join>, String> {
        let mut joins = self.joins.lock();
        if let Some(join) = joins.get(&key) {
            return Ok(Arc::clone(join));
        }
        if joins.len() >= AGREEMENTS_MAX {
            joins.retain(|_, join| join.begun.elapsed() < ANSWER_KEPT);
        }
        if joins.len() >= AGREEMENTS_MAX {
            return Err(format!(
                "tasks of {AGREEMENTS_MAX} joins agree on heavy keys at this worker: set roundel.skew to off"
            ));
        }
        let join = Arc::new(Join {
            begun: Instant::now(),
            agreement: watch::Sender::new(Agreement::new(terms)),
        });
        joins.insert(key, Arc::clone(&join));
        Ok(join)
    }
}

/// Who asks, and what it knows of the join.
fn terms_of(ask: &Agree) -> Result<(Task, Terms), String> {
    let task = (ask.side as usize, ask.task);
    let terms = Terms {
        samplers: ask.samplers,
        tasks: ask.tasks,
        partitions: ask.partitions,
        expected: [ask.expected_left, ask.expected_right],
    };
    match terms.fit(task) {
        true => Ok((task, terms)),
        false => Err(CANNOT_BE.to_owned()),
    }
}

impl Join {
    fn hear(&self, task: Task, sample: KeySample) -> Result<(), String> {
        let keys = sample.heavy.iter();
        let seen = Seen {
            rows: sample.rows,
            keys: keys.map(|Heavy { hash, count }| (*hash, *count)).collect(),
        };
        if !seen.fits() {
            return Err(CANNOT_BE.to_owned());
        }
        self.change(|agreement| match sample.failed {
            // The query fails with that task: nobody is to wait for it.
            true => agreement.give_up(),
            false => agreement.hear(task, &seen),
        });
        Ok(())
    }

    /// Changes the agreement. Tasks that wait for a decision are told when there is one.
    fn change(&self, change: impl FnOnce(&mut Agreement)) {
        self.agreement.send_if_modified(|agreement| {
            let before = agreement.decision().is_some();
            change(agreement);
            agreement.decision().is_some() != before
        });
    }

    async fn decided(&self, patience: Duration) -> Arc<Decision> {
        let mut agreement = self.agreement.subscribe();
        let decided = agreement.wait_for(|agreement| agreement.decision().is_some());
        let in_time = timeout_at(self.begun + patience, decided).await.is_ok();
        if !in_time {
            self.change(Agreement::give_up);
        }
        let decision = self.agreement.borrow().decision().cloned();
        decision.unwrap_or_default()
    }
}

/// The message that tells a sample to the worker that decides, for a join with `partitions` partitions.
pub(super) fn sample_of(sample: &Sample, partitions: u64, failed: bool) -> KeySample {
    let seen = Seen::of(sample, partitions);
    let heavy = seen.keys.into_iter();
    KeySample {
        rows: seen.rows,
        heavy: heavy.map(|(hash, count)| Heavy { hash, count }).collect(),
        failed,
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
        // A task that comes later hears the same.
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
