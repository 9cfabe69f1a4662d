//! What a device's thread watches, when it is to wake somebody, and the means to tell it of more.

use super::peer::{Peer, signal};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// The connections and alarms of a device, which its thread looks after.
pub(super) struct WatchList {
    pub watched: Mutex<Watched>,
    /// Readable when there is something new to watch, or when the device is closed.
    pub wake: OwnedFd,
}

#[derive(Default)]
pub(super) struct Watched {
    pub connections: Vec<Connection>,
    pub alarms: Vec<(Instant, Box<dyn FnOnce() + Send>)>,
}

#[derive(Clone)]
pub(super) struct Connection {
    pub socket: Arc<OwnedFd>,
    pub peer: Arc<Peer>,
}

impl WatchList {
    /// Watches the connection to a peer for its end.
    pub(super) fn watch(&self, socket: OwnedFd, peer: Arc<Peer>) {
        self.watched.lock().connections.push(Connection {
            socket: Arc::new(socket),
            peer,
        });
        self.wake();
    }

    /// Calls `alarm` at `when`, on the thread.
    pub(super) fn call_at(&self, when: Instant, alarm: impl FnOnce() + Send + 'static) {
        self.watched.lock().alarms.push((when, Box::new(alarm)));
        self.wake();
    }

    pub(super) fn wake(&self) {
        signal(&self.wake);
    }
}
