//! The connection to one peer: its queue pair, the receives that the peer may use up, and what is on its way.
//!
//! How messages get to the other end, and here, is the business of the design's carriers, as over endpoints. Of credit for
//! receives, where messages use these up, each end keeps account. It travels as the immediate data of an empty WRITE.
//! That takes a receive that no credit pays for, so there are some more receives than credit.

mod posting;

use super::address::{ConnectionAddress, NodeId};
use super::arrivals::{Arrival, Member};
use super::outgoing::{About, Queues, word};
use super::phases::{Backlog, Turn};
use super::{MultiplexerOptions, State};
use crate::designs::carrier::{LinkSizes, Place, ReceiverEnd, SourceEnd};
use crate::error::{ExchangeError, Result};
use crate::fabric::{Fabric, allocate};
use crate::link::credit::{Credit, Grant};
use crate::link::queue::Queue;
use crate::link::queue_pair::{post_receive, post_receives};
use crate::wire::{Body, Header};
use roundel_verbs::{
    Buffer, CompletionQueue, CompletionStatus, Context, QueuePair, QueuePairAddress, Regions,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;

/// Credit is said once for so many parts of it.
const CREDITS_PER_WINDOW: usize = 4;
/// Receives beyond the credit, for words about credit: a peer says it only after it has used up, and heard of, that
/// before the last.
const SPARE_RECEIVES: usize = CREDITS_PER_WINDOW + 2;
/// Requests about a peer's buffers that may be on their way, for each of them: READs, and which are free.
const REQUESTS_PER_BUFFER: usize = 2;
/// Messages beyond rows: control, words about credit, a probe, and asking for the bell.
const CONTROL_SENDS: usize = 24;

/// The queue pair to a peer, and what carries messages over it in both directions.
pub(super) struct Carriers {
    queue_pair: QueuePair,
    pub(super) source: Box<dyn SourceEnd>,
    pub(super) receiver: Box<dyn ReceiverEnd>,
}

pub(super) struct Connection {
    pub(super) peer: NodeId,
    /// What errors call the peer.
    pub(super) name: String,
    /// Absent once it has failed.
    pub(super) carriers: Option<Carriers>,
    remote: Option<QueuePairAddress>,
    /// The peer is known to be connected, too: it may be sent to.
    open: bool,
    options: MultiplexerOptions,
    /// Registered bytes of what messages come into.
    bytes: usize,
    /// What may be sent.
    credit: Credit,
    /// What the peer may send.
    grant: Grant,
    /// Messages that have not been taken in.
    held: usize,
    /// These messages, the oldest first, and some that have been taken in since.
    holders: VecDeque<Weak<Arrival>>,
    pub(super) queues: Queues,
    /// Tasks with more rows for the peer, of which enough wait.
    waiting: Vec<Waker>,
    /// In the order in which it was posted, by number.
    in_flight: VecDeque<(u64, About)>,
    /// Of these, what is neither rows nor ends nor about what the peer has to say.
    control_in_flight: usize,
    /// Rows and ends that are on their way.
    messages_in_flight: usize,
    /// Requests about the peer's messages and buffers.
    buffers_in_flight: usize,
    /// Messages that the peer has been told of and has not read, by number.
    unread: BTreeMap<u64, About>,
    next: u64,
    /// The memory of a message, the first of whose two requests has completed.
    part: Option<Buffer>,
    /// Members here of the peer's transmission groups, by exchange, source and group.
    pub(super) groups: BTreeMap<(u64, u32, u16), Arc<[Member]>>,
    /// Something has come since it was last looked after.
    heard: bool,
}

impl Connection {
    /// A queue pair for a peer, with its receives posted, of the regions in turn: each gets its share of what comes.
    pub(super) fn open(
        fabric: &Fabric,
        queue: &CompletionQueue,
        options: &MultiplexerOptions,
        regions: &Regions,
        peer: NodeId,
        name: &str,
    ) -> Result<Self> {
        let design = options.design;
        let receives = options.receives + SPARE_RECEIVES;
        let about_buffers = match design.has_queues() {
            true => REQUESTS_PER_BUFFER * options.receives,
            false => 0,
        };
        let sizes = LinkSizes {
            message_bytes: options.message_bytes,
            least: match design.has_queues() {
                true => options.receives,
                false => receives,
            },
            most: options.receives,
            control: options.receives,
            credit_in_memory: false,
        };
        let messages = (options.posted + CONTROL_SENDS) * design.requests_each();
        let queue_pair = fabric.connected(queue, messages + about_buffers, receives)?;
        let (mut bytes, mut turn) = (0, 0);
        let mut buffer = |length, exposable| {
            let arena = fabric.arena.in_region(regions.in_turn(turn));
            (bytes, turn) = (bytes + length, turn + 1);
            allocate(&arena, length, exposable)
        };
        let source = design.connected_source(&fabric.arena, &sizes)?;
        let mut receiver = design.connected_receiver(fabric, &sizes, &mut buffer, None)?;
        post_receives(&queue_pair, 0, receiver.first_receives(receives))?;
        let queues = [source.queue(), receiver.queue()];
        bytes += queues
            .into_iter()
            .flatten()
            .map(Queue::bytes)
            .sum::<usize>();
        Ok(Self {
            peer,
            name: name.to_owned(),
            carriers: Some(Carriers {
                queue_pair,
                source,
                receiver,
            }),
            remote: None,
            open: false,
            options: *options,
            bytes,
            credit: Credit::default(),
            grant: Grant::new(options.receives),
            held: 0,
            holders: VecDeque::new(),
            queues: Queues::default(),
            waiting: Vec::new(),
            in_flight: VecDeque::new(),
            control_in_flight: 0,
            messages_in_flight: 0,
            buffers_in_flight: 0,
            unread: BTreeMap::new(),
            next: 0,
            part: None,
            groups: BTreeMap::new(),
            heard: true,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.carriers.is_some()
    }

    /// Whether both sides are connected.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn receive_bytes(&self) -> usize {
        self.bytes
    }

    /// The queue pair at this end.
    pub(super) fn address(&self) -> Option<&QueuePairAddress> {
        let carriers = self.carriers.as_ref();
        carriers.map(|carriers| carriers.queue_pair.address())
    }

    /// The address of this end, as the peer is told it before anything has come.
    pub(super) fn own_end(&self) -> Result<ConnectionAddress> {
        let lost = || self.lost(CompletionStatus::Flushed);
        let carriers = self.carriers.as_ref().ok_or_else(lost)?;
        Ok(ConnectionAddress {
            design: self.options.design,
            valid: carriers.receiver.queue().map(Queue::address),
            free: carriers.source.queue().map(Queue::address),
            queue_pair: carriers.queue_pair.address().clone(),
        })
    }

    /// The queue pair at its other end, once it is connected.
    pub(super) fn remote(&self) -> Option<&QueuePairAddress> {
        self.remote.as_ref()
    }

    /// Connects it with the peer's end.
    pub(super) fn connect(&mut self, remote: &ConnectionAddress) -> Result<()> {
        let lost = ExchangeError::lost(&self.name, CompletionStatus::Flushed);
        let carriers = self.carriers.as_mut().ok_or(lost)?;
        // Messages that are to be read may wait for as long as there is an entry for each.
        carriers.source.begin(remote.valid, u32::MAX, &self.name)?;
        carriers.receiver.begin(remote.free, &self.name)?;
        carriers.queue_pair.connect(&remote.queue_pair)?;
        self.remote = Some(remote.queue_pair.clone());
        Ok(())
    }

    /// The peer is connected, too: from now on it may be sent to, and is told its credit. Whether that is news.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.open, true)
    }

    pub(super) fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::lost(&self.name, status)
    }

    /// The peer has said its credit. Whether it is the first.
    pub(super) fn take_credit(&mut self, credit: u32) -> bool {
        self.heard = true;
        self.credit.grant(credit);
        self.begin()
    }

    /// A message has come, whose memory is held until it is [given back](Self::give_back).
    pub(super) fn hold(&mut self, message: &Arc<Arrival>) {
        self.heard = true;
        self.held += 1;
        self.holders.push_back(Arc::downgrade(message));
    }

    /// The memory of a message that was held: its peer may send another.
    pub(super) fn give_back(&mut self, place: Place) {
        self.held -= 1;
        let holds = |message: &Weak<Arrival>| message.upgrade().is_some_and(|one| one.is_held());
        while self.holders.front().is_some_and(|oldest| !holds(oldest)) {
            self.holders.pop_front();
        }
        self.free(place);
    }

    /// The memory of a message that is not needed here, or not any more: there is room for another.
    pub(super) fn free(&mut self, place: Place) {
        if let Place::Here { buffer, slot, .. } = place
            && let Some(carriers) = &mut self.carriers
            && let Some(again) = carriers.receiver.give_back(buffer, slot, false)
        {
            post_receive(&carriers.queue_pair, 0, again);
            self.grant.add(1);
        }
    }

    /// Posts a receive again that was used up.
    pub(super) fn post_receive(&self, buffer: Option<Buffer>) {
        if let Some(carriers) = &self.carriers {
            post_receive(&carriers.queue_pair, 0, buffer);
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

    /// The rows that wait for it, and those on their way.
    pub(super) fn backlog(&self) -> Backlog {
        let (messages, bytes) = self.queues.waiting();
        Backlog {
            bytes,
            messages,
            in_flight: self.messages_in_flight,
        }
    }

    /// Ends it. Returns what will not be sent, and the members here of the peer's groups.
    pub(super) fn fail(&mut self) -> Vec<About> {
        // Without the queue pair no device reaches its memory any more.
        self.carriers = None;
        self.open = false;
        self.held = 0;
        self.bytes = 0;
        self.holders.clear();
        self.groups.clear();
        self.control_in_flight = 0;
        self.messages_in_flight = 0;
        self.buffers_in_flight = 0;
        self.part = None;
        let mut lost: Vec<_> = self.in_flight.drain(..).map(|(_, about)| about).collect();
        lost.extend(self.queues.take_all());
        lost.extend(std::mem::take(&mut self.unread).into_values());
        lost
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
        // The driver goes on if the neighbour is too late.
        if self.schedule.deadline() != stalled {
            self.wakers.extend(self.driver.take());
        }
    }

    pub(super) fn say_of_schedule(&mut self, peer: usize, body: Body) {
        self.say(peer, word(body));
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

    /// Asks for the bell wherever it would not be noticed that something has come.
    pub(super) fn ask_for_bells(&mut self) {
        for index in 0..self.connections.len() {
            if let Err(status) = self.connections[index].ask_for_bells() {
                self.fail_connection(index, status);
            }
        }
    }

    /// Messages whose memory is needed.
    pub(super) fn crowded(&self) -> Vec<Arc<Arrival>> {
        let connections = self.connections.iter();
        connections.flat_map(Connection::crowded).collect()
    }
}
