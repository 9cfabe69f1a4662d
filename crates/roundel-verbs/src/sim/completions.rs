//! Completion queues and channels. A task that waits is woken in virtual time; the descriptor of a channel is
//! there for those who ask for it.

use super::locks::Lock;
use crate::error::{Result, VerbsError};
use crate::event::Event;
use crate::provider::{ProviderChannel, RawCompletion};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The completion queues of a node, by number.
#[derive(Default)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    free: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub completions: VecDeque<RawCompletion>,
    pub armed: bool,
    /// Of tasks that look for something new again and again.
    awake: Vec<Waker>,
    pub lock: Lock,
    pub channel: Option<Arc<SimChannel>>,
}

impl Queues {
    pub(super) fn create(&mut self, channel: Option<Arc<SimChannel>>) -> usize {
        let queue = Queue {
            channel,
            ..Queue::default()
        };
        match self.free.pop() {
            Some(number) => {
                self.queues[number] = queue;
                number
            }
            None => {
                self.queues.push(queue);
                self.queues.len() - 1
            }
        }
    }

    /// Forgets a queue that no queue pair has.
    pub(super) fn destroy(&mut self, number: usize) {
        self.queues[number] = Queue::default();
        self.free.push(number);
    }

    pub(super) fn at(&mut self, number: usize) -> &mut Queue {
        &mut self.queues[number]
    }
}

impl Queue {
    pub(super) fn push(&mut self, completion: RawCompletion) {
        self.completions.push_back(completion);
        self.wake();
        if std::mem::take(&mut self.armed)
            && let Some(channel) = &self.channel
        {
            channel.notify();
        }
    }

    /// A task looks again and again, which shows when there is something new.
    pub(super) fn wake_when_new(&mut self, waker: &Waker) {
        if !self.awake.iter().any(|awake| awake.will_wake(waker)) {
            self.awake.push(waker.clone());
        }
    }

    /// There may be something new.
    pub(super) fn wake(&mut self) {
        self.awake.drain(..).for_each(Waker::wake);
    }

    /// Forgets the completions of a queue pair that is gone.
    pub(super) fn detach(&mut self, number: u32) {
        self.completions
            .retain(|completion| completion.queue_pair != number);
    }
}

/// A completion channel.
pub(super) struct SimChannel {
    /// Signalled too, once somebody has asked for its descriptor.
    event: Event,
    state: Mutex<Signal>,
}

#[derive(Default)]
struct Signal {
    raised: bool,
    watched: bool,
    waker: Option<Waker>,
}

impl SimChannel {
    pub(super) fn create() -> Result<Self, VerbsError> {
        Ok(Self {
            event: Event::new()?,
            state: Mutex::default(),
        })
    }
}

impl ProviderChannel for SimChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.watched, true) && state.raised {
            self.event.signal();
        }
        self.event.as_fd()
    }

    fn acknowledge(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.raised) && state.watched {
            self.event.clear();
        }
    }

    fn notify(&self) {
        let waker = {
            let mut state = self.state.lock();
            if !std::mem::replace(&mut state.raised, true) && state.watched {
                self.event.signal();
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_event(&self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let mut state = self.state.lock();
        Some(match state.raised {
            true => Poll::Ready(()),
            false => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        })
    }
}
