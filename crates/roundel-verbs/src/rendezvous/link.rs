//! A connection between two peers of a group: a task that reads, a task that writes, and the one
//! word that ends everything: who was lost.

use super::LostPeer;
use super::wire::{Frame, Kind, append_frame, read_frame};
use crate::error::{Result, VerbsError};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// How long the peers of a broken group are given to hear who was lost.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);
/// A host that does not answer is lost after about 5 + 3 × 2 seconds.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;

/// The first peer of a group that was lost. Later losses follow from it.
#[derive(Clone)]
pub(super) struct Loss {
    lost: watch::Sender<Option<LostPeer>>,
    /// Held while a complete exchange is handed to the writers. A peer that has it may leave at
    /// once; the others are told of that after they have the exchange too.
    spreading: Arc<Mutex<()>>,
}

impl Loss {
    pub(super) fn none() -> Self {
        Self {
            lost: watch::Sender::new(None),
            spreading: Arc::default(),
        }
    }

    /// While this is held, nobody is told of a loss.
    pub(super) async fn hold_back(&self) -> impl Drop + use<'_> {
        self.spreading.lock().await
    }

    pub(super) fn declare(&self, rank: usize, reason: String) {
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            if first {
                *lost = Some(LostPeer { rank, reason });
            }
            first
        });
    }

    /// The peer that was lost, if one was.
    pub(super) fn get(&self) -> Option<LostPeer> {
        self.lost.borrow().clone()
    }

    /// Ready when a peer is lost, now or later.
    pub(super) fn watch(&self) -> impl Future<Output = LostPeer> + Send + use<> {
        // The sender is not kept: the future ends up waiting for good when the group is dropped.
        let mut lost = self.lost.subscribe();
        async move {
            let lost = lost.wait_for(Option::is_some).await;
            let lost = lost.ok().and_then(|lost| lost.clone());
            match lost {
                Some(lost) => lost,
                None => std::future::pending().await,
            }
        }
    }
}

/// What to write, and whom to tell when it has been handed to the operating system.
struct Outgoing {
    bytes: Arc<Vec<u8>>,
    written: oneshot::Sender<()>,
}

/// A connection to one peer of the group.
pub(super) struct Link {
    /// The rank of the peer at the other end.
    pub rank: usize,
    loss: Loss,
    inbox: mpsc::Receiver<Frame>,
    outbox: mpsc::Sender<Outgoing>,
    /// Aborted when the link is dropped, which closes the connection.
    _reader: JoinSet<()>,
    writer: JoinSet<()>,
}

impl Link {
    /// Serves a connection on which hello and answer have been exchanged, to one of a group of
    /// `peers`. A peer that takes no data for as long as `stall` is lost.
    pub(super) fn serve(
        stream: TcpStream,
        rank: usize,
        peers: usize,
        stall: Duration,
        loss: &Loss,
    ) -> Result<Self> {
        notice_dead_hosts(&stream)?;
        let (read_half, write_half) = stream.into_split();
        // The bytes of one exchange: peer 0 sends those of all, the others their own.
        let frames_ahead = if rank == 0 { peers } else { 1 };
        let (arrived, inbox) = mpsc::channel(frames_ahead);
        // One exchange at a time writes.
        let (outbox, outgoing) = mpsc::channel(1);
        let mut reader = JoinSet::new();
        reader.spawn({
            let loss = loss.clone();
            async move {
                let reason = read_all(read_half, &arrived, rank, peers, &loss).await;
                loss.declare(rank, reason);
            }
        });
        let mut writer = JoinSet::new();
        writer.spawn(write_all(write_half, outgoing, rank, stall, loss.clone()));
        Ok(Self {
            rank,
            loss: loss.clone(),
            inbox,
            outbox,
            _reader: reader,
            writer,
        })
    }

