//! The thread that makes a device's connections: it asks for them, takes those that peers ask for, and looks after those
//! whose peer has not been heard.

use super::bindings::*;
use super::hello::{Hello, decode_answer, encode_answer};
use super::manager::{Channel, Event, Id, Reads};
use crate::error::Result;
use crate::rdma::address::Party;
use crate::rdma::link::{Link, Progress};
use crate::rdma::pair_state::PairState;
use crate::rdma::pairs::Pairs;
use crate::work::CompletionStatus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often mailboxes are looked at: when somebody waits or soon will, and else.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(20);
/// For so long after its user has connected it, a peer is expected soon.
const EAGER: Duration = Duration::from_secs(1);

/// What the thread is asked to do.
pub(super) enum Command {
    /// Connect a queue pair to its peer.
    Connect {
        pair: Weak<PairState>,
        peer: Party,
    },
    /// End the connection of the queue pair of this number.
    Forget {
        number: u32,
        done: Sender<()>,
    },
    End,
}

pub(super) struct Server {
    // Dropped in this order: ids before their channel.
    connections: HashMap<usize, Connection>,
    _listener: Id,
    channel: Channel,
    device: String,
    reads: Reads,
    pairs: Arc<Pairs>,
    commands: Receiver<Command>,
    next_key: usize,
    /// Queue pairs whose peers have not been heard, and when they were connected.
    waiting: Vec<(Weak<PairState>, Instant)>,
}

struct Connection {
    id: Id,
    pair: Weak<PairState>,
    number: u32,
    peer: Party,
    stage: Stage,
    /// Who waits for its end.
    done: Option<Sender<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The way to the peer is asked for.
    Resolving,
    /// The peer is asked. An id whose peer has not answered cannot be destroyed without waiting for it.
    Asking,
    /// The peer has asked, or there is a connection.
    Made,
}

impl Server {
    /// The key of the listener's events.
    pub(super) const LISTENER: usize = 0;

    pub(super) fn new(
        channel: Channel,
        listener: Id,
        device: String,
        reads: Reads,
        pairs: Arc<Pairs>,
        commands: Receiver<Command>,
    ) -> Self {
        Self {
            connections: HashMap::new(),
            _listener: listener,
            channel,
            device,
            reads,
            pairs,
            commands,
            next_key: Self::LISTENER + 1,
            waiting: Vec::new(),
        }
    }

