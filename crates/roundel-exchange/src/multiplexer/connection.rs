//! The connection to one peer: its queue pair, the receives that the peer may use up, and what is on its way.
//!
//! Credit is absolute, as that of links over endpoints: the receives posted so far for what the peer SENDs.
//! It is the immediate data of an empty WRITE, which takes a receive that no credit pays for: there are some more
//! receives than credit.

use super::arrivals::{Arrivals, Member};
use super::meeting::NodeId;
use super::outgoing::{About, Outgoing, Queues, inline};
use super::{MultiplexerOptions, State};
use crate::endpoint::{Credit, empty_write};
use crate::error::{ExchangeError, Result};
use crate::wire::Header;
use roundel_verbs::{
    Buffer, CompletionQueue, CompletionStatus, Payload, QueuePair, QueuePairAddress,
    QueuePairOptions, ReceiveRequest, SendOperation, SendRequest, Transport,
};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// Credit is said once for so many parts of it.
const CREDITS_PER_WINDOW: usize = 4;
/// Receives beyond the credit, for words about credit: a peer says it only after it has used up, and heard of, that
/// before the last.
const SPARE_RECEIVES: usize = CREDITS_PER_WINDOW + 2;
/// Credit that rows leave to control messages.
const CONTROL_CREDIT: u32 = 4;
/// Sends beyond rows: control, words about credit, and a probe.
const CONTROL_SENDS: usize = 24;

pub(super) struct Connection {
    pub(super) peer: NodeId,
    /// What errors call the peer.
    pub(super) name: String,
    /// Absent once it has failed.
    queue_pair: Option<QueuePair>,
    remote: Option<QueuePairAddress>,
    /// The peer is known to be connected, too: it may be sent to.
    open: bool,
    options: MultiplexerOptions,
    /// What may be sent.
    credit: Credit,
    /// Receives posted so far for what the peer sends, and how many of them it has not been told of.
    posted: u32,
    unsaid: u32,
    /// Receives whose messages have not been taken in.
    held: usize,
    /// Where they wait, the oldest first.
    holders: VecDeque<Weak<Arrivals>>,
    pub(super) queues: Queues,
    /// In the order in which it was posted, by number.
    in_flight: VecDeque<(u64, About)>,
    /// Of these, rows and ends.
    messages_in_flight: usize,
    next: u64,
    /// Members here of the peer's transmission groups, by exchange, source and group.
    pub(super) groups: HashMap<(u64, u32, u16), Arc<[Member]>>,
    /// Something has come since it was last looked after.
    heard: bool,
}