    /// Hands bytes to the writer; the future that comes back is ready when the operating system
    /// has all of them.
    pub(super) async fn send(
        &self,
        bytes: Arc<Vec<u8>>,
    ) -> impl Future<Output = Result<(), LostPeer>> + Send + use<'_> {
        let (written, done) = oneshot::channel();
        let handed = self.outbox.send(Outgoing { bytes, written }).await;
        async move {
            if handed.is_ok() && done.await.is_ok() {
                return Ok(());
            }
            Err(self.loss.watch().await)
        }
    }

    /// The peer's next frame. Frames that came before a peer was lost still count.
    pub(super) async fn receive(&mut self, until: Instant) -> Result<Frame, LostPeer> {
        tokio::select! {
            biased;
            Some(frame) = self.inbox.recv() => Ok(frame),
            lost = self.loss.watch() => Err(lost),
            () = sleep_until(until) => {
                self.loss.declare(self.rank, "it was too late for an exchange".into());
                Err(self.loss.watch().await)
            }
        }
    }

    /// After a loss: ready when the peer has been told.
    pub(super) async fn farewell(&mut self) {
        self.writer.join_next().await;
    }
}

/// Passes on what comes until the connection ends; returns why it did.
async fn read_all(
    mut stream: OwnedReadHalf,
    arrived: &mpsc::Sender<Frame>,
    rank: usize,
    peers: usize,
    loss: &Loss,
) -> String {
    loop {
        match read_frame(&mut stream).await {
            Ok(frame) if frame.kind == Kind::Gone => {
                let reason = String::from_utf8_lossy(&frame.payload).into_owned();
                let lost = frame.rank as usize;
                // Only peer 0 knows of others. Another peer names one only to say why it left.
                if rank == 0 && lost < peers {
                    loss.declare(lost, reason.clone());
                }
                return format!("it gave up: peer {lost} is gone: {reason}");
            }
            Ok(frame) => {
                if arrived.try_send(frame).is_err() {
                    return "it sent more than one exchange has".into();
                }
            }
            Err(reason) => return reason,
        }
    }
}

/// Writes all frames that are to be written and, when a peer is lost, the name of that peer.
async fn write_all(
    mut stream: OwnedWriteHalf,
    mut outgoing: mpsc::Receiver<Outgoing>,
    rank: usize,
    stall: Duration,
    loss: Loss,
) {
    let lost = loss.watch();
    tokio::pin!(lost);
    loop {
        let next = tokio::select! {
            biased;
            next = outgoing.recv() => match next {
                Some(next) => next,
                // The link was dropped.
                None => return,
            },
            lost = &mut lost => {
                let spread = loss.hold_back().await;
                let last = outgoing.try_recv();
                drop(spread);
                if let Ok(last) = last
                    && let Err(reason) = write(&mut stream, last, stall).await
                {
                    return loss.declare(rank, reason);
                }
                let mut bytes = Vec::new();
                append_frame(&mut bytes, Kind::Gone, lost.rank, lost.reason.as_bytes());
                // If it cannot be told, the end of the connection tells it.
                let _ = timeout(FAREWELL, stream.write_all(&bytes)).await;
                return;
            }
        };
        if let Err(reason) = write(&mut stream, next, stall).await {
            return loss.declare(rank, reason);
        }
    }
}

async fn write(
    stream: &mut OwnedWriteHalf,
    outgoing: Outgoing,
    stall: Duration,
) -> Result<(), String> {
    match timeout(stall, stream.write_all(&outgoing.bytes)).await {
        Ok(Ok(())) => {
            // The task that asked may have gone meanwhile.
            let _ = outgoing.written.send(());
            Ok(())
        }
        Ok(Err(error)) => Err(format!("its connection broke: {error}")),
        Err(_) => Err("it takes no data".into()),
    }
}

fn notice_dead_hosts(stream: &TcpStream) -> Result<()> {
    use rustix::net::sockopt;
    let set = || {
        sockopt::set_tcp_nodelay(stream, true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)
    };
    set().map_err(VerbsError::system("setting up a rendezvous connection"))
}
