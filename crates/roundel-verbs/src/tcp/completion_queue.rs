//! Completion queues and channels: lists in this process, and a descriptor that wakes sleepers.
//! Knows nothing of queue pairs but their numbers.
//!
//! A thread that polls an empty queue looks after the device's sockets. A thread that sleeps in between
//! leaves that to the device's thread, except for a few polls around each sleep.

use super::state::DeviceState;
use crate::error::{Result, VerbsError};
use crate::event::Event;
use crate::provider::{ProviderChannel, ProviderCompletionQueue, RawCompletion};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Polls that may find nothing around a sleep.
const POLLS_OF_SLEEPERS: u32 = 8;

pub(super) struct TcpChannel(Event);

impl TcpChannel {
    pub(super) fn create() -> Result<Self> {
        Event::new().map(Self)
    }
}

impl ProviderChannel for TcpChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn acknowledge(&self) {
        self.0.clear();
    }

    fn notify(&self) {
        self.0.signal();
    }
}

pub(super) struct TcpCompletionQueue {
    device: Arc<DeviceState>,
    completions: Mutex<VecDeque<RawCompletion>>,
    /// How many there are, for those who look without the lock.
    count: AtomicUsize,
    armed: AtomicBool,
    /// How many more polls may find nothing before it counts as polled by somebody who spins.
    patience: AtomicU32,
    channel: Option<Arc<TcpChannel>>,
}

impl TcpCompletionQueue {
    pub(super) fn create(
        device: &Arc<DeviceState>,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Self> {
        let channel = channel.map(|channel| {
            let any: Arc<dyn std::any::Any + Send + Sync> = channel.clone();
            any.downcast::<TcpChannel>()
                .map_err(|_| VerbsError::InvalidRequest("a channel of another provider".into()))
        });
        Ok(Self {
            device: device.clone(),
            completions: Mutex::default(),
            count: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            patience: AtomicU32::new(0),
            channel: channel.transpose()?,
        })
    }

    /// Adds completions, and leaves the vector empty.
    pub(super) fn push(&self, completions: &mut Vec<RawCompletion>) {
        if completions.is_empty() {
            return;
        }
        {
            let mut queue = self.completions.lock();
            queue.extend(completions.drain(..));
            self.count.store(queue.len(), Ordering::Release);
        }
        // After the lock: a sleeper that armed and then found nothing had the lock before, so its
        // arming is seen here.
        if self.armed.load(Ordering::SeqCst)
            && self.armed.swap(false, Ordering::SeqCst)
            && let Some(channel) = &self.channel
        {
            channel.notify();
        }
    }

    /// Forgets the completions of a queue pair that is gone.
    pub(super) fn detach(&self, number: u32) {
        let mut queue = self.completions.lock();
        queue.retain(|completion| completion.queue_pair != number);
        self.count.store(queue.len(), Ordering::Release);
    }
}

impl ProviderCompletionQueue for TcpCompletionQueue {
    fn poll(&self, completions: &mut Vec<RawCompletion>, limit: usize) -> usize {
        // A poll after arming must take the lock: see `push`.
        if self.count.load(Ordering::Acquire) == 0 && !self.armed.load(Ordering::Relaxed) {
            let patience = self.patience.load(Ordering::Relaxed);
            if patience > 0 {
                self.patience.store(patience - 1, Ordering::Relaxed);
                return 0;
            }
            self.device.events.look_after_sockets();
            if self.count.load(Ordering::Acquire) == 0 {
                return 0;
            }
        }
        let mut queue = self.completions.lock();
        let count = queue.len().min(limit);
        completions.extend(queue.drain(..count));
        self.count.store(queue.len(), Ordering::Release);
        count
    }

    fn arm(&self) -> bool {
        self.patience.store(POLLS_OF_SLEEPERS, Ordering::Relaxed);
        let armed = self.armed.swap(true, Ordering::SeqCst);
        self.device.events.hand_over();
        armed
    }

    fn armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }
}

pub(super) fn queue_of_this_provider(
    queue: Arc<dyn ProviderCompletionQueue>,
) -> Result<Arc<TcpCompletionQueue>> {
    let any: Arc<dyn std::any::Any + Send + Sync> = queue;
    any.downcast()
        .map_err(|_| VerbsError::InvalidRequest("a completion queue of another provider".into()))
}