impl Connection {
    /// A queue pair for a peer, with its receives posted.
    pub(super) fn open(
        fabric: &crate::endpoint::Fabric,
        queue: &CompletionQueue,
        options: &MultiplexerOptions,
        peer: NodeId,
        name: &str,
    ) -> Result<Self> {
        let receives = options.receives + SPARE_RECEIVES;
        let queue_pair = fabric.device.create_queue_pair(
            &QueuePairOptions {
                transport: Transport::ReliableConnection,
                send_depth: options.posted + CONTROL_SENDS,
                receive_depth: receives,
                rnr_retry: 7,
                queue_key: 0,
            },
            queue,
            queue,
        )?;
        let mut requests = Vec::with_capacity(receives);
        for _ in 0..receives {
            requests.push(ReceiveRequest {
                id: 0,
                buffer: Some(fabric.arena.allocate(options.message_bytes)?),
            });
        }
        queue_pair.post_receive(&mut requests)?;
        Ok(Self {
            peer,
            name: name.to_owned(),
            queue_pair: Some(queue_pair),
            remote: None,
            open: false,
            options: *options,
            credit: Credit::default(),
            posted: options.receives as u32,
            unsaid: 0,
            held: 0,
            holders: VecDeque::new(),
            queues: Queues::default(),
            in_flight: VecDeque::new(),
            messages_in_flight: 0,
            next: 0,
            groups: HashMap::new(),
            heard: true,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.queue_pair.is_some()
    }

    /// Whether both sides are connected.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn receive_bytes(&self) -> usize {
        match self.queue_pair {
            Some(_) => (self.options.receives + SPARE_RECEIVES) * self.options.message_bytes,
            None => 0,
        }
    }

    pub(super) fn address(&self) -> Option<&QueuePairAddress> {
        self.queue_pair.as_ref().map(QueuePair::address)
    }

    /// The queue pair at its other end, once it is connected.
    pub(super) fn remote(&self) -> Option<&QueuePairAddress> {
        self.remote.as_ref()
    }

    /// Connects it with the peer's queue pair.
    pub(super) fn connect(&mut self, remote: &QueuePairAddress) -> Result<()> {
        let Some(queue_pair) = &self.queue_pair else {
            return Err(self.lost(CompletionStatus::Flushed));
        };
        queue_pair.connect(remote)?;
        self.remote = Some(remote.clone());
        Ok(())
    }

    /// The peer is connected, too: from now on it may be sent to, and is told its credit.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.open, true) {
            self.unsaid = self.posted;
        }
    }

    pub(super) fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::PeerLost {
            peer: self.name.clone(),
            status,
        }
    }

    /// The peer has said its credit, for which one of the spare receives was used up.
    pub(super) fn take_credit(&mut self, credit: u32, buffer: Option<Buffer>) {
        self.heard = true;
        self.credit.grant(credit);
        self.begin();
        self.post_receive(buffer);
    }

    /// A message has come, whose receive is held until it is [given back](Self::give_back).
    pub(super) fn hold(&mut self, holder: &Arc<Arrivals>) {
        self.heard = true;
        self.held += 1;
        self.holders.push_back(Arc::downgrade(holder));
    }

    /// The receive of a message that was held: its peer may send another.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.held -= 1;
        self.holders.pop_front();
        self.receive_again(Some(buffer));
    }

    /// Posts the receive of a SEND again.
    pub(super) fn receive_again(&mut self, buffer: Option<Buffer>) {
        self.post_receive(buffer);
        self.posted = self.posted.wrapping_add(1);
        self.unsaid += 1;
    }

    fn post_receive(&self, buffer: Option<Buffer>) {
        if let Some(queue_pair) = &self.queue_pair {
            let mut again = vec![ReceiveRequest { id: 0, buffer }];
            // A queue pair that refuses is in error: its completions say so.
            let _ = queue_pair.post_receive(&mut again);
        }
    }

    /// Where messages wait, if so many do that the peer will soon have to wait: the oldest first.
    pub(super) fn crowded(&self) -> impl Iterator<Item = Arc<Arrivals>> + use<'_> {
        let most = 3 * self.options.receives / 4;
        let surplus = self.held.saturating_sub(most);
        self.holders.iter().filter_map(Weak::upgrade).take(surplus)
    }

    /// Posts what can be posted.
    pub(super) fn post(&mut self) -> Result<(), CompletionStatus> {
        if !self.open {
            return Ok(());
        }
        let mut requests = Vec::new();
        let window = self.options.receives / CREDITS_PER_WINDOW;
        if self.unsaid as usize >= window.max(1) && self.control_in_flight() < CONTROL_SENDS {
            self.unsaid = 0;
            let mut word = empty_write(0, Some(self.posted));
            word.id = self.note(About::Control);
            requests.push(word);
        }
        while self.credit.left() > 0
            && self.control_in_flight() + 1 < CONTROL_SENDS
            && let Some(header) = self.queues.pop_control()
        {
            self.credit.spend();
            let id = self.note(About::Control);
            requests.push(send(id, inline(&header)));
        }
        while self.credit.left() > CONTROL_CREDIT
            && self.messages_in_flight < self.options.posted
            && let Some(Outgoing { payload, about }) = self.queues.pop()
        {
            self.credit.spend();
            self.messages_in_flight += 1;
            let id = self.note(about);
            requests.push(send(id, payload));
        }
        if let Some(queue_pair) = &self.queue_pair
            && !requests.is_empty()
        {
            let count = requests.len();
            match queue_pair.post_send(&mut requests) {
                Ok(posted) if posted == count => {}
                _ => return Err(CompletionStatus::LocalOperation),
            }
        }
        Ok(())
    }

    fn control_in_flight(&self) -> usize {
        self.in_flight.len() - self.messages_in_flight
    }

    /// Takes note of a request that is about to be posted; returns its number.
    fn note(&mut self, about: About) -> u64 {
        let number = self.next;
        self.next += 1;
        self.in_flight.push_back((number, about));
        number
    }

    /// What the request was about that has completed.
    pub(super) fn completed(&mut self, number: u64) -> Option<About> {
        // Those of a connection complete in the order in which they were posted.
        let (first, _) = self.in_flight.front()?;
        if *first != number {
            return None;
        }
        let (_, about) = self.in_flight.pop_front()?;
        if !matches!(about, About::Control) {
            self.messages_in_flight -= 1;
        }
        Some(about)
    }

    /// Probes a peer that has been silent since this was last called with an empty WRITE, if nothing is on its way
    /// that would fail by itself: devices notice that a peer is gone when they send to it.
    pub(super) fn probe(&mut self) -> Result<(), CompletionStatus> {
        let heard = std::mem::take(&mut self.heard);
        if heard || !self.open || !self.in_flight.is_empty() {
            return Ok(());
        }
        let mut probe = empty_write(0, None);
        probe.id = self.note(About::Control);
        match &self.queue_pair {
            Some(queue_pair) => match queue_pair.post_send(&mut vec![probe]) {
                Ok(1) => Ok(()),
                _ => Err(CompletionStatus::LocalOperation),
            },
            None => Ok(()),
        }
    }

    /// Ends it. Returns what will not be sent, and the members here of the peer's groups.
    pub(super) fn fail(&mut self) -> Vec<About> {
        self.queue_pair = None;
        self.open = false;
        self.held = 0;
        self.holders.clear();
        self.groups.clear();
        self.messages_in_flight = 0;
        let mut lost: Vec<_> = self.in_flight.drain(..).map(|(_, about)| about).collect();
        lost.extend(self.queues.take_all());
        lost
    }
}

fn send(id: u64, payload: Payload) -> SendRequest {
    SendRequest {
        id,
        operation: SendOperation::Send,
        payload,
        destination: None,
    }
}

impl State {
    /// Posts whatever can be posted, on all connections.
    pub(super) fn post_all(&mut self) {
        for index in 0..self.connections.len() {
            if let Err(status) = self.connections[index].post() {
                self.fail_connection(index, status);
            }
        }
    }

    /// Control for the peer of a connection.
    pub(super) fn say(&mut self, connection: usize, header: Header) {
        let target = &mut self.connections[connection];
        if target.is_alive() {
            target.queues.push_control(header);
        }
    }

    /// Where messages wait whose receives are needed.
    pub(super) fn crowded(&self) -> Vec<Arc<Arrivals>> {
        let connections = self.connections.iter();
        connections.flat_map(Connection::crowded).collect()
    }
}
