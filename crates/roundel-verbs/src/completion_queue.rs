//! Completion queues and channels, and the one place that waits: poll, spin a little, arm, poll
//! again, sleep.

use crate::counters::Opcode;
use crate::error::{Result, VerbsError};
use crate::in_flight::InFlight;
use crate::provider::{ProviderChannel, ProviderCompletionQueue, RawCompletion};
use crate::work::Completion;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// How the tasks that wait for completions of a channel's queues wait (Liu, Yin, Blanas 2019, section
/// 7.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Asleep, until there is an event.
    #[default]
    Events,
    /// Awake for so long after the last completion, then asleep.
    SpinThenSleep(Duration),
    /// Awake: other tasks of the runtime run in between, but it never sleeps.
    Poll,
}

/// Where completions of queue pairs arrive. Clones share it.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Inner>);

struct Inner {
    provider: Arc<dyn ProviderCompletionQueue>,
    channel: Option<CompletionChannel>,
    state: Mutex<State>,
    wakers: Mutex<Vec<Waker>>,
}

#[derive(Default)]
struct State {
    in_flight: HashMap<u32, Arc<InFlight>>,
    scratch: Vec<RawCompletion>,
    /// When a task first found nothing since the last completion, where tasks spin.
    idle_since: Option<Instant>,
}

impl CompletionQueue {
    pub(crate) fn new(
        provider: Arc<dyn ProviderCompletionQueue>,
        channel: Option<CompletionChannel>,
    ) -> Self {
        let queue = Self(Arc::new(Inner {
            provider,
            channel,
            state: Mutex::default(),
            wakers: Mutex::default(),
        }));
        if let Some(channel) = &queue.0.channel {
            channel.0.queues.lock().push(Arc::downgrade(&queue.0));
        }
        queue
    }

    pub(crate) fn provider(&self) -> &Arc<dyn ProviderCompletionQueue> {
        &self.0.provider
    }

    pub(crate) fn attach(&self, queue_pair: u32, in_flight: &Arc<InFlight>) {
        self.0
            .state
            .lock()
            .in_flight
            .insert(queue_pair, in_flight.clone());
    }

    /// Forgets a queue pair, but not the next one that has its number already.
    pub(crate) fn detach(&self, queue_pair: u32, in_flight: &Arc<InFlight>) {
        let mut state = self.0.state.lock();
        let known = state.in_flight.get(&queue_pair);
        if known.is_some_and(|known| Arc::ptr_eq(known, in_flight)) {
            state.in_flight.remove(&queue_pair);
        }
    }

    /// Appends at most `limit` completions to `completions`; returns how many.
    pub fn poll(&self, completions: &mut Vec<Completion>, limit: usize) -> usize {
        let mut state = self.0.state.lock();
        let before = completions.len();
        // None at all means that there are none: completions of a queue pair that is just being
        // dropped must not hide those behind them.
        while self.poll_some(&mut state, completions, limit) > 0 && completions.len() == before {}
        let found = completions.len() - before;
        if found > 0 {
            state.idle_since = None;
        }
        found
    }

    /// Takes at most `limit` completions from the provider and appends those that somebody waits
    /// for; returns how many it took.
    fn poll_some(
        &self,
        state: &mut State,
        completions: &mut Vec<Completion>,
        limit: usize,
    ) -> usize {
        state.scratch.clear();
        let taken = self.0.provider.poll(&mut state.scratch, limit);
        // Most often all are of one queue pair: it is looked for, and its slots are locked, once.
        let is_send = |raw: &RawCompletion| raw.opcode != Opcode::Receive;
        let alike = |a: &RawCompletion, b: &RawCompletion| {
            a.queue_pair == b.queue_pair && is_send(a) == is_send(b)
        };
        for ended in state.scratch.chunk_by(alike) {
            // A completion of a queue pair that was dropped meanwhile has no owner any more.
            if let Some(first) = ended.first()
                && let Some(in_flight) = state.in_flight.get(&first.queue_pair)
            {
                in_flight.complete(is_send(first), ended, completions);
            }
        }
        taken
    }

