//! The one thread of a device: it accepts peers and notices their death. It is not on the data
//! path.

use super::device::DeviceState;
use super::hello;
use super::peer::Peer;
use crate::error::{Result, VerbsError};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

/// Connections to watch, and the means to end the thread.
pub(super) struct Monitor {
    connections: Mutex<Vec<Connection>>,
    /// Readable when there is a new connection to watch, or when the device is closed.
    wake: OwnedFd,
}

struct Connection {
    socket: Arc<OwnedFd>,
    peer: Arc<Peer>,
}

impl Monitor {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            connections: Mutex::default(),
            wake: super::device::eventfd()?,
        })
    }

    /// Watches the connection to a peer for its end.
    pub(super) fn watch(&self, socket: OwnedFd, peer: Arc<Peer>) {
        self.connections.lock().push(Connection {
            socket: Arc::new(socket),
            peer,
        });
        self.wake();
    }

    pub(super) fn wake(&self) {
        super::peer::signal(&self.wake);
    }
}

/// Starts the thread. It ends when the device is gone.
pub(super) fn start(device: &Arc<DeviceState>, listener: OwnedFd) -> Result<()> {
    let weak = Arc::downgrade(device);
    let wake = device
        .monitor
        .wake
        .try_clone()
        .map_err(|source| VerbsError::System {
            call: "duplicating an eventfd",
            source,
        })?;
    std::thread::Builder::new()
        .name("roundel-shm".into())
        .spawn(move || run(&weak, &listener, &wake))
        .map_err(|source| VerbsError::System {
            call: "starting the device's thread",
            source,
        })?;
    Ok(())
}

fn run(device: &Weak<DeviceState>, listener: &OwnedFd, wake: &OwnedFd) {
    loop {
        let watched: Vec<(Arc<OwnedFd>, Arc<Peer>)> = {
            let Some(device) = device.upgrade() else {
                return;
            };
            let connections = device.monitor.connections.lock();
            connections
                .iter()
                .map(|connection| (connection.socket.clone(), connection.peer.clone()))
                .collect()
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
        ];
        for (socket, _) in &watched {
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        // An interrupted poll is one with nothing ready.
        let _ = poll(&mut fds, None);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let Some(device) = device.upgrade() else {
            return;
        };
        if ready[1] {
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
        for ((socket, peer), ready) in watched.iter().zip(&ready[2..]) {
            // After the hellos nobody sends: whatever is there to read is the end, or garbage
            // from a peer that broke the protocol.
            if *ready {
                device
                    .monitor
                    .connections
                    .lock()
                    .retain(|connection| !Arc::ptr_eq(&connection.socket, socket));
                device.peer_died(peer);
            }
        }
        if ready[0] {
            accept(&device, listener);
        }
    }
}

fn accept(device: &Arc<DeviceState>, listener: &OwnedFd) {
    let Ok(socket) =
        rustix::net::accept_with(listener, rustix::net::SocketFlags::CLOEXEC)
    else {
        return;
    };
    // Another user's process, a stranger without the secret, garbage: the connection just ends.
    if hello::same_user(&socket)
        && let Err(error) = welcome(device, socket)
    {
        tracing::debug!(%error, "refused a connection to the shared-memory device");
    }
}

fn welcome(device: &Arc<DeviceState>, socket: OwnedFd) -> Result<()> {
    hello::set_timeouts(&socket, hello::WELCOME_TIMEOUT)?;
    let (theirs, descriptors) = hello::receive(&socket, "a connecting process")?;
    if theirs.secret != device.address.secret {
        return Err(VerbsError::InvalidAddress(
            "the connecting process does not know this device's secret".into(),
        ));
    }
    let token = device.new_token();
    hello::send(
        &socket,
        &hello::Hello {
            id: device.address.id,
            secret: theirs.secret,
            token,
            process: device.address.process,
        },
        &device.memory,
        &device.eventfds,
    )?;
    device.add_peer(theirs, descriptors, token, socket)?;
    Ok(())
}
