//! What the multiplexer knows of the sources of its node: their destinations and groups, the credit of their links, and
//! what of their messages is on its way.

use super::State;
use super::outgoing::{About, Memory, Outgoing, Rows, SourceKey};
use crate::account::Spending;
use crate::designs::carrier::Filled;
use crate::endpoint::{DestinationId, GroupId, LinkAddress};
use crate::error::{ExchangeError, Result};
use crate::fabric::expose;
use crate::link::credit::Credit;
use crate::report::DestinationReport;
use crate::wire::{Body, Data, HEADER_LENGTH, Header, SequenceDigest};
use roundel_verbs::{Buffer, CompletionStatus, Payload};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

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

/// A message of the pool.
pub(super) enum Reserved {
    Now(Buffer),
    /// What has to come before there is one.
    Later(Spending),
}

fn header(key: SourceKey, group: u16, link: u32, body: Body) -> Header {
    Header {
        group,
        ..Header::of(key.exchange, key.source, link, body)
    }
}

fn closed() -> ExchangeError {
    ExchangeError::own("a source that was closed".to_owned())
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
    /// A source of this node, which uses the memory of a query.
    pub(super) fn open_source(&mut self, key: SourceKey, query: u64) -> Result<()> {
        if self.sources.contains_key(&key) {
            let SourceKey { exchange, source } = key;
            return Err(ExchangeError::own(format!(
                "source {source} of exchange {exchange} twice on one node"
            )));
        }
        let opened = Source {
            query,
            destinations: Vec::new(),
            groups: Vec::new(),
            waiting: Vec::new(),
            blocked_for_credit: Duration::ZERO,
        };
        self.sources.insert(key, opened);
        Ok(())
    }

    /// It is not there any more.
    pub(super) fn close_source(&mut self, key: SourceKey) {
        let source = self.sources.get(&key);
        let count = source.map_or(0, |source| source.destinations.len());
        for destination in 0..count {
            self.close_destination(key, destination, None);
        }
        self.sources.remove(&key);
    }

    /// A destination of a source, by the offer of a receiver named `peer`, with whose node there is a connection.
    pub(super) fn accept(
        &mut self,
        key: SourceKey,
        offer: &LinkAddress,
        peer: &str,
    ) -> Result<(DestinationId, LinkAddress)> {
        let connection = self.connection_to(&offer.queue_pair, peer)?;
        let own = self.connections[connection].own_end()?.queue_pair;
        let source = self.source(key)?;
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
            queue: None,
            local: 0,
            queue_pair: own,
        };
        Ok((DestinationId(index), address))
    }

    /// A transmission group of a source.
    pub(super) fn group(&mut self, key: SourceKey, members: &[DestinationId]) -> Result<GroupId> {
        let source = self.source(key)?;
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
            self.say(connection, header(key, number, link, Body::Member));
        }
        Ok(GroupId(usize::from(number)))
    }

    fn source(&mut self, key: SourceKey) -> Result<&mut Source> {
        self.sources.get_mut(&key).ok_or_else(closed)
    }

    /// A message for a group, each member of which has granted credit for it. Without one the task is woken when there may
    /// be.
    pub(super) fn reserve(
        &mut self,
        key: SourceKey,
        group: GroupId,
        waker: Option<&Waker>,
    ) -> Result<Reserved> {
        let source = self.sources.get_mut(&key).ok_or_else(closed)?;
        let target = &source.groups[group.0];
        if let Some(error) = source.failure_of(target) {
            return Err(error);
        }
        let members = target.members.clone();
        let may_send = |member: &usize| source.destinations[*member].may_send();
        if !members.iter().all(may_send) {
            source.wait(waker);
            return Ok(Reserved::Later(Spending::Credit));
        }
        let share = self.pool.share(self.by_peer.len());
        for (index, _) in &target.by_connection {
            let connection = &mut self.connections[*index];
            if connection.queues.waiting_of(source.query) >= share {
                if let Some(waker) = waker {
                    connection.wait(waker);
                }
                source.wait(waker);
                return Ok(Reserved::Later(Spending::Turn));
            }
        }
        let Some(buffer) = self.pool.take(source.query) else {
            // Where its destinations fail, no message comes back.
            source.wait(waker);
            if let Some(waker) = waker {
                self.pool.wait(waker);
            }
            return Ok(Reserved::Later(Spending::Buffer));
        };
        for member in members.iter() {
            source.destinations[*member].reserved += 1;
        }
        Ok(Reserved::Now(buffer))
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

    /// A message that is not sent.
    pub(super) fn take_back(&mut self, key: SourceKey, group: GroupId, buffer: Buffer) {
        self.unreserve(key, group);
        if let Some(query) = self.sources.get(&key).map(|source| source.query) {
            self.message_back(query, Some(buffer));
        }
    }

    /// Hands a message over to the connections of its group.
    pub(super) fn send(
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
        let mut push = |connection: usize, destinations, message, memory| {
            let about = About::Data(Rows {
                query,
                source: key,
                destinations,
                bytes: length,
                memory,
            });
            let message = Outgoing { message, about };
            self.connections[connection].queues.push(query, message);
        };
        self.design.seal(&mut memory, length);
        if self.design.reads() {
            let exposed = Arc::new(expose(memory)?);
            let at = exposed.remote_address();
            for (connection, members) in by_connection {
                // Its number is the connection's to say.
                let (number, memory) = (0, Memory::Exposed(exposed.clone()));
                let message = Filled::Exposed { at, length, number };
                push(connection, members, message, memory);
            }
        } else if let [(connection, members)] = &by_connection[..] {
            let buffer = memory;
            let message = Filled::Bytes(Payload::Owned { buffer, length });
            push(*connection, members.clone(), message, Memory::Posted);
        } else {
            let shared = memory.share();
            for (connection, members) in by_connection {
                let buffer = shared.clone();
                let message = Filled::Bytes(Payload::Shared { buffer, length });
                push(connection, members, message, Memory::Shared(shared.clone()));
            }
        }
        Ok(())
    }

    /// Tells a destination that no more comes; ready when everything has been handed over.
    pub(super) fn finish(
        &mut self,
        key: SourceKey,
        destination: DestinationId,
        waker: Option<&Waker>,
    ) -> Poll<Result<()>> {
        let source = self.sources.get_mut(&key).ok_or_else(closed)?;
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
            let end = Body::EndOfStream(target.digest);
            // Behind the rows.
            let message = Outgoing {
                message: Filled::Header(header(key, 0, target.link, end)),
                about: About::End(key, destination.0),
            };
            let (query, connection) = (source.query, target.connection);
            self.connections[connection].queues.push(query, message);
        }
        source.wait(waker);
        Poll::Pending
    }

    /// Forgets a destination: it has all that it wanted, or it is gone.
    pub(super) fn close_destination(
        &mut self,
        key: SourceKey,
        index: usize,
        error: Option<ExchangeError>,
    ) {
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

    /// Whether a destination can be sent no more.
    pub(super) fn has_failed(&self, key: SourceKey, destination: usize) -> bool {
        let source = self.sources.get(&key);
        source.is_none_or(|source| source.destinations[destination].failed.is_some())
    }

    pub(super) fn blocked_for_credit(&self, key: SourceKey) -> Duration {
        let source = self.sources.get(&key);
        source.map_or(Duration::ZERO, |source| source.blocked_for_credit)
    }

    /// What was sent to a destination.
    pub(super) fn destination_report(
        &self,
        key: SourceKey,
        destination: DestinationId,
    ) -> DestinationReport {
        let source = self.sources.get(&key);
        source.map_or_else(DestinationReport::default, |source| {
            source.destinations[destination.0].report
        })
    }

    /// A source has waited so long for a message of a group.
    pub(super) fn note_blocked(&mut self, key: SourceKey, group: GroupId, blocked: Duration) {
        if let Some(source) = self.sources.get_mut(&key) {
            source.blocked_for_credit += blocked;
            for member in source.groups[group.0].members.iter() {
                let report = &mut source.destinations[*member].report;
                report.blocked_for_credit += blocked;
                report.delivering += blocked;
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
        ExchangeError::lost(&self.peer, status)
    }
}
