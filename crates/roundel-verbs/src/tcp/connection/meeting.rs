//! How two queue pairs come to have one connection. The queue pair that is told to connect calls the other's
//! device. A call that comes before its queue pair was told to connect waits there and is taken up
//! then; where both call at once, the call of the lesser identity counts.

use super::calling::Call;
use super::{EarlyCall, INIT, READY, Receiving, Remote, Stage, StreamPair};
use crate::address::QueuePairAddress;
use crate::error::{Result, VerbsError};
use crate::tcp::address::{Identity, TcpAddress};
use crate::tcp::events::{Source, now};
use crate::tcp::hello::{Hello, Verdict};
use crate::tcp::socket;
use crate::tcp::state::Callee;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a peer's device may take to be reached, and the peer to call when both have.
pub(super) const REACHED_WITHIN: Duration = Duration::from_secs(4);
/// On an unreliable connection what is sent is lost when the peer has not connected within this
/// time.
const UNRELIABLE_WITHIN: Duration = Duration::from_millis(500);
/// Calls that may wait for a queue pair: one is its peer's.
const EARLY_MAX: usize = 8;

impl StreamPair {
    /// INIT → RTS.
    pub(super) fn meet(&self, remote: &QueuePairAddress) -> Result<()> {
        let address = TcpAddress::decode(&remote.device)?;
        let identity = Identity {
            device: address.id,
            number: remote.number,
            incarnation: remote.incarnation,
        };
        let mut receiving = self.receiving.lock();
        if !self.is(INIT) {
            return Err(VerbsError::InvalidState {
                verb: "connecting",
                state: self.current_state(),
            });
        }
        let mut found = None;
        for call in receiving.early.drain(..) {
            if call.from == identity && found.is_none() {
                found = Some(call);
            } else {
                self.device.turn_away(&call.socket, call.token);
            }
        }
        if let Some(call) = found {
            self.become_ready(Remote { identity, address });
            self.accept(&mut receiving, call);
        } else if identity == self.identity() {
            self.talk_to_itself(&mut receiving, identity, address)?;
        } else {
            self.call(&mut receiving, identity, address)?;
        }
        Ok(())
    }

    fn become_ready(&self, remote: Remote) {
        let set = self.remote.set(remote).is_ok();
        debug_assert!(set, "a queue pair leaves INIT once");
        self.state.store(READY, Ordering::Release);
    }

    fn talk_to_itself(
        &self,
        receiving: &mut Receiving,
        identity: Identity,
        address: TcpAddress,
    ) -> Result<()> {
        let (reading, writing) = socket::pair().map_err(VerbsError::system("socketpair"))?;
        let (reading, writing) = (Arc::new(reading), Arc::new(writing));
        let events = &self.device.events;
        receiving.token = events.watch(&reading, self.source())?;
        events
            .watch_too(&writing, receiving.token)
            .inspect_err(|_| events.forget(receiving.token))?;
        self.become_ready(Remote { identity, address });
        self.open(receiving, reading, writing, 0);
        Ok(())
    }

    fn call(
        &self,
        receiving: &mut Receiving,
        identity: Identity,
        address: TcpAddress,
    ) -> Result<()> {
        let unreachable = |reason: String| VerbsError::PeerUnreachable {
            peer: address.listener.to_string(),
            reason,
        };
        let own = self.device.address.listener.ip();
        let socket = socket::dial(own, address.listener)
            .map_err(|errno| unreachable(format!("connecting to it failed: {errno}")))?;
        let socket = Arc::new(socket);
        receiving.token = self.device.events.watch(&socket, self.source())?;
        receiving.reader.socket = Some(socket);
        let remote = Remote { identity, address };
        let (from, secret) = (self.identity(), self.device.address.secret);
        let call = Call::new(from, secret, &remote, self.reliable);
        receiving.stage = Stage::Calling(call);
        self.become_ready(remote);
        self.expect_within(
            receiving,
            if self.reliable {
                REACHED_WITHIN
            } else {
                UNRELIABLE_WITHIN
            },
        );
        Ok(())
    }

    fn expect_within(&self, receiving: &mut Receiving, time: Duration) {
        let deadline = now() + time;
        receiving.deadline = Some(deadline);
        self.device.events.wake_at(deadline, self.me.clone());
    }

    /// The socket of this end's call is ready for something.
    pub(super) fn go_on_calling(&self, receiving: &mut Receiving) {
        match self.try_calling(receiving) {
            Ok(None) => {}
            Ok(Some(Verdict::Accepted { posted })) => {
                if let Some(socket) = receiving.reader.socket.clone() {
                    self.open(receiving, socket.clone(), socket, posted);
                }
            }
            Ok(Some(Verdict::Refused)) => {
                receiving.stage = Stage::Refused;
                receiving.deadline = None;
                self.peer_gone(receiving);
                self.watch_end(receiving);
            }
            Ok(Some(Verdict::Crossed)) => {
                self.hang_up(receiving);
                receiving.stage = Stage::Crossed;
                self.expect_within(receiving, REACHED_WITHIN);
            }
            Err(reason) => {
                tracing::debug!(
                    queue_pair = self.number,
                    reason,
                    "connecting to a peer failed"
                );
                self.lost(receiving);
            }
        }
    }

