//! The nodes of a conversation: their clients and servers, and what those who ask check of each call.

use crate::book::{Book, READABLE_BYTES, readable, request, response};
use roundel_protocols::error::Result;
use roundel_protocols::paradigm::{Link, Paradigm, Setting};
use roundel_protocols::rpc::{Call, Caller, Client, Server, Serving};
use roundel_protocols::{CallError, EndOptions, Fabric, Protocol};
use roundel_verbs::Context;
use std::sync::Arc;
use std::time::Duration;
use strum::VariantArray;

/// Calls that are begun at a time on a connection: more than can be pending.
const CALLS: usize = 10;
const PENDING: usize = 4;

/// What is told, how, and what goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub protocol: Protocol,
    pub paradigm: Paradigm,
    pub fault: Fault,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Fault {
    Nothing,
    Loss,
    Duplicates,
    Delay,
    KilledPeer,
    SlowHandler,
}

impl Fault {
    pub const ALL: [Self; 6] = *Self::VARIANTS.as_array().unwrap();
}

/// The protocols of verbs.
pub fn protocols() -> impl Iterator<Item = Protocol> {
    Protocol::ALL
        .into_iter()
        .filter(|one| *one != Protocol::Tcp)
}

impl Case {
    pub fn setting(&self) -> Setting {
        let nodes = match self.paradigm {
            Paradigm::ManyToMany => 3,
            _ => 2,
        };
        Setting::new(self.paradigm, self.protocol, nodes)
    }

    pub fn options(&self) -> EndOptions {
        EndOptions {
            pending: PENDING,
            resend_after: Duration::from_millis(5),
            ..EndOptions::new(self.protocol)
        }
    }

    /// The node that dies: the one that all have to do with, or another in the second half of the seeds.
    pub fn victim(&self, seed: u64) -> Option<usize> {
        let nodes = self.setting().all_nodes() as u64;
        (self.fault == Fault::KilledPeer).then_some((seed % nodes) as usize)
    }
}

/// A node that is not connected yet.
#[derive(Default)]
pub struct Node {
    pub client: Option<Client>,
    pub server: Option<Server>,
}

impl Node {
    /// Its ends; `fabric` gives each its own, to one that asks and one that answers.
    pub fn open(case: &Case, node: usize, mut fabric: impl FnMut(bool) -> Fabric) -> Result<Self> {
        let links = case.setting().links();
        let asks = links
            .iter()
            .filter(|link| link.requester.node == node)
            .count();
        let answers = links
            .iter()
            .filter(|link| link.responder.node == node)
            .count();
        let options = case.options();
        let node = Self {
            client: match asks {
                0 => None,
                _ => Some(Client::open(&fabric(true), asks, &options)?),
            },
            server: match answers {
                0 => None,
                _ => Some(Server::open(
                    &fabric(false),
                    answers,
                    READABLE_BYTES,
                    &options,
                )?),
            },
        };
        if let Some(values) = node.server.as_ref().and_then(Server::values) {
            values.publish(0, &readable());
        }
        Ok(node)
    }

    /// What it offers to the other end of each link: empty where it has no part in it.
    pub fn offers(&self, links: &[Link], node: usize) -> Vec<Vec<u8>> {
        let offer = |link: &Link| match (&self.client, &self.server) {
            (Some(client), _) if link.requester.node == node => {
                client.offer(link.requester.connection)
            }
            (_, Some(server)) if link.responder.node == node => {
                server.offer(link.responder.connection)
            }
            _ => Vec::new(),
        };
        links.iter().map(offer).collect()
    }

    /// Connects to what the nodes offer at each link, by their numbers.
    pub fn connect(&mut self, links: &[Link], node: usize, offers: &[Vec<Vec<u8>>]) -> Result<()> {
        for (at, link) in links.iter().enumerate() {
            let (from, to) = (link.requester, link.responder);
            if let Some(server) = self.server.as_mut().filter(|_| to.node == node) {
                let name = from.node.to_string();
                server.connect(to.connection, &offers[from.node][at], &name)?;
            }
            if let Some(client) = self.client.as_mut().filter(|_| from.node == node) {
                let name = to.node.to_string();
                client.connect(from.connection, &offers[to.node][at], &name)?;
            }
        }
        Ok(())
    }

    /// Starts both.
    pub fn start(
        self,
        book: &Arc<Book>,
        before: impl Fn(u64) + Send + 'static,
    ) -> (Option<Caller>, Option<Serving>) {
        let serving = self
            .server
            .map(|server| server.start(book.handler(before)).unwrap());
        (self.client.map(|client| client.start().unwrap()), serving)
    }
}

/// Which server each connection of a node's client is to.
pub fn servers_of(links: &[Link], node: usize) -> Vec<usize> {
    let own = links.iter().filter(|link| link.requester.node == node);
    own.map(|link| link.responder.node).collect()
}

/// How those who ask go about it.
#[derive(Clone)]
pub struct Asking {
    pub protocol: Protocol,
    pub book: Arc<Book>,
    pub context: Arc<dyn Context>,
    pub deadline: Duration,
    /// How much later than its deadline a call may end.
    pub slack: Duration,
    pub told: String,
}

/// How calls ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub answered: usize,
    pub late: usize,
    pub gone: usize,
}

impl Tally {
    pub fn all(&self) -> usize {
        self.answered + self.late + self.gone
    }

    pub fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.late += other.late;
        self.gone += other.gone;
    }
}

impl Asking {
    fn make(&self, caller: &Caller, connection: usize) -> (u64, Call) {
        let number = self.book.number();
        let call = match self.protocol {
            Protocol::Read => {
                let (offset, length) = part(number);
                caller.read(connection, offset as u64, length, self.deadline)
            }
            _ => caller.call(connection, request(number), self.deadline),
        };
        (number, call)
    }

    /// Makes a number of calls at a time, and checks how each ends.
    pub async fn round(&self, caller: &Caller, connection: usize) -> Tally {
        let begun = self.context.now();
        let calls: Vec<_> = (0..CALLS).map(|_| self.make(caller, connection)).collect();
        let mut tally = Tally::default();
        for (number, call) in calls {
            match call.await {
                Ok(answer) => {
                    tally.answered += 1;
                    self.check(number, &answer);
                }
                Err(CallError::Deadline { .. }) => tally.late += 1,
                Err(CallError::PeerGone { .. }) => tally.gone += 1,
                Err(error) => panic!("{error}: {}", self.told),
            }
        }
        let took = self.context.now() - begun;
        let most = self.deadline + self.slack;
        assert!(took <= most, "calls ended after {took:?}: {}", self.told);
        assert_eq!(tally.all(), CALLS);
        tally
    }

    /// Makes so many rounds, and a last one that is patient: what was late comes in between, and is nobody's.
    pub async fn rounds(
        mut self,
        rounds: usize,
        patience: Duration,
        caller: &Caller,
        connection: usize,
    ) -> (Tally, Tally) {
        let mut tally = Tally::default();
        for _ in 0..rounds {
            tally.add(self.round(caller, connection).await);
        }
        self.deadline = patience;
        (tally, self.round(caller, connection).await)
    }

    fn check(&self, number: u64, answer: &[u8]) {
        let right = match self.protocol {
            Protocol::Read => {
                let (offset, length) = part(number);
                answer == &readable()[offset..offset + length]
            }
            _ => answer == response(number),
        };
        assert!(right, "{number} was answered {answer:?}: {}", self.told);
    }
}

/// What a READ reads.
fn part(number: u64) -> (usize, usize) {
    let offset = (number * 31 % 3000) as usize;
    (offset, 1 + (number * 17 % 365) as usize)
}
