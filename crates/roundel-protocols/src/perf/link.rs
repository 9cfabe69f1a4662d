//! The rendezvous as the measuring thread sees it: messages there and back, without async, and the
//! news that the peer is gone.

use super::error::{PerfError, Result};
use super::message::Message;
use crate::error::one_line;
use roundel_verbs::rendezvous::LostPeer;
use roundel_verbs::{Context, Rendezvous, VerbsError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often a thread that waits for the peer looks whether it should stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a failed end waits for the word why the peer failed, or that it is gone; and to tell its
/// own.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Set when nobody wants the measurement any more.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The rendezvous of two ends.
pub(super) struct Link {
    peer: String,
    outgoing: UnboundedSender<Vec<u8>>,
    incoming: Receiver<Result<Vec<u8>, VerbsError>>,
    lost: Arc<OnceLock<LostPeer>>,
    stop: Stop,
    /// An exchange has begun and its end was not taken.
    pending: bool,
}

impl Link {
    /// Serves a rendezvous of two, whose other end is called `peer`.
    pub(super) fn serve(
        rendezvous: Box<dyn Rendezvous>,
        peer: String,
        stop: Stop,
        context: &dyn Context,
    ) -> Self {
        let (outgoing, requests) = unbounded_channel();
        let (replies, incoming) = channel();
        let lost = Arc::new(OnceLock::new());
        let noticed = lost.clone();
        context.spawn(Box::pin(async move {
            serve(rendezvous, requests, &replies, &noticed).await;
        }));
        Self {
            peer,
            outgoing,
            incoming,
            lost,
            stop,
            pending: false,
        }
    }

    /// How errors call the peer.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Tells the peer something and takes what it tells.
    pub(super) fn exchange(&mut self, message: &Message) -> Result<Message> {
        self.begin(message);
        self.complete()
    }

    /// An exchange in which the peer only says that it has reached this step, too.
    pub(super) fn synchronize(&mut self) -> Result<()> {
        match self.exchange(&Message::Ready)? {
            Message::Ready => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Begins an exchange; [`finish`](Self::finish) or [`complete`](Self::complete) ends it.
    pub(super) fn begin(&mut self, message: &Message) {
        // When nobody takes it, the reply says so.
        let _ = self.outgoing.send(message.emit());
        self.pending = true;
    }

    /// What the peer told in the exchange that has begun, if it is there.
    pub(super) fn finish(&mut self) -> Result<Option<Message>> {
        // A message that came before the peer was lost still counts.
        match self.incoming.try_recv() {
            Ok(reply) => self.take(reply).map(Some),
            Err(TryRecvError::Empty) => self.check().map(|()| None),
            Err(TryRecvError::Disconnected) => Err(self.lost()),
        }
    }

    /// Waits for what the peer tells in the exchange that has begun.
    pub(super) fn complete(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = self.wait(CHECK_INTERVAL)? {
                return Ok(message);
            }
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<Option<Message>> {
        match self.incoming.recv_timeout(timeout) {
            Ok(reply) => self.take(reply).map(Some),
            Err(RecvTimeoutError::Timeout) => self.check().map(|()| None),
            Err(RecvTimeoutError::Disconnected) => Err(self.lost()),
        }
    }

    fn take(&mut self, reply: Result<Vec<u8>, VerbsError>) -> Result<Message> {
        self.pending = false;
        let bytes = reply.map_err(|error| match error {
            VerbsError::PeerDied { reason, .. } => self.gone(reason),
            other => PerfError::Verbs(other),
        })?;
        match Message::parse(&bytes, &self.peer)? {
            Message::Failed(reason) => Err(PerfError::PeerFailed {
                peer: self.peer.clone(),
                reason: one_line(&reason),
            }),
            message => Ok(message),
        }
    }

    /// Whether to go on.
    pub(super) fn check(&self) -> Result<()> {
        if self.stop.is_set() {
            return Err(PerfError::Stopped);
        }
        match self.lost.get() {
            Some(_) => Err(self.lost()),
            None => Ok(()),
        }
    }

    fn lost(&self) -> PerfError {
        match self.lost.get() {
            Some(lost) => self.gone(lost.reason.clone()),
            None => self.gone("the rendezvous ended".into()),
        }
    }

    fn gone(&self, reason: String) -> PerfError {
        PerfError::PeerLost {
            peer: self.peer.clone(),
            reason,
        }
    }

    /// For a message that has no place here.
    pub(super) fn unexpected(&self, message: &Message) -> PerfError {
        PerfError::Protocol {
            peer: self.peer.clone(),
            reason: format!("it sent {message:?} out of turn"),
        }
    }

    /// After a failure at this end: tells the peer, or learns from it what really happened. A work
    /// request that failed is often how the peer's death shows first.
    pub(super) fn explain(&mut self, error: PerfError) -> PerfError {
        use PerfError::{Completion, PeerFailed, PeerLost, Stopped};
        if matches!(error, PeerLost { .. } | PeerFailed { .. } | Stopped) {
            return error;
        }
        let already_pending = self.pending;
        if !already_pending {
            self.begin(&Message::Failed(error.to_string()));
        }
        let theirs = self.wait(LAST_WORDS);
        if already_pending && matches!(theirs, Ok(Some(_))) {
            self.begin(&Message::Failed(error.to_string()));
            let _ = self.wait(LAST_WORDS);
        }
        match theirs {
            Err(theirs @ (PeerLost { .. } | PeerFailed { .. }))
                if matches!(error, Completion { .. }) =>
            {
                theirs
            }
            _ => error,
        }
    }
}

async fn serve(
    mut rendezvous: Box<dyn Rendezvous>,
    mut requests: UnboundedReceiver<Vec<u8>>,
    replies: &std::sync::mpsc::Sender<Result<Vec<u8>, VerbsError>>,
    noticed: &OnceLock<LostPeer>,
) {
    let other = 1 - rendezvous.rank();
    let mut lost = rendezvous.lost();
    loop {
        let request = tokio::select! {
            biased;
            request = requests.recv() => request,
            lost = &mut lost => {
                // The only one who sets it.
                let _ = noticed.set(lost);
                return;
            }
        };
        let Some(bytes) = request else { return };
        let reply = rendezvous.exchange(bytes).await;
        let failed = reply.is_err();
        let reply = reply.map(|mut all| all.swap_remove(other));
        if replies.send(reply).is_err() || failed {
            return;
        }
    }
}
