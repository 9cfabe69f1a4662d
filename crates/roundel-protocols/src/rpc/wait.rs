//! How the task of an end waits. A completion wakes it. Bytes that only appear in memory do not: the task looks for them,
//! all the time for a while after something came, then now and then. On virtual time both wake it.

use crate::drive::Alarm;
use crate::error::Result;
use parking_lot::Mutex;
use roundel_verbs::{CompletionQueue, Context};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

/// So long after something came, other tasks run in between.
const AWAKE: Duration = Duration::from_micros(200);
/// Where messages only show in memory, it sleeps at first a tenth of [`AWAKE`] between two looks, and then twice as long
/// each time, up to this. Timers may be coarser.
const ASLEEP_MAX: Duration = Duration::from_millis(2);

/// What a step came to.
pub(super) enum Step {
    Done,
    Progress,
    Idle(Idle),
}

/// What may end the idleness of an end, besides its owner.
pub(super) struct Idle {
    /// Messages or completions may come through its queue.
    pub comes: bool,
    /// They may show in memory alone.
    pub looks: bool,
    /// This moment may come.
    pub until: Option<Duration>,
}

/// The end of a task, in steps.
pub(super) trait Steps {
    fn step(&mut self, now: Duration) -> Result<Step>;
    fn queue(&self) -> &CompletionQueue;
}

/// How the owner of a task wakes it.
#[derive(Default)]
pub(super) struct Bell(Mutex<Option<Waker>>);

impl Bell {
    pub(super) fn ring(&self) {
        let task = self.0.lock().take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Has the task woken when it rings.
    fn listen(&self, cx: &TaskContext<'_>) {
        let mut task = self.0.lock();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }
}

/// Takes steps until they are done.
pub(super) async fn drive(
    steps: &mut impl Steps,
    context: &dyn Context,
    bell: &Arc<Bell>,
) -> Result<()> {
    let mut rest = Rest {
        since: None,
        asleep: Duration::ZERO,
        alarm: Alarm::default(),
    };
    std::future::poll_fn(|cx| {
        let mut armed = false;
        loop {
            // The step sees what it rang for before that.
            bell.listen(cx);
            let idle = match steps.step(context.now()) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Step::Done) => return Poll::Ready(Ok(())),
                Ok(Step::Progress) => {
                    rest.since = None;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Step::Idle(idle)) => idle,
            };
            if !rest.begin(&idle, steps.queue(), armed, context, cx) {
                return Poll::Pending;
            }
            // A completion that came before the queue was armed wakes nobody.
            armed = true;
        }
    })
    .await
}

struct Rest {
    /// When nothing was found first.
    since: Option<Duration>,
    /// How long it slept last.
    asleep: Duration,
    alarm: Alarm,
}

impl Rest {
    /// Has the task woken; whether it has to look once more before it sleeps.
    fn begin(
        &mut self,
        idle: &Idle,
        queue: &CompletionQueue,
        armed: bool,
        context: &dyn Context,
        cx: &mut TaskContext<'_>,
    ) -> bool {
        let now = context.now();
        let since = *self.since.get_or_insert(now);
        let mut until = idle.until;
        if idle.comes && !queue.wake_when_new(cx) {
            if now < since + AWAKE {
                self.asleep = AWAKE / 20;
                // Polled once, it has the runtime wake the task when it has looked at the others.
                let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
                return false;
            }
            if !armed {
                queue.wake_at_next(cx);
                return true;
            }
            if idle.looks {
                self.asleep = (self.asleep * 2).min(ASLEEP_MAX);
                let look = now + self.asleep;
                until = Some(until.map_or(look, |until| until.min(look)));
            }
        }
        if until.is_some_and(|until| self.alarm.set(until, context, cx)) {
            cx.waker().wake_by_ref();
        }
        false
    }
}
