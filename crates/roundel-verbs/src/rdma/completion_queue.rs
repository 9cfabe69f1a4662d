//! Completion queues. They grow with the queue pairs that use them, so that they cannot overrun. Where a device cannot
//! make a queue deeper, as Soft-iWARP, another is put beside it: one of this module has one or more of the device.
#![allow(unsafe_code)] // Calls the library.

use super::bindings::*;
use super::channel::RdmaChannel;
use super::device_state::DeviceState;
use super::doorbell::Doorbell;
use super::library::{check, last_error};
use super::pair_state::PairState;
use super::work::completion;
use crate::error::{Result, VerbsError};
use crate::provider::{ProviderChannel, ProviderCompletionQueue, RawCompletion};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

/// Completions taken from the device with one call.
const BATCH: usize = 32;

pub(super) struct RdmaCompletionQueue {
    device: Arc<DeviceState>,
    channel: Option<Arc<RdmaChannel>>,
    /// By which the channel knows the queue's events.
    mark: *mut c_void,
    /// Shared with the channel, which clears it when the event has come.
    armed: Arc<Mutex<bool>>,
    /// Rung when a queue pair has requests that the device will not end.
    pub bell: Arc<Doorbell>,
    inner: Mutex<Inner>,
}

// SAFETY: the library's calls on a completion queue are thread safe; all else is behind the lock.
unsafe impl Send for RdmaCompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for RdmaCompletionQueue {}

/// A completion queue of the device.
struct Part {
    raw: *mut ibv_cq,
    /// Completions that the queue pairs in use can have in the queue at a time.
    reserved: usize,
    /// Completions that fit.
    capacity: usize,
}

struct Inner {
    parts: Vec<Part>,
    pairs: HashMap<u32, Arc<PairState>>,
    /// Taken from the device, not yet polled.
    taken: VecDeque<RawCompletion>,
}

/// Room for the completions of a queue pair, or of a shared receive queue, given back when dropped.
pub(super) struct Room {
    queue: Arc<RdmaCompletionQueue>,
    completions: usize,
    /// Where they go.
    pub raw: *mut ibv_cq,
}

// SAFETY: the library's calls on a completion queue are thread safe, and the room keeps it alive.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

impl Room {
    /// Makes the queue large enough for as many completions more at a time.
    pub(super) fn reserve(queue: &Arc<RdmaCompletionQueue>, completions: usize) -> Result<Self> {
        Ok(Self {
            raw: queue.reserve(completions)?,
            queue: queue.clone(),
            completions,
        })
    }

    pub(super) fn is_in(&self, queue: &Arc<RdmaCompletionQueue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inner = self.queue.inner.lock();
        if let Some(part) = inner.parts.iter_mut().find(|part| part.raw == self.raw) {
            part.reserved -= self.completions;
        }
    }
}

impl RdmaCompletionQueue {
    pub(super) fn create(
        device: &Arc<DeviceState>,
        depth: usize,
        channel: Option<&Arc<dyn ProviderChannel>>,
    ) -> Result<Self> {
        let channel = channel
            .map(|channel| {
                let any: Arc<dyn std::any::Any + Send + Sync> = channel.clone();
                any.downcast::<RdmaChannel>().map_err(|_| {
                    VerbsError::InvalidRequest("a channel of another provider".to_owned())
                })
            })
            .transpose()?;
        let depth = depth.clamp(1, device.capabilities.completions_max);
        let armed = Arc::new(Mutex::new(false));
        let mark = match &channel {
            Some(channel) => channel.add(&armed),
            None => null_mut(),
        };
        let notified = channel.as_ref().map(|channel| channel.notified.clone());
        // From here on, dropping it destroys what it has.
        let queue = Self {
            device: device.clone(),
            channel,
            mark,
            bell: Arc::new(Doorbell::new(armed.clone(), notified)),
            armed,
            inner: Mutex::new(Inner {
                parts: Vec::new(),
                pairs: HashMap::new(),
                taken: VecDeque::new(),
            }),
        };
        let part = queue.create_part(depth)?;
        queue.inner.lock().parts.push(part);
        Ok(queue)
    }

