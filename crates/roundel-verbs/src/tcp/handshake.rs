//! Those who connect to the device's listener, until they have said who they are and whom they
//! call. Strangers are turned away here.

use super::events::{Source, now};
use super::hello::{Answer, HELLO_BYTES, Hello, Stranger, Verdict, same_secret};
use super::socket;
use super::state::DeviceState;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a hello may take.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// Connections at a time whose hello has not come.
const INCOMING_MAX: usize = 4096;

/// A peer that has connected and not said hello.
struct Incoming {
    greeting: Mutex<Greeting>,
    count: Arc<AtomicUsize>,
}

struct Greeting {
    /// Until it is handed over.
    socket: Option<Arc<OwnedFd>>,
    hello: [u8; HELLO_BYTES],
    have: usize,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeviceState {
    /// Accepts whoever waits at the listener.
    pub(super) fn accept_all(self: &Arc<Self>) {
        loop {
            match socket::accept(&self.listener) {
                Ok(socket) => self.receive_stranger(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    // Out of descriptors, most likely: the next sweep tries again.
                    tracing::warn!(%errno, "a connection was not accepted");
                    return;
                }
            }
        }
    }

    fn receive_stranger(self: &Arc<Self>, socket: OwnedFd) {
        let count = self.incoming.clone();
        if count.fetch_add(1, Ordering::Relaxed) >= INCOMING_MAX {
            count.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("too many connections without a hello: one is closed");
            return;
        }
        let socket = Arc::new(socket);
        let incoming = Incoming {
            greeting: Mutex::new(Greeting {
                socket: Some(socket.clone()),
                hello: [0; HELLO_BYTES],
                have: 0,
            }),
            count,
        };
        let greet = move |device: &Arc<Self>, token, _| device.greet(token, &incoming);
        let source = Source::of(Arc::downgrade(self), greet).until(now() + HELLO_WITHIN);
        if let Err(error) = self.events.watch(&socket, source) {
            tracing::warn!(%error, "a connection cannot be watched");
        }
    }

    /// Reads what a stranger says, and hands the connection over when it is a hello.
    fn greet(&self, token: u64, incoming: &Incoming) {
        let mut greeting = incoming.greeting.lock();
        let Greeting {
            socket,
            hello,
            have,
        } = &mut *greeting;
        let Some(open) = socket.as_ref() else {
            return;
        };
        while *have < HELLO_BYTES {
            match rustix::io::read(open, &mut hello[*have..]) {
                Ok(0) => {
                    self.forget(token);
                    return;
                }
                Ok(count) => *have += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.forget(token);
                    return;
                }
            }
        }
        let hello = match Hello::decode(hello) {
            Ok(hello) if same_secret(&hello.secret, &self.address.secret) => hello,
            Ok(_) => {
                tracing::warn!("a connection with a wrong secret is closed");
                self.forget(token);
                return;
            }
            Err(Stranger::Version(theirs)) => {
                tracing::warn!(
                    theirs,
                    ours = super::address::VERSION,
                    "a peer of another version of the TCP provider is turned away"
                );
                self.answer(open, [0; 16], Verdict::Refused);
                self.forget(token);
                return;
            }
            Err(Stranger::Garbage) => {
                tracing::warn!("a connection that is not a peer's is closed");
                self.forget(token);
                return;
            }
        };
        let called = self
            .stream(hello.number)
            .filter(|pair| pair.incarnation() == hello.incarnation);
        match (called, socket.take()) {
            (Some(pair), Some(socket)) => pair.called(&hello, socket, token),
            (_, Some(socket)) => self.turn_away(&socket, token),
            (_, None) => {}
        }
    }

    /// Answers a call. An answer that does not fit is not missed: the connection is new, so it can
    /// only be broken.
    pub(super) fn answer(&self, socket: &impl AsFd, secret: [u8; 16], verdict: Verdict) {
        let answer = Answer { secret, verdict }.encode();
        let _ = rustix::net::send(socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Tells a caller that there is nobody for it. The connection stays until the caller closes it:
    /// its end tells of the end of this device.
    pub(super) fn turn_away(&self, socket: &Arc<OwnedFd>, token: u64) {
        self.answer(socket, [0; 16], Verdict::Refused);
        let kept = socket.clone();
        // It has nothing to say: whatever comes ends it.
        let source = Source::new(move |_, _| !socket::has_ended(&kept));
        self.events.replace(token, source);
        if socket::has_ended(socket) {
            self.forget(token);
        }
    }
}
