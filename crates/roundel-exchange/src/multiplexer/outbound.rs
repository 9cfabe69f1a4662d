//! The sending side of one operator: waits for the credit of its links and for a message of the pool, and hands
//! filled messages to the connections.

use super::connection::Connection;
use super::outgoing::{About, Outgoing, Rows, inline};
use super::{Multiplexer, State};
use crate::endpoint::{Credit, DestinationId, GroupId, LinkAddress, SendBuffer, TakesBack};
use crate::error::{ExchangeError, Result};
use crate::report::{DestinationReport, EndpointReport};
use crate::wire::{Body, Data, EndOfStream, HEADER_LENGTH, Header, SequenceDigest};
use roundel_verbs::{Buffer, CompletionStatus, Payload};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A source among those of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceKey {
    pub(super) exchange: u64,
    pub(super) source: u32,
}

/// What the multiplexer knows of a source of its node.
pub(super) struct Source {
    query: u64,
    destinations: Vec<Destination>,
    groups: Vec<Group>,
    waiting: Vec<Waker>,
    blocked_for_credit: Duration,
}

struct Destination {
    peer: String,
    connection: usize,
    /// The number of the link at its node.
    link: u32,
    credit: Credit,
    /// Credit of messages that are being filled.
    reserved: u32,
    digest: SequenceDigest,
    report: DestinationReport,
    /// Messages that wait or are on their way.
    pending: usize,
    ended: bool,
    failed: Option<ExchangeError>,
}

struct Group {
    members: Arc<[usize]>,
    /// Its members by connection: each connection gets one message for all of its own.
    by_connection: Vec<(usize, Arc<[usize]>)>,
    sent: u64,
}

/// The sending side of one operator. Clones share it; every method may be called by any thread.
#[derive(Clone)]
pub(crate) struct Outbound(Arc<Shared>);

struct Shared {
    multiplexer: Multiplexer,
    key: SourceKey,
}

impl Outbound {
    /// Opens source `source` of `exchange`, which uses the memory of a query.
    ///
    /// # Errors
    /// When the node has that source already.
    pub(crate) fn open(
        multiplexer: &Multiplexer,
        query: u64,
        exchange: u64,
        source: u32,
    ) -> Result<Self> {
        let key = SourceKey { exchange, source };
        let opened = Source {
            query,
            destinations: Vec::new(),
            groups: Vec::new(),
            waiting: Vec::new(),
            blocked_for_credit: Duration::ZERO,
        };
        multiplexer
            .0
            .with(|state| match state.sources.contains_key(&key) {
                true => Err(ExchangeError::own(format!(
                    "source {source} of exchange {exchange} twice on one node"
                ))),
                false => {
                    state.sources.insert(key, opened);
                    Ok(())
                }
            })?;
        Ok(Self(Arc::new(Shared {
            multiplexer: multiplexer.clone(),
            key,
        })))
    }

    /// Accepts the offer of a receiver named `peer`, with whose node there is a connection.
    pub(crate) fn accept(
        &self,
        offer: &LinkAddress,
        peer: &str,
    ) -> Result<(DestinationId, LinkAddress)> {
        self.with(|state, key| {
            let connection = state.connection_to(&offer.queue_pair, peer)?;
            let own = state.connections[connection].own_address()?.clone();
            let source = state.source(key)?;
            let mut credit = Credit::default();
            credit.grant(offer.credit);
            let destination = Destination {
                peer: peer.into(),
                connection,
                link: offer.destination,
                credit,
                reserved: 0,
                digest: SequenceDigest::default(),
                report: DestinationReport::default(),
                pending: 0,
                ended: false,
                failed: None,
            };
            source.destinations.push(destination);
            let index = source.destinations.len() - 1;
            let address = LinkAddress {
                exchange: key.exchange,
                source: key.source,
                destination: index as u32,
                credit: 0,
                ring: None,
                local: 0,
                queue_pair: own,
            };
            Ok((DestinationId(index), address))
        })
    }

