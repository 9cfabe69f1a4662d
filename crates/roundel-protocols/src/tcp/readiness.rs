//! Which sockets have something to say.

use super::system;
use crate::error::Result;
use rustix::event::{Timespec, epoll};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Most sockets that one call reports.
const EVENTS_MAX: usize = 64;

/// Tells of sockets by their numbers.
pub(super) struct Readiness(OwnedFd);

impl Readiness {
    pub(super) fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(|errno| system("epoll".into())(errno.into()))?;
        Ok(Self(epoll))
    }

    /// Tells of it whenever there is something to take.
    pub(super) fn watch(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number);
        Ok(epoll::add(&self.0, socket, data, epoll::EventFlags::IN)?)
    }

    /// Tells of it once when something has come, or when there is room again.
    pub(super) fn watch_both(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        Ok(epoll::add(&self.0, socket, data, flags)?)
    }

    /// Sets the list to those of which there is something to tell now.
    pub(super) fn look(&self, numbers: &mut Vec<u64>) -> Result<()> {
        numbers.clear();
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        let at_once = Timespec::default();
        match epoll::wait(&self.0, &mut events, Some(&at_once)) {
            Ok((told, _)) => numbers.extend(told.iter().map(|event| event.data.u64())),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(system("epoll".into())(errno.into())),
        }
        Ok(())
    }
}