    fn create_part(&self, depth: usize) -> Result<Part> {
        let channel = self
            .channel
            .as_ref()
            .map_or(null_mut(), |channel| channel.raw);
        let (verbs, context) = (self.device.verbs(), self.device.context.raw);
        // SAFETY: context and channel are alive; the mark is a number, never followed.
        let raw = unsafe { (verbs.ibv_create_cq)(context, depth as i32, self.mark, channel, 0) };
        if raw.is_null() {
            return Err(last_error("ibv_create_cq"));
        }
        Ok(Part {
            raw,
            reserved: 0,
            // SAFETY: the queue was created just now.
            capacity: usize::try_from(unsafe { (*raw).cqe }).unwrap_or(depth),
        })
    }

    /// Makes room for so many completions more at a time; returns where it is.
    fn reserve(&self, completions: usize) -> Result<*mut ibv_cq> {
        let mut inner = self.inner.lock();
        let fits = |part: &&mut Part| part.capacity - part.reserved >= completions;
        if let Some(part) = inner.parts.iter_mut().find(fits) {
            part.reserved += completions;
            return Ok(part.raw);
        }
        let reserved: usize = inner.parts.iter().map(|part| part.reserved).sum();
        let wanted = reserved + completions;
        let limit = self.device.capabilities.completions_max;
        if wanted > limit {
            return Err(VerbsError::DeviceLimit {
                what: "completions in a queue",
                requested: wanted,
                limit,
            });
        }
        // Twice as many, so that a queue does not grow with every queue pair.
        let size = (wanted * 2).min(limit);
        if self.device.context.iwarp {
            let mut part = self.create_part(size)?;
            part.reserved = completions;
            let raw = part.raw;
            inner.parts.push(part);
            if *self.armed.lock() {
                self.ask_for_event(raw);
            }
            return Ok(raw);
        }
        let part = &mut inner.parts[0];
        // SAFETY: the queue is alive.
        let code = unsafe { (self.device.verbs().ibv_resize_cq)(part.raw, size as i32) };
        check("ibv_resize_cq", code)?;
        (part.capacity, part.reserved) = (size, wanted);
        Ok(part.raw)
    }

    fn ask_for_event(&self, raw: *mut ibv_cq) {
        // SAFETY: the operations table of an open context has this entry; the queue is alive.
        let code = unsafe {
            (*self.device.context.raw)
                .ops
                .req_notify_cq
                .map_or(0, |notify| notify(raw, 0))
        };
        if code != 0 {
            tracing::error!(code, "arming a completion queue failed");
        }
    }

    /// Makes a queue pair known, before anything is posted to it.
    pub(super) fn attach(&self, state: &Arc<PairState>) {
        let mut inner = self.inner.lock();
        if let Some(other) = inner.pairs.get(&state.number()).cloned()
            && !Arc::ptr_eq(&other, state)
        {
            // The device has destroyed the other one and given its number again already.
            self.forget(&mut inner, &other);
        }
        inner.pairs.insert(state.number(), state.clone());
    }

    /// Forgets a queue pair that was destroyed.
    pub(super) fn detach(&self, state: &Arc<PairState>) {
        let mut inner = self.inner.lock();
        let known = inner.pairs.get(&state.number());
        if known.is_some_and(|known| Arc::ptr_eq(known, state)) {
            self.forget(&mut inner, state);
        }
    }

    /// Forgets a queue pair with the completions nobody waits for any more: they must neither fill
    /// the queue nor meet the next queue pair of this number.
    fn forget(&self, inner: &mut Inner, state: &PairState) {
        let mut found = Vec::new();
        while self.take(inner, &mut found, BATCH) > 0 {}
        inner.taken.extend(found);
        inner.taken.retain(|completion| {
            let waited_for = completion.queue_pair != state.number();
            if !waited_for {
                state.abandoned(completion);
            }
            waited_for
        });
        inner.pairs.remove(&state.number());
    }

