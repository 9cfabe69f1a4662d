//! Asynchronous events of a device, read by a thread of its own: queue pairs that broke are known
//! to be, and the log says what happened to device and port.
#![allow(unsafe_code)] // Calls the library.

use super::bindings::*;
use super::context::Context;
use super::library::Verbs;
use super::pairs::Pairs;
use crate::error::{Result, VerbsError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::ffi::CStr;
use std::mem::zeroed;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The thread; it ends when this is dropped, which must be before the context is closed.
pub(super) struct Events {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has of the context.
struct Source {
    verbs: &'static Verbs,
    context: *mut ibv_context,
    device: String,
    pairs: Arc<Pairs>,
}

// SAFETY: the library's calls on a context are thread safe; the context outlives the thread.
unsafe impl Send for Source {}

impl Events {
    pub(super) fn watch(context: &Context, device: &str, pairs: &Arc<Pairs>) -> Result<Self> {
        // SAFETY: the context is open.
        let fd = unsafe { BorrowedFd::borrow_raw((*context.raw).async_fd) };
        let system = VerbsError::system;
        let flags = rustix::fs::fcntl_getfl(fd).map_err(system("fcntl"))?;
        rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(system("fcntl"))?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(system("eventfd"))?);
        let source = Source {
            verbs: context.verbs,
            context: context.raw,
            device: device.to_owned(),
            pairs: pairs.clone(),
        };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("rdma-events".to_owned())
            .spawn(move || source.serve(&stopped))
            .map_err(|source| VerbsError::System {
                call: "starting a thread",
                source,
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It holds nothing whose drop could end here: only weak references to queue pairs.
            let _ = thread.join();
        }
    }
}

impl Source {
    fn serve(self, stop: &OwnedFd) {
        // SAFETY: the context stays open until this thread has ended.
        let events = unsafe { BorrowedFd::borrow_raw((*self.context).async_fd) };
        loop {
            let mut fds = [
                PollFd::new(&events, PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) => {}
            }
            if !fds[1].revents().is_empty() {
                return;
            }
            while self.take_event() {}
        }
    }

    /// Takes one event; false when there is none.
    fn take_event(&self) -> bool {
        // SAFETY: the context is open, the event is filled by the call when it returns 0, and
        // acknowledged below, before which the object that it names is not destroyed.
        unsafe {
            let mut event: ibv_async_event = zeroed();
            if (self.verbs.ibv_get_async_event)(self.context, &mut event) != 0 {
                return false;
            }
            self.handle(&event);
            (self.verbs.ibv_ack_async_event)(&mut event);
        }
        true
    }

    fn handle(&self, event: &ibv_async_event) {
        // SAFETY: the library returns a constant text for any number.
        let name = unsafe { CStr::from_ptr((self.verbs.ibv_event_type_str)(event.event_type)) };
        let name = name.to_string_lossy();
        let device = &self.device;
        match event.event_type {
            IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                // SAFETY: of these events the element is a queue pair, which is not destroyed
                // before the event is acknowledged.
                let number = unsafe { (*event.element.cast::<ibv_qp>()).qp_num };
                tracing::debug!(%device, queue_pair = number, event = %name, "a queue pair broke");
                if let Some(pair) = self.pairs.get(number) {
                    pair.break_off();
                }
            }
            IBV_EVENT_DEVICE_FATAL => {
                tracing::error!(%device, event = %name, "the RDMA device failed");
                for pair in self.pairs.all() {
                    pair.mark_broken();
                }
            }
            IBV_EVENT_CQ_ERR => {
                tracing::error!(%device, event = %name, "a completion queue failed");
            }
            IBV_EVENT_PORT_ERR => {
                tracing::warn!(%device, event = %name, "a port of the RDMA device went down");
            }
            _ => tracing::debug!(%device, event = %name, "event of the RDMA device"),
        }
    }
}