    /// Asks for an event at the next completion. Poll once more afterwards.
    pub fn arm(&self) {
        self.0.provider.arm();
    }

    /// Whether it was armed and no completion has come since: whoever waits for it is going to sleep.
    pub fn is_armed(&self) -> bool {
        self.0.provider.armed()
    }

    /// Registers the task to be woken at the next completion and arms the queue. Poll once more
    /// afterwards, then return [`Poll::Pending`]. Needs a channel that a
    /// [driver](CompletionChannel::drive) serves. As the channel's [`WaitPolicy`] has it, the task may
    /// instead be woken at once, after the others that can run.
    pub fn wake_at_next(&self, cx: &mut TaskContext<'_>) {
        let spins = self.spins();
        if spins && !self.0.provider.wake_when_new(cx.waker()) {
            // Polled once, it has the runtime wake the task when it has looked at the others.
            let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
        }
        {
            let mut wakers = self.0.wakers.lock();
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
        }
        // A task that stays awake needs no event, which would cost whoever completes a request a call.
        if !spins && !self.0.provider.arm() {
            // It had fired, or was never armed. The driver may not have come to it yet and would
            // now find it armed: others that wait are told here.
            self.wake_all_but(cx.waker());
        }
    }

    /// Has the task woken once when there may be something new: a completion, or bytes that a queue pair of this
    /// queue has written. Only providers on virtual time know of such bytes. Elsewhere this is false, and a task that
    /// waits for them has to look again and again.
    pub fn wake_when_new(&self, cx: &TaskContext<'_>) -> bool {
        self.0.provider.wake_when_new(cx.waker())
    }

    /// Whether a task that finds nothing stays awake.
    fn spins(&self) -> bool {
        let policy = match &self.0.channel {
            Some(channel) => *channel.0.policy.lock(),
            None => WaitPolicy::Events,
        };
        match policy {
            WaitPolicy::Events => false,
            WaitPolicy::Poll => true,
            WaitPolicy::SpinThenSleep(spin) => {
                let mut state = self.0.state.lock();
                let since = *state.idle_since.get_or_insert_with(now);
                now().saturating_duration_since(since) < spin
            }
        }
    }

    fn wake_all_but(&self, own: &Waker) {
        let others: Vec<Waker> = {
            let mut wakers = self.0.wakers.lock();
            let (own, others) = std::mem::take(&mut *wakers)
                .into_iter()
                .partition(|waker| waker.will_wake(own));
            *wakers = own;
            others
        };
        for waker in others {
            waker.wake();
        }
    }

    /// Wakes the tasks that wait for this queue.
    pub fn wake(&self) {
        let wakers = std::mem::take(&mut *self.0.wakers.lock());
        for waker in wakers {
            waker.wake();
        }
    }

    /// Polls until there is a completion or `timeout` has passed, blocking the thread: first
    /// `spins` times without sleeping, then asleep on the channel. Returns how many completions
    /// were appended. One thread at a time may wait on a channel: it takes the channel's events.
    ///
    /// # Errors
    /// When the queue has no channel.
    pub fn wait(
        &self,
        completions: &mut Vec<Completion>,
        limit: usize,
        spins: usize,
        timeout: Duration,
    ) -> Result<usize> {
        for _ in 0..spins {
            let found = self.poll(completions, limit);
            if found > 0 {
                return Ok(found);
            }
            std::hint::spin_loop();
        }
        let Some(channel) = &self.0.channel else {
            return Err(VerbsError::InvalidRequest(
                "waiting needs a completion queue with a channel".into(),
            ));
        };
        let deadline = now() + timeout;
        loop {
            self.arm();
            let found = self.poll(completions, limit);
            if found > 0 {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Ok(0);
            }
            channel.wait_readable(left)?;
            channel.acknowledge();
        }
    }
}

/// The clock of blocking waits, which no simulated provider has.
fn now() -> Instant {
    Instant::now()
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CompletionQueue")
    }
}

/// Tells of completions in armed queues through a file descriptor. Clones share it.
#[derive(Clone)]
pub struct CompletionChannel(Arc<ChannelInner>);