    /// The end may have come together with the answer.
    fn watch_end(&self, receiving: &mut Receiving) {
        let socket = receiving.reader.socket.as_deref();
        if socket.is_some_and(socket::has_ended) {
            self.lost(receiving);
        }
    }

    fn try_calling(&self, receiving: &mut Receiving) -> Result<Option<Verdict>, &'static str> {
        let Stage::Calling(call) = &mut receiving.stage else {
            return Ok(None);
        };
        let Some(socket) = &receiving.reader.socket else {
            return Ok(None);
        };
        let had_greeted = call.greeted;
        let posted = self.credit.posted.load(Ordering::Acquire);
        let verdict = call.go_on(socket, posted)?;
        if call.greeted && !had_greeted {
            self.credit.advertised.store(posted, Ordering::Release);
            if self.reliable {
                // The device is there: its queue pair may take as long as it likes.
                receiving.deadline = None;
            }
        }
        Ok(verdict)
    }

    /// Drops this end's own call.
    fn hang_up(&self, receiving: &mut Receiving) {
        self.device.forget(receiving.token);
        if let Some(socket) = receiving.reader.socket.take() {
            socket::shut(&socket);
        }
    }
}

impl Callee for StreamPair {
    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    fn called(&self, hello: &Hello, socket: Arc<OwnedFd>, token: u64) {
        let call = EarlyCall {
            from: hello.from,
            socket,
            token,
            posted: hello.posted,
        };
        let mut receiving = self.receiving.lock();
        if hello.reliable != self.reliable {
            self.device.turn_away(&call.socket, call.token);
            return;
        }
        if self.is(INIT) {
            let early = Source::of(self.me.clone(), |pair, token, _| {
                pair.early_call_ready(token)
            });
            self.device.events.replace(token, early);
            if receiving.early.len() == EARLY_MAX {
                let oldest = receiving.early.remove(0);
                self.device.turn_away(&oldest.socket, oldest.token);
            }
            receiving.early.push(call);
            return;
        }
        let expected = self
            .remote
            .get()
            .is_some_and(|remote| remote.identity == call.from);
        let counts = call.from < self.identity();
        match receiving.stage {
            Stage::Calling(_) | Stage::Crossed if expected && counts => {
                self.hang_up(&mut receiving);
                self.accept(&mut receiving, call);
            }
            Stage::Calling(_) | Stage::Crossed if expected => {
                self.device.answer(&call.socket, [0; 16], Verdict::Crossed);
                self.device.forget(call.token);
            }
            _ => self.device.turn_away(&call.socket, call.token),
        }
    }
}

impl StreamPair {
    /// Something happened on the socket of a peer that has called and waits: it has gone, or says
    /// something, which it must not. Or it is late news of what was before it waited.
    fn early_call_ready(&self, token: u64) {
        let mut receiving = self.receiving.lock();
        let gone = receiving
            .early
            .extract_if(.., |call| {
                call.token == token && socket::has_ended(&call.socket)
            })
            .count();
        if gone > 0 {
            self.device.forget(token);
        }
    }

    fn accept(&self, receiving: &mut Receiving, call: EarlyCall) {
        let Some(remote) = self.remote.get() else {
            return;
        };
        receiving.token = call.token;
        self.device.events.replace(call.token, self.source());
        let posted = self.credit.posted.load(Ordering::Acquire);
        self.credit.advertised.store(posted, Ordering::Release);
        self.device.answer(
            &call.socket,
            remote.address.secret,
            Verdict::Accepted { posted },
        );
        self.open(receiving, call.socket.clone(), call.socket, call.posted);
    }

    /// The connection is there.
    fn open(
        &self,
        receiving: &mut Receiving,
        reading: Arc<OwnedFd>,
        writing: Arc<OwnedFd>,
        granted: u64,
    ) {
        receiving.stage = Stage::Open;
        receiving.deadline = None;
        receiving.reader.open(reading);
        let mut send = self.send.lock();
        send.socket = Some(writing);
        send.blocked = false;
        send.peer_gone = false;
        send.grant(granted);
        let credit = &self.credit;
        if credit.posted.load(Ordering::Acquire) > credit.advertised.load(Ordering::Acquire) {
            send.advertise();
        }
        if self.push_on(send) {
            // Nothing tells again of what has come meanwhile, be it the end.
            self.read(receiving, true);
        } else {
            self.lost(receiving);
        }
    }
}