    pub(super) fn run(mut self, wake: &OwnedFd) {
        loop {
            let pause = self.look_after().map(|pause| Timespec {
                tv_sec: 0,
                tv_nsec: pause.as_nanos() as _,
            });
            let events = self.channel.fd();
            let mut fds = [
                PollFd::new(&events, PollFlags::IN),
                PollFd::new(wake, PollFlags::IN),
            ];
            match poll(&mut fds, pause.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, device = %self.device, "waiting for connections failed");
                    return;
                }
            }
            // Would-block means that nobody has woken it.
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Connect { pair, peer } => self.connect(&pair, peer),
                    Command::Forget { number, done } => self.forget(number, done),
                    Command::End => return,
                }
            }
            while let Some(event) = self.channel.event() {
                self.handle(event);
            }
        }
    }

    /// Looks at the queue pairs whose peers have not been heard. Returns when to look again, if there are any.
    fn look_after(&mut self) -> Option<Duration> {
        let mut pause = None;
        self.waiting.retain(|(pair, since)| {
            let Some(pair) = pair.upgrade() else {
                return false;
            };
            let progress = pair.link.as_ref().map_or(Progress::Done, Link::advance);
            match progress {
                Progress::Done => false,
                Progress::Waiting { held } => {
                    let soon = held || since.elapsed() < EAGER;
                    let next = if soon { SOON } else { LATER };
                    pause = Some(pause.map_or(next, |pause: Duration| pause.min(next)));
                    true
                }
                Progress::Expired => {
                    let device = &self.device;
                    tracing::debug!(%device, queue_pair = pair.number(), "the peer did not connect in time");
                    pair.fail(CompletionStatus::RetryExceeded);
                    false
                }
            }
        });
        pause
    }

    fn connect(&mut self, pair: &Weak<PairState>, peer: Party) {
        let Some(state) = pair.upgrade() else { return };
        let Some(link) = &state.link else { return };
        self.waiting.push((pair.clone(), Instant::now()));
        if !link.own().calls(&peer) {
            return;
        }
        let key = self.key();
        let id = self.channel.id(key).and_then(|id| {
            id.resolve_address(link.own().device.gid, peer.device.listener())?;
            Ok(id)
        });
        match id {
            Ok(id) => {
                let connection = Connection {
                    id,
                    pair: pair.clone(),
                    number: state.number(),
                    peer,
                    stage: Stage::Resolving,
                    done: None,
                };
                self.connections.insert(key, connection);
            }
            Err(error) => self.give_up(&state, &peer, &error.to_string()),
        }
    }

    fn key(&mut self) -> usize {
        self.next_key += 1;
        self.next_key
    }

    fn forget(&mut self, number: u32, done: Sender<()>) {
        // The answer is the end of `done`.
        let of_pair = |(key, connection): (&usize, &mut Connection)| {
            (connection.number == number).then_some(*key)
        };
        let Some(key) = self.connections.iter_mut().find_map(of_pair) else {
            return;
        };
        match self.connections.get_mut(&key) {
            Some(connection) if connection.stage == Stage::Asking => connection.done = Some(done),
            _ => {
                self.connections.remove(&key);
            }
        }
    }

    fn handle(&mut self, mut event: Event) {
        if let Some(id) = event.request.take() {
            self.asked(id, &event.data);
            return;
        }
        // Events of an id that is gone are gone with it; those of the listener tell of nothing that can be helped.
        let Some(connection) = self.connections.get_mut(&event.key) else {
            tracing::debug!(device = %self.device, event = %event.name, "event of a listener");
            return;
        };
        let unwanted = connection.done.is_some() || connection.pair.strong_count() == 0;
        let goes_on = match event.kind {
            _ if unwanted => Err("nobody wants the connection any more".to_owned()),
            RDMA_CM_EVENT_ADDR_RESOLVED => of_device(connection, &self.device),
            RDMA_CM_EVENT_ROUTE_RESOLVED => call(connection, self.reads).map_err(|e| e.to_string()),
            RDMA_CM_EVENT_ESTABLISHED => made(connection, &event.data),
            RDMA_CM_EVENT_DISCONNECTED
            | RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_ROUTE_ERROR
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_REJECTED
            | RDMA_CM_EVENT_DEVICE_REMOVAL => Err(event.reason()),
            _ => Ok(()),
        };
        let Err(reason) = goes_on else { return };
        if let Some(connection) = self.connections.remove(&event.key)
            && let Some(pair) = connection.pair.upgrade()
            && connection.done.is_none()
        {
            self.give_up(&pair, &connection.peer, &reason);
        }
    }

    /// A connection ended, or could not be made.
    fn give_up(&self, pair: &PairState, peer: &Party, reason: &str) {
        let peer = format!("queue pair {} of {}", peer.number, peer.device.name());
        let (device, queue_pair) = (&self.device, pair.number());
        tracing::debug!(%device, queue_pair, %peer, %reason, "a connection ended or could not be made");
        if pair.link.as_ref().is_none_or(Link::drops) {
            pair.fail(CompletionStatus::RetryExceeded);
        }
    }

    /// A peer asks for a connection.
    fn asked(&mut self, id: Id, says: &[u8]) {
        let Some(hello) = Hello::decode(says) else {
            tracing::debug!(device = %self.device, "a stranger asked for a connection");
            id.reject();
            return;
        };
        let called = self.pairs.get(hello.number);
        let Some(pair) = called.filter(|pair| {
            let link = pair.link.as_ref();
            link.is_some_and(|link| {
                link.own().incarnation == hello.incarnation && link.takes(hello.from)
            })
        }) else {
            tracing::debug!(
                device = %self.device,
                queue_pair = hello.number,
                peer = %hello.from.device.name(),
                "a peer asked for a queue pair that is not there or has another peer"
            );
            id.reject();
            return;
        };
        let Some(link) = &pair.link else { return };
        let key = self.key();
        id.set_key(key);
        let reads = towards(self.reads, &hello.from);
        // Before it is taken: the peer's word may come at once.
        let accepted = id.accept(hello.number, reads, &encode_answer(link.mailbox()));
        if let Err(error) = accepted {
            self.give_up(&pair, &hello.from, &error.to_string());
            return;
        }
        let connection = Connection {
            id,
            pair: Arc::downgrade(&pair),
            number: hello.number,
            peer: hello.from,
            stage: Stage::Made,
            done: None,
        };
        self.connections.insert(key, connection);
        link.made(hello.mailbox);
    }
}

/// READs that are asked for are those that the peer answers.
fn towards(reads: Reads, peer: &Party) -> Reads {
    Reads {
        asked: reads.asked.min(peer.device.answered_reads),
        ..reads
    }
}

/// The way to the peer is known; it must begin at this device.
fn of_device(connection: &Connection, device: &str) -> Result<(), String> {
    match connection.id.device() {
        Some(found) if found == device => connection
            .id
            .resolve_route()
            .map_err(|error| error.to_string()),
        found => Err(format!(
            "the connection manager would connect by {}",
            found.as_deref().unwrap_or("no device")
        )),
    }
}

/// Asks the peer.
fn call(connection: &mut Connection, reads: Reads) -> Result<()> {
    let pair = connection.pair.upgrade();
    let Some(link) = pair.as_ref().and_then(|pair| pair.link.as_ref()) else {
        return Ok(());
    };
    let hello = Hello {
        number: connection.peer.number,
        incarnation: connection.peer.incarnation,
        from: *link.own(),
        mailbox: *link.mailbox(),
    };
    let reads = towards(reads, &connection.peer);
    connection
        .id
        .connect(connection.number, reads, &hello.encode())?;
    connection.stage = Stage::Asking;
    Ok(())
}

/// There is a connection. The end that has asked is told the other's mailbox.
fn made(connection: &mut Connection, says: &[u8]) -> Result<(), String> {
    if connection.stage != Stage::Asking {
        return Ok(());
    }
    connection.stage = Stage::Made;
    let answer = decode_answer(says).ok_or("the peer is not of this version")?;
    let pair = connection.pair.upgrade();
    if let Some(link) = pair.as_ref().and_then(|pair| pair.link.as_ref()) {
        link.made(answer);
    }
    Ok(())
}