struct ChannelInner {
    provider: Arc<dyn ProviderChannel>,
    queues: Mutex<Vec<Weak<Inner>>>,
    policy: Mutex<WaitPolicy>,
}

impl CompletionChannel {
    pub(crate) fn new(provider: Arc<dyn ProviderChannel>) -> Self {
        Self(Arc::new(ChannelInner {
            provider,
            queues: Mutex::default(),
            policy: Mutex::default(),
        }))
    }

    pub(crate) fn provider(&self) -> &Arc<dyn ProviderChannel> {
        &self.0.provider
    }

    /// How tasks wait for its queues from here on; asleep unless this says otherwise.
    pub fn set_wait_policy(&self, policy: WaitPolicy) {
        *self.0.policy.lock() = policy;
    }

    /// Takes the events that are there.
    pub fn acknowledge(&self) {
        self.0.provider.acknowledge();
    }

    /// Wakes the tasks of the queues that have fired.
    pub fn dispatch(&self) {
        let mut fired = Vec::new();
        self.0.queues.lock().retain(|queue| {
            let Some(queue) = queue.upgrade() else {
                return false;
            };
            if !queue.provider.armed() {
                fired.push(CompletionQueue(queue));
            }
            true
        });
        for queue in fired {
            queue.wake();
        }
    }

    /// Serves the channel: waits for events and wakes the tasks that wait for their queues. Ends
    /// when nobody holds the channel or one of its queues any more.
    ///
    /// # Errors
    /// When the file descriptor cannot be watched; needs a tokio runtime with I/O, but on virtual time.
    pub fn drive(&self) -> Result<impl Future<Output = ()> + Send + use<>> {
        let failed = |source| VerbsError::System {
            call: "watching a completion channel",
            source,
        };
        // The driver keeps the provider's channel, so that its descriptor stays open, but not the
        // object model's: when that is dropped, the driver is told and ends.
        let provider = self.0.provider.clone();
        let mut nobody = TaskContext::from_waker(Waker::noop());
        let watched = match provider.poll_event(&mut nobody) {
            Some(_) => None,
            None => {
                let watched = Watched(provider.clone());
                // SAFETY: the descriptor stays open as long as the watcher holds the provider's channel.
                #[allow(unsafe_code)]
                let watched = unsafe {
                    AsyncFd::register_with_interest(watched, tokio::io::Interest::READABLE)
                };
                Some(watched.map_err(|error| failed(error.into()))?)
            }
        };
        let channel = Arc::downgrade(&self.0);
        Ok(async move {
            loop {
                match &watched {
                    Some(watched) => match watched.readable().await {
                        Ok(mut guard) => guard.clear_ready(),
                        Err(_) => return,
                    },
                    None => {
                        let event = |cx: &mut TaskContext<'_>| provider.poll_event(cx);
                        std::future::poll_fn(|cx| event(cx).unwrap_or(Poll::Ready(()))).await;
                    }
                }
                let Some(channel) = channel.upgrade().map(CompletionChannel) else {
                    return;
                };
                channel.acknowledge();
                channel.dispatch();
            }
        })
    }

    fn wait_readable(&self, timeout: Duration) -> Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let fd = self.as_fd();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(VerbsError::system("poll")(errno)),
        }
    }
}

/// A provider's channel as its descriptor.
struct Watched(Arc<dyn ProviderChannel>);

impl std::os::fd::AsRawFd for Watched {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.fd().as_raw_fd()
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // The driver wakes up and finds the channel gone.
        self.provider.notify();
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.provider.fd()
    }
}

/// Runs `poll_once` until it is ready: the shape of every wait above this crate. When it is not,
/// the queues are armed and it is asked once more before the task sleeps.
pub async fn until_ready<T>(
    queues: &[&CompletionQueue],
    mut poll_once: impl FnMut(&mut TaskContext<'_>) -> Poll<T>,
) -> T {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = poll_once(cx) {
            return Poll::Ready(value);
        }
        for queue in queues {
            queue.wake_at_next(cx);
        }
        poll_once(cx)
    })
    .await
}

/// A boxed future, as the seams of this crate return them.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
