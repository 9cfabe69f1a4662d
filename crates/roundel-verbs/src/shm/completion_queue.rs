//! Completion queues and channels of the `shm` provider.
//!
//! Receive completions stay in the receive rings, where the peer wrote them, until a poll visits
//! the ring; send completions are pushed by the posting thread.

use super::device::{DeviceState, Pair};
use super::layout::{CHANNELS_MAX, NO_CHANNEL};
use super::peer::{kick, signal};
use super::sync::Ordering;
use super::wakeup;
use crate::error::{Result, VerbsError};
use crate::provider::{ProviderChannel, ProviderCompletionQueue, RawCompletion};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

pub(super) struct ShmChannel {
    device: Arc<DeviceState>,
    index: usize,
}

impl ShmChannel {
    pub(super) fn create(device: &Arc<DeviceState>) -> Result<Self> {
        let mut free = device.free_channels.lock();
        let index = free.pop().ok_or(VerbsError::DeviceLimit {
            what: "completion channels",
            requested: CHANNELS_MAX + 1,
            limit: CHANNELS_MAX,
        })?;
        drop(free);
        let channel = Self {
            device: device.clone(),
            index,
        };
        channel.acknowledge();
        Ok(channel)
    }
}

impl ProviderChannel for ShmChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.device.eventfds[self.index].as_fd()
    }

    fn acknowledge(&self) {
        // Would-block means that there was no event, which is fine.
        let _ = rustix::io::read(&self.device.eventfds[self.index], &mut [0u8; 8]);
    }

    fn notify(&self) {
        signal(&self.device.eventfds[self.index]);
    }
}

impl Drop for ShmChannel {
    fn drop(&mut self) {
        self.device.free_channels.lock().push(self.index);
    }
}

pub(super) struct ShmCompletionQueue {
    device: Arc<DeviceState>,
    pub(super) index: u32,
    sends: Mutex<VecDeque<RawCompletion>>,
    pairs: Mutex<Pairs>,
    _channel: Option<Arc<dyn ProviderChannel>>,
}

/// The queue pairs to visit; each at most once per role.
#[derive(Default)]
struct Pairs {
    receivers: Vec<Arc<dyn Pair>>,
    senders: BTreeMap<u32, Arc<dyn Pair>>,
    /// Where the next poll begins, so that no queue pair starves the others.
    turn: usize,
}

impl ShmCompletionQueue {
    pub(super) fn create(
        device: &Arc<DeviceState>,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Self> {
        let channel_index = match channel {
            None => NO_CHANNEL,
            Some(channel) => {
                let any: &dyn std::any::Any = &**channel;
                any.downcast_ref::<ShmChannel>()
                    .ok_or_else(|| {
                        VerbsError::InvalidRequest("a channel of another provider".into())
                    })?
                    .index as u32
            }
        };
        let index = device
            .free_queues
            .lock()
            .pop()
            .ok_or(VerbsError::DeviceLimit {
                what: "completion queues",
                requested: super::layout::QUEUES_MAX + 1,
                limit: super::layout::QUEUES_MAX,
            })?;
        let queue = Self {
            device: device.clone(),
            index,
            sends: Mutex::default(),
            pairs: Mutex::default(),
            _channel: channel.cloned(),
        };
        let entry = queue.entry();
        entry.armed.store(0, Ordering::Relaxed);
        entry.channel.store(channel_index, Ordering::Release);
        Ok(queue)
    }

    fn entry(&self) -> &super::layout::QueueEntry {
        self.device
            .mapping
            .queue(self.index as usize)
            .expect("the index came from the free list")
    }

    pub(super) fn attach_sender(&self, pair: Arc<dyn Pair>) {
        self.pairs.lock().senders.insert(pair.number(), pair);
    }

    pub(super) fn attach_receiver(&self, pair: Arc<dyn Pair>) {
        self.pairs.lock().receivers.push(pair);
    }

    pub(super) fn detach(&self, number: u32) {
        let mut pairs = self.pairs.lock();
        pairs.senders.remove(&number);
        pairs.receivers.retain(|pair| pair.number() != number);
        // Nobody waits for them any more.
        let mut sends = self.sends.lock();
        sends.retain(|completion| completion.queue_pair != number);
    }

    /// Adds the completion of a send.
    pub(super) fn push(&self, completion: RawCompletion) {
        self.sends.lock().push_back(completion);
    }

    /// Adds those of several.
    pub(super) fn push_all(&self, completions: impl Iterator<Item = RawCompletion>) {
        self.sends.lock().extend(completions);
    }

    /// Wakes whoever sleeps on this queue in this process.
    pub(super) fn kick(&self) {
        kick(self.entry(), &self.device.eventfds);
    }

    /// The same, at `when`.
    pub(super) fn kick_at(self: &Arc<Self>, when: Instant) {
        let queue = Arc::downgrade(self);
        self.device.watch_list.call_at(when, move || {
            if let Some(queue) = queue.upgrade() {
                queue.kick();
            }
        });
    }
}

impl ProviderCompletionQueue for ShmCompletionQueue {
    fn poll(&self, completions: &mut Vec<RawCompletion>, limit: usize) -> usize {
        let before = completions.len();
        let room = |completions: &Vec<RawCompletion>| limit - (completions.len() - before);
        let mut pairs = self.pairs.lock();
        for pair in pairs.senders.values() {
            pair.progress();
        }
        {
            let mut sends = self.sends.lock();
            let count = sends.len().min(limit);
            for completion in sends.drain(..count) {
                if let Some(pair) = pairs.senders.get(&completion.queue_pair) {
                    pair.send_polled();
                }
                completions.push(completion);
            }
        }
        let count = pairs.receivers.len();
        for step in 0..count {
            if room(completions) == 0 {
                break;
            }
            let pair = &pairs.receivers[(pairs.turn + step) % count];
            pair.poll_receives(completions, room(completions));
        }
        pairs.turn = pairs.turn.wrapping_add(1);
        completions.len() - before
    }

    fn arm(&self) -> bool {
        wakeup::arm(self.entry())
    }

    fn armed(&self) -> bool {
        wakeup::is_armed(self.entry())
    }
}

impl Drop for ShmCompletionQueue {
    fn drop(&mut self) {
        self.entry().armed.store(0, Ordering::Relaxed);
        self.device.free_queues.lock().push(self.index);
    }
}
