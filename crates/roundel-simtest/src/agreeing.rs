//! How simulated tasks agree on the heavy keys of a join: in memory, where an engine's tasks would ask one of its workers.

use futures::channel::oneshot;
use parking_lot::Mutex;
use roundel_exchange::skew::{Agreement, Decision, Sample, Seen, Task, Terms};
use roundel_verbs::Context;
use std::sync::Arc;
use std::time::Duration;

/// The place at which the tasks of a join agree.
pub struct Agreeing(Mutex<Agreed>);

struct Agreed {
    agreement: Agreement,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Agreeing {
    /// Of so many tasks of each input; those of the inputs that may be spread tell samples. Without such tasks no key is
    /// heavy.
    pub fn new(tasks: usize, partitions: usize, spreads: [bool; 2]) -> Self {
        let samplers = spreads.iter().filter(|spreads| **spreads).count() * tasks;
        let mut agreement = Agreement::new(Terms {
            samplers: samplers as u64,
            tasks: 2 * tasks as u64,
            partitions: partitions as u64,
            expected: [None, None],
        });
        if samplers == 0 {
            agreement.give_up();
        }
        Self(Mutex::new(Agreed {
            agreement,
            waiting: Vec::new(),
        }))
    }

    /// Hears a task's sample.
    pub fn hear(&self, task: Task, sample: &Sample) {
        self.change(|agreement| {
            let seen = Seen::of(sample, agreement.terms().partitions);
            agreement.hear(task, &seen);
        });
    }

    /// What was decided, once it is. Who has waited for as long as its patience has all do without heavy keys.
    pub async fn decided(
        &self,
        context: &dyn Context,
        patience: Option<Duration>,
    ) -> Arc<Decision> {
        loop {
            let told = {
                let mut agreed = self.0.lock();
                if let Some(decision) = agreed.agreement.decision() {
                    return decision.clone();
                }
                let (tell, told) = oneshot::channel();
                agreed.waiting.push(tell);
                told
            };
            match patience {
                None => drop(told.await),
                Some(patience) => {
                    futures::future::select(told, context.sleep(patience)).await;
                    self.change(Agreement::give_up);
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Agreement)) {
        let mut agreed = self.0.lock();
        change(&mut agreed.agreement);
        if agreed.agreement.decision().is_some() {
            for waiting in std::mem::take(&mut agreed.waiting) {
                // Who does not wait any more need not know.
                let _ = waiting.send(());
            }
        }
    }
}