    /// Makes a transmission group.
    pub(crate) fn group(&self, members: &[DestinationId]) -> Result<GroupId> {
        self.with(|state, key| {
            let source = state.source(key)?;
            let Ok(number) = u16::try_from(source.groups.len()) else {
                return Err(ExchangeError::own(
                    "more groups than messages can name".to_owned(),
                ));
            };
            let mut by_connection: Vec<(usize, Vec<usize>)> = Vec::new();
            for DestinationId(member) in members {
                let connection = source.destinations[*member].connection;
                match by_connection.iter_mut().find(|(to, _)| *to == connection) {
                    Some((_, own)) => own.push(*member),
                    None => by_connection.push((connection, vec![*member])),
                }
            }
            let links: Vec<_> = members
                .iter()
                .map(|DestinationId(member)| &source.destinations[*member])
                .map(|member| (member.connection, member.link))
                .collect();
            source.groups.push(Group {
                members: members.iter().map(|member| member.0).collect(),
                by_connection: by_connection
                    .into_iter()
                    .map(|(connection, own)| (connection, own.into()))
                    .collect(),
                sent: 0,
            });
            // Before any message to the group: control overtakes rows and nothing overtakes control.
            for (connection, link) in links {
                state.say(connection, header(key, number, link, Body::Member));
            }
            Ok(GroupId(usize::from(number)))
        })
    }

    /// Waits until every member of a group has granted credit, and for a message.
    pub(crate) async fn acquire(&self, group: GroupId) -> Result<SendBuffer> {
        let context = &self.0.multiplexer.0.fabric.context;
        let mut since = None;
        let acquired = std::future::poll_fn(|cx| {
            let acquired = self.poll_acquire(group, cx);
            if acquired.is_pending() {
                since.get_or_insert_with(|| context.now());
            }
            acquired
        })
        .await;
        if let Some(since) = since {
            let blocked = context.now().saturating_sub(since);
            self.with(|state, key| state.note_blocked(key, group, blocked));
        }
        acquired
    }

