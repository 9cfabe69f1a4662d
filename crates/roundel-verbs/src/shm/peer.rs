//! A peer device: its memory, its eventfds, and whether it is alive.

use super::layout::{CHANNELS_MAX, QueueEntry};
use super::mapping::Mapping;
use super::wakeup;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What tells one device from another.
pub(super) type DeviceId = [u8; 16];

pub(super) struct Peer {
    pub id: DeviceId,
    pub mapping: Arc<Mapping>,
    pub eventfds: Arc<[OwnedFd; CHANNELS_MAX]>,
    /// Who this device is in the peer's datagram rings.
    pub token: u32,
    /// For messages to people.
    pub name: String,
    dead: AtomicBool,
}

impl Peer {
    pub(super) fn new(
        id: DeviceId,
        mapping: Arc<Mapping>,
        eventfds: Arc<[OwnedFd; CHANNELS_MAX]>,
        token: u32,
        name: String,
    ) -> Self {
        Self {
            id,
            mapping,
            eventfds,
            token,
            name,
            dead: AtomicBool::new(false),
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(super) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Wakes whoever sleeps on a completion queue of the peer.
    pub(super) fn kick(&self, queue: u32) {
        if let Some(entry) = self.mapping.queue(queue as usize) {
            kick(entry, &self.eventfds);
        }
    }
}

/// Wakes whoever sleeps on a completion queue, if it is armed. The completion was made visible
/// before.
pub(super) fn kick(entry: &QueueEntry, eventfds: &[OwnedFd; CHANNELS_MAX]) {
    if wakeup::take_armed(entry) {
        let channel = entry.channel.load(Ordering::Relaxed) as usize;
        if let Some(eventfd) = eventfds.get(channel) {
            signal(eventfd);
        }
    }
}

/// Makes an eventfd readable.
pub(super) fn signal(eventfd: &OwnedFd) {
    // It can only fail when the counter is full, and then it is readable already.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}
