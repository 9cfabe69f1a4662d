//! The rendezvous over TCP. Peer 0 listens, the others connect to it; it collects what they hand
//! over and spreads it, and tells them who was lost.

use super::link::{FAREWELL, Link, Loss};
use super::wire::{Frame, Hello, Kind, Refusal, VERSION, append_frame, emit_answer, read_answer};
use super::{EXCHANGE_BYTES_MAX, LostPeer, PEERS_MAX, Rendezvous, TOKEN_BYTES_MAX};
use crate::completion_queue::BoxFuture;
use crate::error::{Result, VerbsError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a connection may take to say hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(5);
/// Connections at a time whose hello has not come; more wait in the listening socket's queue.
const GREETINGS_MAX: usize = 64;
/// How long it takes until the listener, or a peer that connects, tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// How peers find together. All of a group use the same.
#[derive(Clone)]
pub struct SocketOptions {
    /// A secret that all peers know, of at most [`TOKEN_BYTES_MAX`] bytes. With an empty one,
    /// whoever reaches the port can take part. Connections are not encrypted: use a trusted
    /// network.
    pub token: Vec<u8>,
    /// How long peer 0 waits for the others to join, and they for it to listen.
    pub join_deadline: Duration,
    /// How much later than the first a peer may come to an exchange. Peer 0 gives the others up
    /// after this, they give it up after twice this, so that its word names who is late.
    pub exchange_deadline: Duration,
}

impl Default for SocketOptions {
    /// No token, 30 seconds to join, 60 seconds to come to an exchange.
    fn default() -> Self {
        Self {
            token: Vec::new(),
            join_deadline: Duration::from_secs(30),
            exchange_deadline: Duration::from_secs(60),
        }
    }
}

impl SocketOptions {
    /// The defaults, with this token.
    pub fn new(token: impl Into<Vec<u8>>) -> Self {
        Self {
            token: token.into(),
            ..Self::default()
        }
    }

    fn check(&self, rank: usize, peers: usize) -> Result<()> {
        let wrong = if peers == 0 || peers > PEERS_MAX {
            format!("a group of {peers} peers; it has 1 to {PEERS_MAX}")
        } else if rank >= peers {
            format!("rank {rank} in a group of {peers} peers")
        } else if self.token.len() > TOKEN_BYTES_MAX {
            format!("a token of more than {TOKEN_BYTES_MAX} bytes")
        } else {
            return Ok(());
        };
        Err(VerbsError::InvalidRequest(wrong))
    }
}

/// The place where a group meets: the port on which its peer 0 listens.
pub struct SocketListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl SocketListener {
    /// Listens at `address`; port 0 takes a free one.
    pub async fn bind(address: SocketAddr) -> Result<Self> {
        let failed = |source| VerbsError::System {
            call: "listening for a rendezvous",
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where the others [`join`](SocketRendezvous::join).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Becomes peer 0 of a group of `peers`; ready when the others have joined. Connections
    /// that are not from peers of this group, token and version are refused and change nothing.
    ///
    /// # Errors
    /// [`VerbsError::PeerUnreachable`] with the ranks that did not come in time, and whom it
    /// refused last; [`VerbsError::PeerDied`] when one came and went.
    pub async fn gather(self, peers: usize, options: &SocketOptions) -> Result<SocketRendezvous> {
        options.check(0, peers)?;
        let mut group = SocketRendezvous::alone(0, peers, options);
        let until = Instant::now() + options.join_deadline;
        let mut greetings = JoinSet::new();
        let mut refused = None;
        while group.links.len() + 1 < peers {
            tokio::select! {
                accepted = self.listener.accept(), if greetings.len() < GREETINGS_MAX => {
                    match accepted {
                        Ok((stream, from)) => {
                            greetings.spawn(greet(stream, from, peers, options.token.clone()));
                        }
                        // Of this connection, or too many open files: both pass.
                        Err(error) => {
                            refused = Some(error.to_string());
                            sleep(RETRY_INTERVAL).await;
                        }
                    }
                }
                Some(Ok((stream, from, hello))) = greetings.join_next() => {
                    if let Err(refusal) = group.admit(stream, hello).await {
                        tracing::debug!(%from, %refusal, "refused at the rendezvous");
                        refused = Some(format!("{from}: {refusal}"));
                    }
                }
                lost = group.lost() => return group.fail(lost).await,
                () = sleep_until(until) => return group.incomplete(refused).await,
            }
        }
        group.links.sort_by_key(|link| link.rank);
        group.exchange(Vec::new()).await?;
        Ok(group)
    }
}

/// Reads a hello. The connection comes back to be answered.
async fn greet(
    mut stream: TcpStream,
    from: SocketAddr,
    peers: usize,
    token: Vec<u8>,
) -> (TcpStream, SocketAddr, Result<usize, Refusal>) {
    let hello = match timeout(HELLO_DEADLINE, Hello::read(&mut stream)).await {
        Err(_) => Err(Refusal::Garbage),
        Ok(Ok(hello)) if !bool::from(hello.token.ct_eq(&token)) => Err(Refusal::Token),
        Ok(Ok(hello)) if hello.peers as usize != peers => Err(Refusal::Peers),
        Ok(Ok(hello)) if hello.rank == 0 || hello.rank >= hello.peers => Err(Refusal::Rank),
        Ok(hello) => hello.map(|hello| hello.rank as usize),
    };
    (stream, from, hello)
}

/// A peer's place in a group that met over TCP.
pub struct SocketRendezvous {
    rank: usize,
    peers: usize,
    exchange_deadline: Duration,
    loss: Loss,
    /// Of peer 0, one to each other by rank; of the others, one to peer 0.
    links: Vec<Link>,
    /// An exchange has begun and not ended.
    out_of_step: bool,
}

impl SocketRendezvous {
    /// Joins the group of `peers` that meets at `address`, as one of the ranks from 1. Tries until
    /// peer 0 listens; ready when all have joined.
    ///
    /// # Errors
    /// [`VerbsError::VersionMismatch`] when peer 0 speaks another version;
    /// [`VerbsError::PeerUnreachable`] when it cannot be reached in time or refuses;
    /// [`VerbsError::PeerDied`] when a peer is lost before all have joined.
    pub async fn join(
        address: SocketAddr,
        rank: usize,
        peers: usize,
        options: &SocketOptions,
    ) -> Result<Self> {
        options.check(rank, peers)?;
        if rank == 0 {
            return Err(VerbsError::InvalidRequest(
                "peer 0 does not join, it listens".into(),
            ));
        }
        let mut group = Self::alone(rank, peers, options);
        let hello = Hello {
            rank: rank as u32,
            peers: peers as u32,
            token: options.token.clone(),
        };
        // Peer 0 may begin to listen just in time and then waits as long again.
        let until = Instant::now() + 2 * options.join_deadline;
        let stream = timeout(options.join_deadline, connect(address, &hello))
            .await
            .unwrap_or_else(|_| {
                let waited = options.join_deadline;
                Err(unreachable(address, format!("no answer within {waited:?}")))
            })?;
        let link = Link::serve(stream, 0, peers, options.exchange_deadline, &group.loss)?;
        group.links.push(link);
        group.exchange_until(Vec::new(), until).await?;
        Ok(group)
    }

    fn alone(rank: usize, peers: usize, options: &SocketOptions) -> Self {
        Self {
            rank,
            peers,
            exchange_deadline: options.exchange_deadline,
            loss: Loss::none(),
            links: Vec::new(),
            out_of_step: false,
        }
    }

    /// Peer 0: answers a hello and takes its sender in, unless it is refused.
    async fn admit(
        &mut self,
        mut stream: TcpStream,
        hello: Result<usize, Refusal>,
    ) -> Result<(), String> {
        let rank = hello.and_then(|rank| {
            let taken = self.links.iter().any(|link| link.rank == rank);
            if taken { Err(Refusal::Rank) } else { Ok(rank) }
        });
        // A few bytes into an empty socket buffer: this does not wait.
        let told = stream.write_all(&emit_answer(rank.map(|_| ()))).await;
        let rank = rank.map_err(|refusal| {
            // Bytes that are unread when the connection is closed would reset it, and the answer
            // might be lost.
            let _ = stream.try_read(&mut [0; 4096]);
            refusal.to_string()
        })?;
        told.map_err(|error| error.to_string())?;
        let link = Link::serve(stream, rank, self.peers, self.exchange_deadline, &self.loss)
            .map_err(|error| error.to_string())?;
        self.links.push(link);
        Ok(())
    }

    /// Peer 0: not all have come.
    async fn incomplete(mut self, refused: Option<String>) -> Result<Self> {
        let missing: Vec<usize> = (1..self.peers)
            .filter(|rank| self.links.iter().all(|link| link.rank != *rank))
            .collect();
        if let Some(first) = missing.first() {
            self.loss.declare(*first, "it did not join in time".into());
        }
        self.farewell().await;
        let missing: Vec<String> = missing.iter().map(usize::to_string).collect();
        let mut reason = "it did not join the rendezvous in time; is it running?".to_owned();
        if let Some(refused) = refused {
            reason += &format!(" Refused last: {refused}");
        }
        Err(VerbsError::PeerUnreachable {
            peer: missing.join(", "),
            reason,
        })
    }

    /// Sees to it that the others hear of a loss before this peer leaves.
    async fn farewell(&mut self) {
        let all = async {
            for link in &mut self.links {
                link.farewell().await;
            }
        };
        // A peer that does not listen even now hears of it by the end of its connection.
        let _ = timeout(FAREWELL, all).await;
    }

    async fn fail<T>(&mut self, lost: LostPeer) -> Result<T> {
        self.farewell().await;
        Err(lost.into())
    }

    async fn exchange_until(&mut self, bytes: Vec<u8>, until: Instant) -> Result<Vec<Vec<u8>>> {
        if bytes.len() > EXCHANGE_BYTES_MAX {
            return Err(VerbsError::InvalidRequest(format!(
                "{} bytes in one exchange, at most {EXCHANGE_BYTES_MAX} fit",
                bytes.len()
            )));
        }
        if let Some(lost) = self.loss.get() {
            return Err(lost.into());
        }
        if std::mem::replace(&mut self.out_of_step, true) {
            return Err(VerbsError::InvalidRequest(
                "an earlier exchange was given up: this peer is out of step with the others".into(),
            ));
        }
        let round = if self.rank == 0 {
            self.collect_and_spread(bytes, until).await
        } else {
            self.contribute(bytes, until).await
        };
        match round {
            Ok(all) => {
                self.out_of_step = false;
                Ok(all)
            }
            Err(lost) => self.fail(lost).await,
        }
    }

    /// Peer 0's part of an exchange.
    async fn collect_and_spread(
        &mut self,
        own: Vec<u8>,
        until: Instant,
    ) -> Result<Vec<Vec<u8>>, LostPeer> {
        let mut all = vec![own];
        for link in &mut self.links {
            let frame = link.receive(until).await?;
            all.push(frame_of(frame, link.rank, link.rank, &self.loss).await?);
        }
        let mut spread = Vec::new();
        for (rank, bytes) in all.iter().enumerate() {
            append_frame(&mut spread, Kind::Bytes, rank, bytes);
        }
        let spread = Arc::new(spread);
        let mut writes = Vec::with_capacity(self.links.len());
        let together = self.loss.hold_back().await;
        for link in &self.links {
            writes.push(link.send(spread.clone()).await);
        }
        drop(together);
        for written in writes {
            written.await?;
        }
        Ok(all)
    }

    /// The others' part of an exchange.
    async fn contribute(&mut self, own: Vec<u8>, until: Instant) -> Result<Vec<Vec<u8>>, LostPeer> {
        let mut bytes = Vec::new();
        append_frame(&mut bytes, Kind::Bytes, self.rank, &own);
        let link = &mut self.links[0];
        link.send(Arc::new(bytes)).await.await?;
        let mut all = Vec::with_capacity(self.peers);
        for rank in 0..self.peers {
            let frame = link.receive(until).await?;
            all.push(frame_of(frame, rank, link.rank, &self.loss).await?);
        }
        Ok(all)
    }
}

/// The bytes of a frame that must be of `rank`; it came from `sender`.
async fn frame_of(
    frame: Frame,
    rank: usize,
    sender: usize,
    loss: &Loss,
) -> Result<Vec<u8>, LostPeer> {
    if frame.rank as usize == rank {
        return Ok(frame.payload);
    }
    loss.declare(sender, format!("it sent bytes of rank {}", frame.rank));
    Err(loss.watch().await)
}

/// Connects to peer 0, as soon as it listens, and exchanges hello and answer.
async fn connect(address: SocketAddr, hello: &Hello) -> Result<TcpStream> {
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                sleep(RETRY_INTERVAL).await;
            }
            Err(error) => return Err(unreachable(address, error.to_string())),
        }
    };
    // A failure to write shows in reading.
    let _ = stream.write_all(&hello.emit()).await;
    match read_answer(&mut stream).await {
        Ok(()) => Ok(stream),
        Err(Refusal::Version(theirs)) => Err(VerbsError::VersionMismatch {
            peer: format!("0 at {address}"),
            protocol: "rendezvous",
            theirs,
            ours: VERSION,
        }),
        Err(Refusal::Garbage) => Err(unreachable(
            address,
            "what listens there does not answer as a rendezvous".into(),
        )),
        Err(Refusal::Token) => Err(unreachable(
            address,
            "it has another token; give all peers the same".into(),
        )),
        Err(Refusal::Peers) => Err(unreachable(
            address,
            format!("its group does not have {} peers", hello.peers),
        )),
        Err(Refusal::Rank) => Err(unreachable(
            address,
            format!("rank {} is taken in its group", hello.rank),
        )),
    }
}

fn unreachable(address: SocketAddr, reason: String) -> VerbsError {
    VerbsError::PeerUnreachable {
        peer: format!("0 at {address}"),
        reason,
    }
}

impl Rendezvous for SocketRendezvous {
    fn rank(&self) -> usize {
        self.rank
    }

    fn peers(&self) -> usize {
        self.peers
    }

    fn exchange(&mut self, bytes: Vec<u8>) -> BoxFuture<'_, Result<Vec<Vec<u8>>>> {
        let patience = match self.rank {
            0 => self.exchange_deadline,
            _ => 2 * self.exchange_deadline,
        };
        let until = Instant::now() + patience;
        Box::pin(self.exchange_until(bytes, until))
    }

    fn lost(&self) -> BoxFuture<'static, LostPeer> {
        Box::pin(self.loss.watch())
    }
}

impl std::fmt::Debug for SocketRendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SocketRendezvous({} of {})", self.rank, self.peers)
    }
}
