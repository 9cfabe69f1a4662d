//! The two sides of a thread take turns: after each batch the one that sends lets the one that receives
//! go on, so that neither runs far ahead in memory that has left the caches by then.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

/// Turns before the thread looks at anything else: timers, and events of other queues.
const TURNS: usize = 32;

/// Whose turn it is.
#[derive(Default)]
pub struct Turns {
    /// A side has given its turn away and wants it back.
    wanted: AtomicBool,
}

impl Turns {
    /// Lets the other side go on.
    pub async fn give(&self) {
        let mut given = false;
        poll_fn(|_| {
            if std::mem::replace(&mut given, true) {
                return Poll::Ready(());
            }
            self.wanted.store(true, Relaxed);
            Poll::Pending
        })
        .await;
    }

    /// Whether the other side will go on by itself.
    pub fn are_given(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Waits until it is this side's turn again, which it is once more before both sides sleep.
    pub async fn pause(&self) {
        let mut paused = false;
        poll_fn(|_| match std::mem::replace(&mut paused, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Runs both sides until both are done, or one has failed. It is the first that gives turns.
    pub async fn join<A, B, E>(
        &self,
        one: impl Future<Output = Result<A, E>>,
        other: impl Future<Output = Result<B, E>>,
    ) -> Result<(A, B), E> {
        let (mut one, mut other) = (pin!(one), pin!(other));
        let (mut of_one, mut of_other) = (None, None);
        poll_fn(|cx| {
            for _ in 0..TURNS {
                self.wanted.store(false, Relaxed);
                if of_one.is_none()
                    && let Poll::Ready(done) = one.as_mut().poll(cx)
                {
                    of_one = Some(done?);
                }
                if of_other.is_none()
                    && let Poll::Ready(done) = other.as_mut().poll(cx)
                {
                    of_other = Some(done?);
                }
                if let (Some(_), Some(_)) = (&of_one, &of_other) {
                    let both = of_one.take().zip(of_other.take());
                    return Poll::Ready(Ok(both.expect("both are there")));
                }
                if !self.wanted.load(Relaxed) {
                    return Poll::Pending;
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;
    use std::cell::RefCell;

    #[test]
    fn sides_take_turns() {
        let turns = Turns::default();
        let order = RefCell::new(Vec::new());
        let side = async |name: char| {
            for _ in 0..100 {
                order.borrow_mut().push(name);
                turns.give().await;
            }
            Ok::<_, ()>(name)
        };
        let both = futures::executor::block_on(turns.join(side('a'), side('b')));
        assert_eq!(both, Ok(('a', 'b')));
        assert_eq!(order.into_inner(), ['a', 'b'].repeat(100));
    }

    #[test]
    fn the_failure_of_one_ends_both() {
        let turns = Turns::default();
        let never = std::future::pending::<Result<(), &str>>();
        let failed = futures::executor::block_on(turns.join(never, async { Err::<(), _>("no") }));
        assert_eq!(failed, Err("no"));
    }
}
