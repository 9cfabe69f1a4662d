//! Shared receive queues.
#![allow(unsafe_code)] // Calls the library, and implements the provider's unsafe post verb.

use super::bindings::*;
use super::completion_queue::{RdmaCompletionQueue, Room};
use super::device_state::DeviceState;
use super::library::last_error;
use super::pair_state::Abandoned;
use super::work::post_receives;
use crate::error::{Result, VerbsError};
use crate::provider::{ProviderSharedReceiveQueue, RawReceiveRequest};
use parking_lot::Mutex;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

pub(super) struct RdmaSharedReceiveQueue {
    device: Arc<DeviceState>,
    /// Null when it is destroyed.
    raw: AtomicPtr<ibv_srq>,
    depth: usize,
    /// Room for its completions, in each completion queue that one of its queue pairs uses.
    rooms: Mutex<Vec<Weak<Room>>>,
    /// Filled by the queue pairs that took receives from it.
    pub abandoned: Arc<Abandoned>,
}

impl RdmaSharedReceiveQueue {
    pub(super) fn create(device: &Arc<DeviceState>, depth: usize) -> Result<Self> {
        // SAFETY: the struct holds numbers and a pointer, for which zero is valid.
        let mut initial: ibv_srq_init_attr = unsafe { zeroed() };
        initial.attr.max_wr = depth.max(1) as u32;
        initial.attr.max_sge = 1;
        // SAFETY: the domain is alive as long as the device state.
        let raw = unsafe { (device.verbs().ibv_create_srq)(device.domain, &mut initial) };
        if raw.is_null() {
            return Err(last_error("ibv_create_srq"));
        }
        Ok(Self {
            device: device.clone(),
            raw: AtomicPtr::new(raw),
            depth,
            rooms: Mutex::default(),
            abandoned: Arc::default(),
        })
    }

    /// Room for the completions of all its receives in a completion queue: the queue pairs there
    /// share it, for no more than these come, whichever of them take them.
    pub(super) fn room_in(&self, queue: &Arc<RdmaCompletionQueue>) -> Result<Arc<Room>> {
        let mut rooms = self.rooms.lock();
        rooms.retain(|room| room.strong_count() > 0);
        let known = rooms.iter().filter_map(Weak::upgrade);
        if let Some(room) = known.into_iter().find(|room| room.is_in(queue)) {
            return Ok(room);
        }
        let room = Arc::new(Room::reserve(queue, self.depth.max(1))?);
        rooms.push(Arc::downgrade(&room));
        Ok(room)
    }

    /// The queue behind the trait.
    pub(super) fn of(queue: Arc<dyn ProviderSharedReceiveQueue>) -> Result<Arc<Self>> {
        let any: Arc<dyn std::any::Any + Send + Sync> = queue;
        any.downcast().map_err(|_| {
            VerbsError::InvalidRequest("a shared receive queue of another provider".to_owned())
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_srq {
        self.raw.load(Ordering::Acquire)
    }
}

impl ProviderSharedReceiveQueue for RdmaSharedReceiveQueue {
    unsafe fn post_receive(&self, requests: &[RawReceiveRequest]) -> Result<usize> {
        let raw = self.raw();
        // SAFETY: the object model destroys the queue after its last post; the operations table of
        // an open context does not change.
        unsafe {
            let post = (*self.device.context.raw).ops.post_srq_recv;
            let least_entries = i32::from(self.device.context.iwarp);
            post_receives(requests, least_entries, |work, refused| match post {
                Some(post) => post(raw, work, refused),
                None => rustix::io::Errno::NOSYS.raw_os_error(),
            })
        }
    }

    fn take_abandoned(&self) -> Vec<u64> {
        std::mem::take(&mut *self.abandoned.lock())
    }

    fn destroy(&self) {
        let raw = self.raw.swap(null_mut(), Ordering::AcqRel);
        if raw.is_null() {
            return;
        }
        // SAFETY: taken once; its queue pairs are gone, for they keep the object model's queue.
        let code = unsafe { (self.device.verbs().ibv_destroy_srq)(raw) };
        if code != 0 {
            tracing::warn!(code, "a shared receive queue could not be destroyed");
        }
    }
}
