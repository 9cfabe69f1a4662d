//! How an end waits: the one loop around its steps, on a task of any context, or on a thread of its own.

use crate::error::Result;
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::{CompletionQueue, Context};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

/// A thread that has found nothing so often lets others run.
const SPINS: u32 = 200;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do any more.
    Done,
    /// Something happened: the next step may find more.
    Progress,
    /// Nothing happened, and nothing will before something comes, or before this moment.
    Idle(Option<Duration>),
}

/// Something done in steps that never block, each of which is told the time.
pub trait Steps {
    /// The next step.
    ///
    /// # Errors
    /// When it cannot go on.
    fn step(&mut self, now: Duration) -> Result<Step>;

    /// The queue whose completions it waits for. None where it has to look again and again.
    fn queue(&self) -> Option<&CompletionQueue>;
}

/// Takes steps until they are done, as a task. Others of the runtime run in between.
///
/// # Errors
/// That of a step.
pub async fn drive(steps: &mut impl Steps, context: &dyn Context) -> Result<()> {
    let mut alarm = Alarm::default();
    std::future::poll_fn(|cx| {
        let mut armed = false;
        loop {
            let until = match steps.step(context.now()) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Step::Done) => return Poll::Ready(Ok(())),
                Ok(Step::Progress) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Step::Idle(until)) => until,
            };
            match steps.queue() {
                // On virtual time nothing comes within a turn of a task.
                Some(queue) if queue.wake_when_new(cx) => {}
                Some(queue) if !armed => {
                    queue.wake_at_next(cx);
                    // A completion that came before that wakes nobody.
                    armed = true;
                    continue;
                }
                Some(_) => {}
                None => cx.waker().wake_by_ref(),
            }
            if until.is_some_and(|until| alarm.set(until, context, cx)) {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
    })
    .await
}

/// Takes steps until they are done, or nobody wants them any more, on this thread, which never sleeps.
///
/// # Errors
/// That of a step.
pub fn drive_here(steps: &mut impl Steps, context: &dyn Context, stop: &AtomicBool) -> Result<()> {
    let mut idle = 0;
    while !stop.load(Ordering::Relaxed) {
        match steps.step(context.now())? {
            Step::Done => return Ok(()),
            Step::Progress => idle = 0,
            Step::Idle(_) => {
                idle += 1;
                match idle % SPINS {
                    0 => std::thread::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            }
        }
    }
    Ok(())
}

/// A moment at which a task is woken.
#[derive(Default)]
pub(crate) struct Alarm(Option<(Duration, BoxFuture<'static, ()>)>);

impl Alarm {
    /// Has the task woken at this moment, or before; whether that is now.
    pub(crate) fn set(
        &mut self,
        until: Duration,
        context: &dyn Context,
        cx: &mut TaskContext<'_>,
    ) -> bool {
        if let Some((at, sleep)) = &mut self.0 {
            match sleep.as_mut().poll(cx) {
                Poll::Ready(()) => self.0 = None,
                // It can only be too early, which costs a look.
                Poll::Pending if *at <= until => return false,
                Poll::Pending => {}
            }
        }
        let now = context.now();
        if until <= now {
            return true;
        }
        let mut sleep = context.sleep(until - now);
        let over = sleep.as_mut().poll(cx).is_ready();
        self.0 = (!over).then_some((until, sleep));
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::{
        ArenaOptions, Payload, QueuePair, QueuePairOptions, ReceiveRequest, SendOperation,
        SendRequest, TokioContext, Transport, shm,
    };

    /// Finds nothing at first. The completion that it waits for comes before anybody has armed the queue.
    struct Overtaken {
        queue: CompletionQueue,
        peer: QueuePair,
        sent: bool,
    }

    impl Steps for Overtaken {
        fn step(&mut self, _: Duration) -> Result<Step> {
            if self.queue.poll(&mut Vec::new(), 1) > 0 {
                return Ok(Step::Done);
            }
            if !std::mem::replace(&mut self.sent, true) {
                let mut message = vec![SendRequest {
                    id: 0,
                    operation: SendOperation::Send,
                    payload: Payload::Empty,
                    destination: None,
                }];
                self.peer.post_send(&mut message)?;
            }
            Ok(Step::Idle(None))
        }

        fn queue(&self) -> Option<&CompletionQueue> {
            Some(&self.queue)
        }
    }

    #[tokio::test]
    async fn what_comes_before_the_queue_is_armed_is_found() {
        let device = shm::open(shm::ShmOptions::default()).unwrap();
        let channel = device.create_channel().unwrap();
        tokio::spawn(channel.drive().unwrap());
        let queue = device.create_completion_queue(2, Some(&channel)).unwrap();
        let others = device.create_completion_queue(2, None).unwrap();
        let options = QueuePairOptions {
            transport: Transport::ReliableConnection,
            send_depth: 1,
            receive_depth: 1,
            rnr_retry: 7,
            queue_key: 0,
        };
        let pair = device.create_queue_pair(&options, &queue, &queue).unwrap();
        let peer = device
            .create_queue_pair(&options, &others, &others)
            .unwrap();
        pair.connect(peer.address()).unwrap();
        peer.connect(pair.address()).unwrap();
        let buffer = device.arena(ArenaOptions::default()).allocate(64).unwrap();
        let mut receives = vec![ReceiveRequest {
            id: 0,
            buffer: Some(buffer),
        }];
        pair.post_receive(&mut receives).unwrap();
        let mut steps = Overtaken {
            queue,
            peer,
            sent: false,
        };
        // As a task: nothing else wakes one.
        let driven = tokio::spawn(async move {
            let context = TokioContext::current();
            drive(&mut steps, &context).await
        });
        let done = tokio::time::timeout(Duration::from_secs(5), driven).await;
        done.expect("it is woken").unwrap().unwrap();
    }
}
