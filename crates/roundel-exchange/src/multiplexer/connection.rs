//! The connection to one peer: its queue pair, the receives that the peer may use up, and what is on its way.
//!
//! Credit is absolute, as that of links over endpoints: the receives posted so far for what the peer SENDs.
//! It is the immediate data of an empty WRITE, which takes a receive that no credit pays for: there are some more
//! receives than credit.

use super::arrivals::{Arrival, Member};
use super::meeting::NodeId;
use super::outgoing::{About, Outgoing, Queues, inline};
use super::phases::{Backlog, Turn};
use super::{MultiplexerOptions, State};
use crate::endpoint::{Credit, empty_write};
use crate::error::{ExchangeError, Result};
use crate::wire::{Body, Header};
use roundel_verbs::{
    Buffer, CompletionQueue, CompletionStatus, Context, Payload, QueuePair, QueuePairAddress,
    QueuePairOptions, ReceiveRequest, Regions, SendOperation, SendRequest, Transport,
};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;

/// Credit is said once for so many parts of it.
const CREDITS_PER_WINDOW: usize = 4;
/// Receives beyond the credit, for words about credit: a peer says it only after it has used up, and heard of, that
/// before the last.
const SPARE_RECEIVES: usize = CREDITS_PER_WINDOW + 2;
/// Rows leave one part in so many of the credit to control messages.
const CONTROL_SHARE: usize = 4;
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
    /// These messages, the oldest first, and some that have been taken in since.
    holders: VecDeque<Weak<Arrival>>,
    pub(super) queues: Queues,
    /// Tasks with more rows for the peer, of which enough wait.
    waiting: Vec<Waker>,
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
    /// A queue pair for a peer, with its receives posted, of the regions in turn: each gets its share of what comes.
    pub(super) fn open(
        fabric: &crate::endpoint::Fabric,
        queue: &CompletionQueue,
        options: &MultiplexerOptions,
        regions: &Regions,
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
        for turn in 0..receives {
            let arena = fabric.arena.in_region(regions.in_turn(turn));
            requests.push(ReceiveRequest {
                id: 0,
                buffer: Some(arena.allocate(options.message_bytes)?),
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
            waiting: Vec::new(),
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

    /// The peer is connected, too: from now on it may be sent to, and is told its credit. Whether that is news.
    pub(super) fn begin(&mut self) -> bool {
        let news = !std::mem::replace(&mut self.open, true);
        if news {
            self.unsaid = self.posted;
        }
        news
    }

    pub(super) fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::PeerLost {
            peer: self.name.clone(),
            status,
        }
    }

    /// The peer has said its credit, for which one of the spare receives was used up. Whether it is the first.
    pub(super) fn take_credit(&mut self, credit: u32, buffer: Option<Buffer>) -> bool {
        self.heard = true;
        self.credit.grant(credit);
        self.post_receive(buffer);
        self.begin()
    }

    /// A message has come, whose receive is held until it is [given back](Self::give_back).
    pub(super) fn hold(&mut self, message: &Arc<Arrival>) {
        self.heard = true;
        self.held += 1;
        self.holders.push_back(Arc::downgrade(message));
    }

    /// The receive of a message that was held: its peer may send another.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.held -= 1;
        let holds = |message: &Weak<Arrival>| message.upgrade().is_some_and(|one| one.is_held());
        while self.holders.front().is_some_and(|oldest| !holds(oldest)) {
            self.holders.pop_front();
        }
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

    /// Messages that wait, if so many do that the peer will soon have to wait, whoever its next ones are for: the oldest
    /// first. Of its credit a peer leaves a part to control messages, and of another it may not have heard.
    pub(super) fn crowded(&self) -> impl Iterator<Item = Arc<Arrival>> + use<'_> {
        let surplus = self.held.saturating_sub(self.options.receives / 2);
        let held = self.holders.iter().filter_map(Weak::upgrade);
        held.filter(|message| message.is_held()).take(surplus)
    }

    /// A task is woken when less waits.
    pub(super) fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// What of rows waits for it, and is on its way.
    pub(super) fn backlog(&self) -> Backlog {
        let (messages, bytes) = self.queues.waiting();
        Backlog {
            bytes,
            messages,
            in_flight: self.messages_in_flight,
        }
    }

    /// Posts what can be posted, of rows what begins within so many bytes; returns how many bytes of rows.
    pub(super) fn post(&mut self, rows: usize) -> Result<usize, CompletionStatus> {
        if !self.open {
            return Ok(0);
        }
        let mut posted_rows = 0;
        let mut requests = Vec::new();
        // Rounded up: there are spare receives for so many words and no more.
        let window = self.options.receives.div_ceil(CREDITS_PER_WINDOW);
        if self.unsaid as usize >= window && self.control_in_flight() < CONTROL_SENDS {
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
        let for_control = (self.options.receives / CONTROL_SHARE) as u32;
        while posted_rows < rows
            && self.credit.left() > for_control
            && self.messages_in_flight < self.options.posted
            && let Some(Outgoing { payload, about }) = self.queues.pop()
        {
            self.credit.spend();
            self.messages_in_flight += 1;
            posted_rows += payload.len();
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
        Ok(posted_rows)
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
    /// Posts whatever can be posted, on all connections, rows as the schedule has it.
    pub(super) fn post_all(&mut self, context: &dyn Context) {
        if self.schedule.is_used() {
            self.keep_schedule(context);
        }
        let turn = self.schedule.turn();
        for index in 0..self.connections.len() {
            let rows = match turn {
                Turn::Everybody => usize::MAX,
                Turn::Peer(peer, rows) if peer == index => rows,
                Turn::Peer(..) | Turn::Nobody => 0,
            };
            match self.connections[index].post(rows) {
                Ok(0) => {}
                Ok(bytes) => {
                    self.schedule.count(index, bytes);
                    let waiting = &mut self.connections[index].waiting;
                    self.wakers.append(waiting);
                }
                Err(status) => self.fail_connection(index, status),
            }
        }
    }

    /// Goes on with the schedule, and tells the neighbour.
    fn keep_schedule(&mut self, context: &dyn Context) {
        let stalled = self.schedule.deadline();
        let connections = &self.connections;
        let backlog = |peer: usize| connections[peer].backlog();
        for (peer, body) in self.schedule.advance(context.now(), backlog) {
            self.say_of_schedule(peer, body);
        }
        // Who serves the connections goes on if the neighbour is too late.
        if self.schedule.deadline() != stalled {
            self.wakers.extend(self.driver.take());
        }
    }

    pub(super) fn say_of_schedule(&mut self, peer: usize, body: Body) {
        let header = Header {
            flags: 0,
            group: 0,
            exchange: 0,
            source: 0,
            partition: 0,
            sequence: 0,
            credit_seen: 0,
            body,
        };
        self.say(peer, header);
    }

    /// Peers have come or gone.
    pub(super) fn schedule_peers(&mut self) {
        let connections = &self.connections;
        let open = |(_, index): &(&NodeId, &usize)| connections[**index].is_open();
        let peers = self.by_peer.iter().filter(open);
        let peers: Vec<_> = peers.map(|(node, index)| (*node, *index)).collect();
        let waiting_bytes = self.pool.share_bytes(peers.len());
        self.schedule
            .set_peers(self.id, peers.into_iter(), waiting_bytes);
    }

    /// Control for the peer of a connection.
    pub(super) fn say(&mut self, connection: usize, header: Header) {
        let target = &mut self.connections[connection];
        if target.is_alive() {
            target.queues.push_control(header);
        }
    }

    /// Messages whose receives are needed.
    pub(super) fn crowded(&self) -> Vec<Arc<Arrival>> {
        let connections = self.connections.iter();
        connections.flat_map(Connection::crowded).collect()
    }
}
