//! A file descriptor that wakes sleepers.

use crate::error::{Result, VerbsError};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that is readable from a signal on until it is cleared.
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(VerbsError::system("eventfd"))
    }

    pub(crate) fn signal(&self) {
        // Would-block means that it is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // Would-block means that there was no signal, which is fine.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
