//! The one thread of a device: it accepts peers, notices their death, frees memory once nobody
//! is inside any more, and wakes queues whose retry timer ran out. It is not on the data path.

use super::device::DeviceState;
use super::hello;
use super::watch_list::Connection;
use crate::error::{Result, VerbsError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often it is looked whether retired memory is free.
const SWEEP_INTERVAL: Duration = Duration::from_millis(10);
/// Connections at a time whose hello has not come; more wait in the listening socket's queue.
const GREETINGS_MAX: usize = 64;
/// How long no connection is accepted after the process has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The provider's own clock, for timers: a NIC has one too.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Starts the thread. It ends when the device is gone.
pub(super) fn start(device: &Arc<DeviceState>, listener: OwnedFd) -> Result<()> {
    let wake = device
        .watch_list
        .wake
        .try_clone()
        .map_err(|source| VerbsError::System {
            call: "duplicating an eventfd",
            source,
        })?;
    let mut thread = Thread {
        device: Arc::downgrade(device),
        listener,
        wake,
        greetings: Vec::new(),
        accept_after: None,
    };
    std::thread::Builder::new()
        .name("roundel-shm".into())
        .spawn(move || while thread.turn() {})
        .map_err(|source| VerbsError::System {
            call: "starting the device's thread",
            source,
        })?;
    Ok(())
}

struct Thread {
    device: Weak<DeviceState>,
    listener: OwnedFd,
    wake: OwnedFd,
    /// Accepted, and until when their hello must have come.
    greetings: Vec<(OwnedFd, Instant)>,
    accept_after: Option<Instant>,
}

impl Thread {
    /// Waits and does what there is to do; false when the device is gone.
    fn turn(&mut self) -> bool {
        // The device is not held while waiting: whoever drops it last ends it.
        let Some((connections, until)) = self.device.upgrade().map(|device| self.plan(&device))
        else {
            return false;
        };
        let accepting = self.accept_after.is_none() && self.greetings.len() < GREETINGS_MAX;
        let interest = |wanted| {
            if wanted {
                PollFlags::IN
            } else {
                PollFlags::empty()
            }
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), interest(accepting)),
        ];
        fds.extend(
            self.greetings
                .iter()
                .map(|(socket, _)| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)),
        );
        fds.extend(
            connections.iter().map(|connection| {
                PollFd::from_borrowed_fd(connection.socket.as_fd(), PollFlags::IN)
            }),
        );
        let timeout = until.map(|until| {
            let left = until.saturating_duration_since(now());
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        // An interrupted poll is one with nothing ready.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let Some(device) = self.device.upgrade() else {
            return false;
        };
        if ready[0] {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
        let (greetings, connected) = ready[2..].split_at(self.greetings.len());
        self.greet(&device, greetings);
        for (connection, ready) in connections.iter().zip(connected) {
            // After the hellos nobody sends: whatever is there to read is the end, or garbage
            // from a peer that broke the protocol.
            if *ready {
                device
                    .watch_list
                    .watched
                    .lock()
                    .connections
                    .retain(|other| !Arc::ptr_eq(&other.socket, &connection.socket));
                device.peer_died(&connection.peer);
            }
        }
        if ready[1] {
            self.accept();
        }
        ring_alarms(&device);
        device.sweep_retired();
        true
    }

    /// What to watch, and until when.
    fn plan(&mut self, device: &DeviceState) -> (Vec<Connection>, Option<Instant>) {
        let now = now();
        if self.accept_after.is_some_and(|after| after <= now) {
            self.accept_after = None;
        }
        let sweep = device.has_retired().then(|| now + SWEEP_INTERVAL);
        let watched = device.watch_list.watched.lock();
        let until = watched
            .alarms
            .iter()
            .map(|(when, _)| *when)
            .chain(self.greetings.iter().map(|(_, when)| *when))
            .chain(self.accept_after)
            .chain(sweep)
            .min();
        (watched.connections.clone(), until)
    }

    fn accept(&mut self) {
        use rustix::net::SocketFlags;
        while self.greetings.len() < GREETINGS_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => {
                    // Another user's process is none of ours.
                    if hello::same_user(&socket) {
                        self.greetings.push((socket, now() + hello::HELLO_TIMEOUT));
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    tracing::warn!(%error, "the shared-memory device cannot accept a peer now");
                    self.accept_after = Some(now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Answers the hellos that have come and gives the others up in time.
    fn greet(&mut self, device: &Arc<DeviceState>, ready: &[bool]) {
        let greetings = std::mem::take(&mut self.greetings);
        for ((socket, until), ready) in greetings.into_iter().zip(ready) {
            if *ready {
                // A stranger without the secret, garbage: the connection just ends.
                if let Err(error) = device.welcome(socket) {
                    tracing::debug!(%error, "refused a connection to the shared-memory device");
                }
            } else if until > now() {
                self.greetings.push((socket, until));
            }
        }
    }
}

fn ring_alarms(device: &DeviceState) {
    let now = now();
    let due: Vec<_> = {
        let mut watched = device.watch_list.watched.lock();
        let (due, later) = std::mem::take(&mut watched.alarms)
            .into_iter()
            .partition(|(when, _)| *when <= now);
        watched.alarms = later;
        due
    };
    for (_, alarm) in due {
        alarm();
    }
}