    /// Takes completions from the device, at most a batch; returns how many. Fewer are all that there are.
    fn take(&self, inner: &Inner, found: &mut Vec<RawCompletion>, limit: usize) -> usize {
        let limit = limit.min(BATCH);
        let mut taken = 0;
        for part in &inner.parts {
            taken += self.take_from(part.raw, inner, found, limit - taken);
            if taken == limit {
                break;
            }
        }
        taken
    }

    fn take_from(
        &self,
        raw: *mut ibv_cq,
        inner: &Inner,
        found: &mut Vec<RawCompletion>,
        limit: usize,
    ) -> usize {
        let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        // SAFETY: the operations table of an open context has this entry.
        let Some(poll) = (unsafe { (*self.device.context.raw).ops.poll_cq }) else {
            return 0;
        };
        // SAFETY: the queue is alive; the array has room for `limit` completions.
        let count = unsafe { poll(raw, limit as i32, batch.as_mut_ptr().cast()) };
        let Ok(count) = usize::try_from(count) else {
            tracing::error!(device = %self.device.capabilities.device, "polling a completion queue failed");
            return 0;
        };
        for entry in &batch[..count.min(limit)] {
            // SAFETY: the call has filled the first `count` entries.
            let entry = unsafe { entry.assume_init_ref() };
            if let Some(state) = inner.pairs.get(&entry.qp_num) {
                let completion = completion(entry);
                let settled = match &state.link {
                    Some(link) => link.settle(&completion, found),
                    None => {
                        found.push(completion);
                        true
                    }
                };
                if settled {
                    state.completed(&completion, entry);
                }
            }
        }
        count
    }

    /// Ends what the device will not end.
    fn take_lost(&self, inner: &mut Inner) {
        let mut found = Vec::new();
        while self.take(inner, &mut found, BATCH) > 0 {}
        inner.taken.extend(found);
        for state in inner.pairs.values() {
            if let Some(link) = &state.link {
                link.take_lost(&self.bell, &mut inner.taken);
            }
        }
    }
}

impl ProviderCompletionQueue for RdmaCompletionQueue {
    fn poll(&self, completions: &mut Vec<RawCompletion>, limit: usize) -> usize {
        let before = completions.len();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if self.bell.answer() {
            self.take_lost(inner);
        }
        if self.device.context.iwarp {
            // A completion may hand others on that were waiting for it, more than are asked for.
            loop {
                let mut found = Vec::new();
                let count = self.take(inner, &mut found, BATCH);
                inner.taken.extend(found);
                if count < BATCH || inner.taken.len() >= limit {
                    break;
                }
            }
        }
        let taken = inner.taken.len().min(limit);
        completions.extend(inner.taken.drain(..taken));
        if self.device.context.iwarp {
            return taken;
        }
        loop {
            let room = limit - (completions.len() - before);
            if room == 0 || self.take(inner, completions, room) < room.min(BATCH) {
                return completions.len() - before;
            }
        }
    }

    fn arm(&self) -> bool {
        let inner = self.inner.lock();
        // Under the lock the event cannot come before the flag that it clears, and whoever finds
        // the flag set finds the device armed.
        let mut armed = self.armed.lock();
        if self.channel.is_none() || *armed {
            return true;
        }
        for part in &inner.parts {
            self.ask_for_event(part.raw);
        }
        *armed = true;
        false
    }

    fn armed(&self) -> bool {
        *self.armed.lock()
    }
}

impl Drop for RdmaCompletionQueue {
    fn drop(&mut self) {
        for part in &self.inner.get_mut().parts {
            // SAFETY: no queue pair uses it any more, for they hold it; its events were acknowledged
            // as they were read.
            let code = unsafe { (self.device.verbs().ibv_destroy_cq)(part.raw) };
            if code != 0 {
                tracing::warn!(code, "a completion queue could not be destroyed");
            }
        }
        if let Some(channel) = &self.channel {
            channel.remove(&self.armed);
        }
    }
}