    fn poll_acquire(&self, group: GroupId, cx: &mut Context<'_>) -> Poll<Result<SendBuffer>> {
        let inner = &self.0.multiplexer.0;
        let mut reserved = self.with(|state, key| state.reserve(key, group, None));
        if let Ok(None) = reserved {
            inner.progress();
            reserved = self.with(|state, key| state.reserve(key, group, Some(cx.waker())));
        }
        match reserved {
            Ok(Some(buffer)) => {
                let home = Arc::downgrade(&self.0) as Weak<dyn TakesBack>;
                Poll::Ready(Ok(SendBuffer::new(buffer, group, home)))
            }
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Sends the first `data.payload_length` bytes of the payload to every member of its group.
    pub(crate) fn put(&self, mut buffer: SendBuffer, partition: u32, data: Data) -> Result<()> {
        let (group, memory) = (buffer.group(), buffer.take());
        self.with(|state, key| state.send(key, group, memory, partition, data))
    }

    /// Tells a destination that no more comes, and waits until everything has been handed over.
    pub(crate) async fn finish(&self, destination: DestinationId) -> Result<()> {
        std::future::poll_fn(|cx| {
            let inner = &self.0.multiplexer.0;
            let mut done = self.with(|state, key| state.finish(key, destination, None));
            if done.is_pending() {
                inner.progress();
                done = self.with(|state, key| state.finish(key, destination, Some(cx.waker())));
            }
            done
        })
        .await
    }

    /// Forgets a destination: it has all that it wanted, or it is gone.
    pub(crate) fn close(&self, destination: DestinationId, error: Option<ExchangeError>) {
        self.with(|state, key| state.close_destination(key, destination.0, error));
    }

    /// Whether a destination can be sent no more.
    pub(crate) fn has_failed(&self, destination: DestinationId) -> bool {
        self.with(|state, key| {
            let source = state.sources.get(&key);
            source.is_none_or(|source| source.destinations[destination.0].failed.is_some())
        })
    }

    /// What it did so far.
    pub(crate) fn report(&self) -> EndpointReport {
        self.with(|state, key| EndpointReport {
            blocked_for_credit: state
                .sources
                .get(&key)
                .map_or(Duration::ZERO, |source| source.blocked_for_credit),
            ..EndpointReport::default()
        })
    }

    /// What it sent to one destination so far.
    pub(crate) fn destination_report(&self, destination: DestinationId) -> DestinationReport {
        self.with(|state, key| {
            let source = state.sources.get(&key);
            source.map_or_else(DestinationReport::default, |source| {
                source.destinations[destination.0].report
            })
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State, SourceKey) -> T) -> T {
        let key = self.0.key;
        self.0.multiplexer.0.with(|state| act(state, key))
    }
}

impl TakesBack for Shared {
    fn take_back(&self, group: GroupId, buffer: Buffer) {
        self.multiplexer.0.with(|state| {
            state.unreserve(self.key, group);
            if let Some(query) = state.sources.get(&self.key).map(|source| source.query) {
                state.message_back(query, Some(buffer));
            }
        });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let key = self.key;
        self.multiplexer.0.with(|state| {
            let count = state
                .sources
                .get(&key)
                .map_or(0, |source| source.destinations.len());
            for destination in 0..count {
                state.close_destination(key, destination, None);
            }
            state.sources.remove(&key);
        });
    }
}

fn header(key: SourceKey, group: u16, link: u32, body: Body) -> Header {
    Header {
        flags: 0,
        group,
        exchange: key.exchange,
        source: key.source,
        partition: link,
        sequence: 0,
        credit_seen: 0,
        body,
    }
}

impl Source {
    fn failure_of(&self, group: &Group) -> Option<ExchangeError> {
        let members = group.members.iter();
        members
            .map(|member| &self.destinations[*member])
            .find_map(|member| member.failed.clone())
    }

    /// A task is woken when something has changed.
    fn wait(&mut self, waker: Option<&Waker>) {
        if let Some(waker) = waker
            && !self.waiting.iter().any(|waiting| waiting.will_wake(waker))
        {
            self.waiting.push(waker.clone());
        }
    }
}

impl Destination {
    fn may_send(&self) -> bool {
        self.credit.left() > self.reserved
    }
}

impl State {
    fn source(&mut self, key: SourceKey) -> Result<&mut Source> {
        let source = self.sources.get_mut(&key);
        source.ok_or_else(|| ExchangeError::own("a source that was closed".to_owned()))
    }

    /// A message for a group, each member of which has granted credit for it. Without one the task is woken
    /// when there may be.
    fn reserve(
        &mut self,
        key: SourceKey,
        group: GroupId,
        waker: Option<&Waker>,
    ) -> Result<Option<Buffer>> {
        let Some(source) = self.sources.get_mut(&key) else {
            return Err(ExchangeError::own("a source that was closed".to_owned()));
        };
        let target = &source.groups[group.0];
        if let Some(error) = source.failure_of(target) {
            return Err(error);
        }
        let members = target.members.clone();
        let may_send = |member: &usize| source.destinations[*member].may_send();
        if !members.iter().all(may_send) {
            source.wait(waker);
            return Ok(None);
        }
        let share = self.pool.share(self.by_peer.len());
        for (index, _) in &target.by_connection {
            let connection = &mut self.connections[*index];
            if connection.queues.waiting_of(source.query) >= share {
                if let Some(waker) = waker {
                    connection.wait(waker);
                }
                source.wait(waker);
                return Ok(None);
            }
        }
        let Some(buffer) = self.pool.take(source.query) else {
            // Where its destinations fail, no message comes back.
            source.wait(waker);
            if let Some(waker) = waker {
                self.pool.wait(waker);
            }
            return Ok(None);
        };
        for member in members.iter() {
            source.destinations[*member].reserved += 1;
        }
        Ok(Some(buffer))
    }

    /// Gives the credit back that a message had which is not sent.
    fn unreserve(&mut self, key: SourceKey, group: GroupId) {
        let Some(source) = self.sources.get_mut(&key) else {
            return;
        };
        for member in source.groups[group.0].members.iter() {
            source.destinations[*member].reserved -= 1;
        }
        self.wakers.append(&mut source.waiting);
    }

    fn send(
        &mut self,
        key: SourceKey,
        group: GroupId,
        mut memory: Buffer,
        partition: u32,
        data: Data,
    ) -> Result<()> {
        self.unreserve(key, group);
        let source = self.source(key)?;
        let query = source.query;
        let target = &mut source.groups[group.0];
        let sequence = target.sent;
        target.sent += 1;
        let by_connection = target.by_connection.clone();
        if let Some(error) = source.failure_of(&source.groups[group.0]) {
            self.message_back(query, Some(memory));
            return Err(error);
        }
        let mut message = header(key, group.0 as u16, partition, Body::Data(data));
        message.sequence = sequence;
        memory.write(0, &message.emit());
        let length = HEADER_LENGTH + data.payload_length as usize;
        for (_, members) in &by_connection {
            for member in members.iter() {
                source.destinations[*member].count(group, sequence, length);
            }
        }
        let rows = |destinations: Arc<[usize]>, shared| {
            About::Data(Rows {
                query,
                source: key,
                destinations,
                shared,
            })
        };
        if let [(connection, members)] = &by_connection[..] {
            let message = Outgoing {
                payload: Payload::Owned {
                    buffer: memory,
                    length,
                },
                about: rows(members.clone(), None),
            };
            self.connections[*connection].queues.push(query, message);
            return Ok(());
        }
        let shared = memory.share();
        for (connection, members) in by_connection {
            let message = Outgoing {
                payload: Payload::Shared {
                    buffer: shared.clone(),
                    length,
                },
                about: rows(members, Some(shared.clone())),
            };
            self.connections[connection].queues.push(query, message);
        }
        Ok(())
    }

    fn finish(
        &mut self,
        key: SourceKey,
        destination: DestinationId,
        waker: Option<&Waker>,
    ) -> Poll<Result<()>> {
        let Some(source) = self.sources.get_mut(&key) else {
            return Poll::Ready(Err(ExchangeError::own(
                "a source that was closed".to_owned(),
            )));
        };
        let target = &mut source.destinations[destination.0];
        if target.ended && target.pending == 0 {
            // A receiver that has everything may leave first.
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &target.failed {
            return Poll::Ready(Err(error.clone()));
        }
        if !std::mem::replace(&mut target.ended, true) {
            target.pending += 1;
            let end = Body::EndOfStream(EndOfStream {
                sent: target.digest,
            });
            // Behind the rows.
            let message = Outgoing {
                payload: inline(&header(key, 0, target.link, end)),
                about: About::End(key, destination.0),
            };
            let (query, connection) = (source.query, target.connection);
            self.connections[connection].queues.push(query, message);
        }
        source.wait(waker);
        Poll::Pending
    }

    fn close_destination(&mut self, key: SourceKey, index: usize, error: Option<ExchangeError>) {
        let Some(source) = self.sources.get_mut(&key) else {
            return;
        };
        let target = &mut source.destinations[index];
        let lost = target.lost(CompletionStatus::Flushed);
        let first = target.failed.is_none();
        target.failed.get_or_insert(error.unwrap_or(lost));
        let (connection, link, ended) = (target.connection, target.link, target.ended);
        self.wakers.append(&mut source.waiting);
        if first && !ended {
            self.say(connection, header(key, 0, link, Body::Abort));
        }
    }

    /// Messages were handed over to destinations.
    pub(super) fn handed_over(&mut self, key: SourceKey, destinations: &[usize]) {
        if let Some(source) = self.sources.get_mut(&key) {
            for destination in destinations {
                source.destinations[*destination].pending -= 1;
            }
            self.wakers.append(&mut source.waiting);
        }
    }

    /// A receiver grants a source credit.
    pub(super) fn grant(&mut self, connection: usize, key: SourceKey, index: u32, credit: u32) {
        if let Some(source) = self.sources.get_mut(&key)
            && let Some(target) = source.destinations.get_mut(index as usize)
            && target.connection == connection
        {
            target.credit.grant(credit);
            self.wakers.append(&mut source.waiting);
        }
    }

    /// A receiver wants no more.
    pub(super) fn left(&mut self, connection: usize, key: SourceKey, index: u32) {
        if let Some(source) = self.sources.get_mut(&key)
            && let Some(target) = source.destinations.get_mut(index as usize)
            && target.connection == connection
        {
            let lost = target.lost(CompletionStatus::Flushed);
            target.failed.get_or_insert(lost);
            self.wakers.append(&mut source.waiting);
        }
    }

    /// A connection is gone.
    pub(super) fn lose_destinations(&mut self, connection: usize, error: &ExchangeError) {
        for source in self.sources.values_mut() {
            for target in &mut source.destinations {
                if target.connection == connection {
                    target.failed.get_or_insert_with(|| error.clone());
                }
            }
            self.wakers.append(&mut source.waiting);
        }
    }

    fn note_blocked(&mut self, key: SourceKey, group: GroupId, blocked: Duration) {
        if let Some(source) = self.sources.get_mut(&key) {
            source.blocked_for_credit += blocked;
            for member in source.groups[group.0].members.iter() {
                source.destinations[*member].report.blocked_for_credit += blocked;
            }
        }
    }
}

impl Destination {
    /// Counts a message that is sent.
    fn count(&mut self, group: GroupId, sequence: u64, length: usize) {
        self.credit.spend();
        self.digest.add(group.0 as u16, sequence);
        self.pending += 1;
        self.report.messages += 1;
        self.report.bytes += length as u64;
    }

    fn lost(&self, status: CompletionStatus) -> ExchangeError {
        ExchangeError::PeerLost {
            peer: self.peer.clone(),
            status,
        }
    }
}

impl Connection {
    fn own_address(&self) -> Result<&roundel_verbs::QueuePairAddress> {
        let lost = || self.lost(CompletionStatus::Flushed);
        self.address().ok_or_else(lost)
    }
}
