//! Completion channels: one descriptor for the events of armed completion queues.
#![allow(unsafe_code)] // Calls the library.

use super::bindings::*;
use super::device_state::DeviceState;
use super::library::last_error;
use crate::error::{Result, VerbsError};
use crate::provider::ProviderChannel;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;

/// The library's channel has a descriptor that only the device can make readable, so its users
/// get one that watches it and an eventfd.
pub(super) struct RdmaChannel {
    pub raw: *mut ibv_comp_channel,
    device: Arc<DeviceState>,
    both: OwnedFd,
    /// Shared with the doorbells of its queues.
    pub notified: Arc<OwnedFd>,
    queues: Mutex<Queues>,
}

// SAFETY: the library's calls on a channel are thread safe; all else is behind the lock.
unsafe impl Send for RdmaChannel {}
// SAFETY: as above.
unsafe impl Sync for RdmaChannel {}

/// The flags of the queues, by the mark that their events carry.
#[derive(Default)]
struct Queues {
    next: usize,
    armed: HashMap<usize, Arc<Mutex<bool>>>,
}

impl RdmaChannel {
    pub(super) fn create(device: &Arc<DeviceState>) -> Result<Self> {
        // SAFETY: the context is open as long as the device state.
        let raw = unsafe { (device.verbs().ibv_create_comp_channel)(device.context.raw) };
        if raw.is_null() {
            return Err(last_error("ibv_create_comp_channel"));
        }
        let system = VerbsError::system;
        let notified = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let channel = Self {
            raw,
            device: device.clone(),
            both: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create"))?,
            notified: Arc::new(notified.map_err(system("eventfd"))?),
            queues: Mutex::default(),
        };
        let events = channel.events();
        let flags = rustix::fs::fcntl_getfl(events).map_err(system("fcntl"))?;
        rustix::fs::fcntl_setfl(events, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(system("fcntl"))?;
        for fd in [events, channel.notified.as_fd()] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&channel.both, fd, data, epoll::EventFlags::IN)
                .map_err(system("epoll_ctl"))?;
        }
        Ok(channel)
    }

    /// The library's own descriptor.
    fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: open until the channel is destroyed, which is when `self` is dropped.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }

    /// Adds a queue's flag; returns the mark to create the queue with.
    pub(super) fn add(&self, armed: &Arc<Mutex<bool>>) -> *mut c_void {
        let mut queues = self.queues.lock();
        queues.next += 1;
        let mark = queues.next;
        queues.armed.insert(mark, armed.clone());
        std::ptr::without_provenance_mut(mark)
    }

    pub(super) fn remove(&self, armed: &Arc<Mutex<bool>>) {
        let mut queues = self.queues.lock();
        queues.armed.retain(|_, flag| !Arc::ptr_eq(flag, armed));
    }
}

impl ProviderChannel for RdmaChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn acknowledge(&self) {
        // Would-block means that there was no event, which is fine.
        let _ = rustix::io::read(&*self.notified, &mut [0u8; 8]);
        // The lock keeps a queue from being destroyed between its event and the flag.
        let queues = self.queues.lock();
        loop {
            let (mut queue, mut mark) = (null_mut(), null_mut());
            // SAFETY: the channel is alive; the descriptor does not block.
            let code =
                unsafe { (self.device.verbs().ibv_get_cq_event)(self.raw, &mut queue, &mut mark) };
            if code != 0 {
                return;
            }
            if let Some(armed) = queues.armed.get(&mark.addr()) {
                *armed.lock() = false;
            }
            // SAFETY: the event was got just now. A queue that is being destroyed waits for this.
            unsafe { (self.device.verbs().ibv_ack_cq_events)(queue, 1) };
        }
    }

    fn notify(&self) {
        // Would-block means that it is readable already.
        let _ = rustix::io::write(&*self.notified, &1u64.to_ne_bytes());
    }
}

impl Drop for RdmaChannel {
    fn drop(&mut self) {
        // SAFETY: no queue uses it any more, for they hold it.
        let code = unsafe { (self.device.verbs().ibv_destroy_comp_channel)(self.raw) };
        if code != 0 {
            tracing::warn!(code, "a completion channel could not be destroyed");
        }
    }
}
