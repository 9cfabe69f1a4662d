//! How a completion queue hears, from any thread, that a queue pair broke whose requests the device will not end.

use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Belongs to one completion queue. It keeps neither queue nor device: who rings may be a thread of the device, which
/// must not be the last to hold it.
pub(super) struct Doorbell {
    rung: AtomicBool,
    /// The queue's own flag.
    armed: Arc<Mutex<bool>>,
    /// Of the queue's channel; none where nobody sleeps.
    notified: Option<Arc<OwnedFd>>,
}

impl Doorbell {
    pub(super) fn new(armed: Arc<Mutex<bool>>, notified: Option<Arc<OwnedFd>>) -> Self {
        Self {
            rung: AtomicBool::new(false),
            armed,
            notified,
        }
    }

    /// Makes the next poll look, and wakes who sleeps on the queue.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        let was_armed = std::mem::take(&mut *self.armed.lock());
        if let Some(notified) = self.notified.as_ref().filter(|_| was_armed) {
            // Would-block means that it is readable already.
            let _ = rustix::io::write(&**notified, &1u64.to_ne_bytes());
        }
    }

    /// Whether it was rung since the last time.
    pub(super) fn answer(&self) -> bool {
        // Mostly it was not: then nothing is written that other processors would have to fetch.
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::Acquire)
    }
}
