//! The SEND endpoint: over Reliable Connection (one queue pair per destination) messages are sent,
//! written or left to be read; over Unreliable Datagram (one queue pair for all) they are sent.

mod attend;
mod buffer;
mod destination;
mod finish;
mod joining;
mod kept;
mod multicast;
mod posting;
mod progress;
mod repair;
mod shared;
mod state;
#[cfg(test)]
mod tests;

pub use buffer::SendBuffer;
pub(crate) use buffer::TakesBack;
pub use kept::Origin;

use super::LinkAddress;
use crate::account::{Spending, waiting_for, waits_for};
use crate::buffers::Rule;
use crate::designs::{Design, send_ud};
use crate::error::ExchangeError;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::link::queue::Queue;
use crate::link::queue_pair::{SendQueue, post_receives};
use crate::link::repair::Retained;
use crate::options::ExchangeOptions;
use crate::report::{DestinationReport, EndpointReport};
use crate::wire::{Body, Data, HEADER_LENGTH, Header};
use destination::Destination;
use kept::Repairs;
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::completion_queue::until_ready;
use roundel_verbs::{Buffer, CompletionQueue, CompletionStatus, Guarded, Transport};
use shared::Shared;
use state::{CONTROL_SENDS, Group, State};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

/// Completions that a send endpoint's queue is asked to hold.
const COMPLETIONS: usize = 1024;
/// Buffers that a group begins with at most; it gets more when all of them are in use.
const BUFFERS_FIRST: usize = 8;

/// A destination of a send endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DestinationId(pub(crate) usize);

/// A transmission group: the destinations that get the same messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub(crate) usize);

/// One sending endpoint. Clones share it; every method may be called by any thread.
#[derive(Clone)]
pub struct SendEndpoint(Arc<Inner>);

struct Inner {
    fabric: Fabric,
    options: ExchangeOptions,
    exchange: u64,
    source: u32,
    queue: CompletionQueue,
    state: Guarded<State>,
}

impl TakesBack for Inner {
    fn take_back(&self, group: GroupId, buffer: Buffer) {
        self.state.lock().give_back(group.0, buffer);
        self.queue.wake();
    }
}

impl Inner {
    /// Bytes of a buffer of a group.
    fn buffer_bytes(&self) -> usize {
        self.options.design.buffer_bytes(self.options.message_bytes)
    }

    /// Receives of a datagram endpoint for what one destination says that has granted so many messages.
    fn control_receives(&self, window: usize) -> usize {
        let credits = self.options.credits_in_flight_of(window);
        credits + self.options.asks_in_flight(window)
    }

    /// Posts receives for what a destination says that has granted so many messages, unless there are as many.
    fn post_control_receives(&self, state: &mut State, index: usize, window: usize) -> Result<()> {
        let destination = &mut state.destinations[index];
        let wanted = self.control_receives(window.min(self.options.window_max()));
        let more = wanted.saturating_sub(destination.control_receives);
        if let (Some(datagrams), 1..) = (&state.datagrams, more) {
            let queue_pair = &datagrams.queue_pair;
            send_ud::post_receives(&self.fabric, queue_pair, more, HEADER_LENGTH)?;
            destination.control_receives = wanted;
            state.report.registered_bytes += more * (GRH_BYTES + HEADER_LENGTH);
        }
        Ok(())
    }
}

impl SendEndpoint {
    /// Opens an endpoint of source `source` of `exchange`.
    pub fn open(
        fabric: &Fabric,
        options: &ExchangeOptions,
        exchange: u64,
        source: u32,
    ) -> Result<Self> {
        let queue = fabric
            .device
            .create_completion_queue(COMPLETIONS, Some(&fabric.channel))?;
        let datagrams = match options.design.transport() {
            Transport::ReliableConnection => None,
            _ => {
                let depth = options.datagrams_max;
                let queue_pair = send_ud::open(fabric, &queue, depth, options.queue_key)?;
                Some(SendQueue::new(queue_pair, depth))
            }
        };
        Ok(Self(Arc::new(Inner {
            fabric: fabric.clone(),
            options: options.clone(),
            exchange,
            source,
            queue,
            state: Guarded::new(
                State {
                    design: options.design,
                    report: EndpointReport {
                        queue_pairs: datagrams.iter().count(),
                        ..EndpointReport::default()
                    },
                    datagrams,
                    destinations: Vec::new(),
                    by_queue_pair: HashMap::new(),
                    groups: Vec::new(),
                    pools: Vec::new(),
                    shared: Shared::default(),
                    repairs: Repairs::default(),
                    completions: Vec::new(),
                    asked: false,
                },
                &*fabric.context,
            ),
        })))
    }

    /// Accepts the offer of a receiver named `peer`: a new destination, and the answer for it.
    /// Nothing is sent beyond the credit that the receiver grants, in its offer or later.
    pub fn accept(&self, offer: &LinkAddress, peer: &str) -> Result<(DestinationId, LinkAddress)> {
        let inner = &*self.0;
        let mut state = inner.state.lock();
        let index = state.destinations.len();
        let (carrier, sends, queue_pair) = match &state.datagrams {
            None => {
                let (arena, sizes) = (&inner.fabric.arena, inner.options.link_sizes());
                let mut carrier = inner.options.design.connected_source(arena, &sizes)?;
                carrier.begin(offer.queue, offer.credit, peer)?;
                state.report.registered_bytes += carrier.queue().map_or(0, Queue::bytes);
                let control = inner.options.credits_in_flight() + 4;
                // A message may take two requests.
                let depth = 2 * inner.options.window_max() + CONTROL_SENDS;
                let queue_pair = inner.fabric.connected(&inner.queue, depth, control)?;
                post_receives(&queue_pair, index as u64, (0..control).map(|_| None))?;
                queue_pair.connect(&offer.queue_pair)?;
                state.by_queue_pair.insert(queue_pair.number(), index);
                state.report.queue_pairs += 1;
                let address = queue_pair.address().clone();
                (carrier, Some(SendQueue::new(queue_pair, depth)), address)
            }
            Some(datagrams) => {
                let device = &inner.fabric.device;
                let handle = device.create_address_handle(&offer.queue_pair)?;
                let address = datagrams.queue_pair.address().clone();
                (Design::datagram_source(handle), None, address)
            }
        };
        let queue = carrier.queue().map(Queue::address);
        let mut destination = Destination::new(peer, &offer.queue_pair, sends, carrier);
        destination.credit.grant(offer.credit);
        state.destinations.push(destination);
        if let Err(error) = inner.post_control_receives(&mut state, index, offer.credit as usize) {
            state.destinations.pop();
            return Err(error);
        }
        let address = LinkAddress {
            exchange: inner.exchange,
            source: inner.source,
            destination: index as u32,
            credit: 0,
            queue,
            local: 0,
            queue_pair,
        };
        Ok((DestinationId(index), address))
    }

    /// Makes a transmission group with its buffers: one member for repartitioning, several for
    /// multicast, all for broadcast. A destination may be in any number of groups.
    pub fn group(&self, members: &[DestinationId]) -> Result<GroupId> {
        let inner = &*self.0;
        let count = inner.options.window.least.min(BUFFERS_FIRST);
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            let bytes = inner.buffer_bytes();
            free.push(inner.fabric.buffer(bytes, inner.options.design.reads())?);
        }
        let (repairs, kept) = (inner.options.repairs(), inner.options.unarrived_max());
        let mut state = inner.state.lock();
        if state.groups.len() > usize::from(u16::MAX) {
            return Err(ExchangeError::own(format!(
                "more groups than messages can name: {}",
                state.groups.len()
            )));
        }
        state.report.hold(count, inner.options.message_bytes);
        let pool = state.add_to_pool(free, inner.options.window_max());
        state.groups.push(Group {
            members: members.iter().map(|member| member.0).collect(),
            pool,
            held: 0,
            closed: false,
            sent: 0,
            retained: repairs.then(|| Retained::new(members.len(), kept)),
            multicast: None,
        });
        let group = state.groups.len() - 1;
        self.begin_multicast(&mut state, group);
        Ok(GroupId(group))
    }

    /// Waits for a free buffer of the group.
    pub async fn acquire(&self, group: GroupId) -> Result<SendBuffer> {
        let mut since = None;
        let queues = [&self.0.queue];
        let acquired = until_ready(&queues, |_| self.poll_acquire(group, &mut since));
        waiting_for(Spending::Buffer, acquired).await
    }

    fn poll_acquire(
        &self,
        group: GroupId,
        since: &mut Option<Duration>,
    ) -> Poll<Result<SendBuffer>> {
        let mut state = self.0.state.lock();
        // By the paper's rule it matters how many are ready by now.
        let by_ready = self.0.options.window.rule == Rule::Paper;
        if by_ready || !state.has_buffer_for(group) {
            self.progress(&mut state);
        }
        self.retire(&mut state, group);
        if let Some(error) = state.failure_of(group) {
            return Poll::Ready(Err(error));
        }
        let buffer = state.take_buffer(group);
        match buffer.or_else(|| self.grow(&mut state, group)) {
            Some(buffer) => {
                state.count_held(group);
                if let Some(since) = since.take() {
                    let waited = self.0.fabric.context.now().saturating_sub(since);
                    state.note_wait(group, waited);
                }
                let home = Arc::downgrade(&self.0) as Weak<dyn TakesBack>;
                Poll::Ready(Ok(SendBuffer::new(buffer, group, home)))
            }
            None => {
                since.get_or_insert_with(|| self.0.fabric.context.now());
                self.wait_for_members(&mut state, group);
                Poll::Pending
            }
        }
    }

    /// A task that sends to a group waits until its members have done something.
    fn wait_for_members(&self, state: &mut State, group: GroupId) {
        if self.0.options.has_queues() && self.0.queue.is_armed() {
            let members = state.groups[group.0].members.clone();
            state.ask_for_bells(&members);
        }
    }

    /// A task waits until destinations have done something. If it is going to sleep, they shall wake this
    /// end; one that stays awake finds their queues here filled.
    fn wait_for(&self, state: &mut State, destinations: &[usize]) {
        if self.0.queue.is_armed() {
            state.ask_for_bells(destinations);
        }
    }

    /// Gives back the buffers of a group that are never wanted.
    fn retire(&self, state: &mut State, group: GroupId) {
        let rule = self.0.options.window.rule;
        if rule != Rule::Fixed {
            let pool = state.pool_of(group);
            let ready = pool.free.len();
            let surplus = match rule {
                Rule::Paper => ready.saturating_sub(1),
                _ => {
                    pool.circulation.look(ready, ready.min(1));
                    pool.circulation.excess(pool.buffers, pool.least)
                }
            };
            let kept = ready.saturating_sub(surplus).max(pool.idle);
            pool.free.truncate(kept);
            let retired = ready - pool.free.len();
            pool.buffers -= retired;
            let bytes = self.0.options.message_bytes;
            state.report.give_back(retired, bytes);
        }
    }

    /// One more buffer for a group all of whose buffers are in use, if there is memory to spare. Over datagrams, where the
    /// budget is used up, those come back first that are on their way: more of them would only wait for the network.
    fn grow(&self, state: &mut State, group: GroupId) -> Option<Buffer> {
        let (options, fabric) = (&self.0.options, &self.0.fabric);
        let none_on_its_way = state.datagrams.as_ref().is_none_or(SendQueue::is_empty);
        let pool = state.pool_of(group);
        if pool.buffers >= pool.most
            || pool.buffers >= options.endpoint_budget() && !none_on_its_way
        {
            return None;
        }
        let buffer = fabric.spare_buffer(self.0.buffer_bytes(), options.design.reads())?;
        pool.buffers += 1;
        state.report.hold(1, options.message_bytes);
        Some(buffer)
    }

    /// Sends the first `data.payload_length` bytes of the buffer's payload to every member of its
    /// group, as soon as each has granted credit for it. `origin` is what they were cut from, at
    /// `data.offset`, if they are a part of something.
    ///
    /// # Errors
    /// When a member has failed: then none has got it. One that fails just now is found when the next is sent.
    pub async fn put(
        &self,
        mut buffer: SendBuffer,
        partition: u32,
        data: Data,
        origin: Option<&Arc<dyn Origin>>,
    ) -> Result<()> {
        let mut since = None;
        let queues = [&self.0.queue];
        let put = until_ready(&queues, |_| {
            self.poll_put(&mut buffer, partition, data, origin, &mut since)
        });
        waiting_for(Spending::Credit, put).await
    }

    fn poll_put(
        &self,
        buffer: &mut SendBuffer,
        partition: u32,
        data: Data,
        origin: Option<&Arc<dyn Origin>>,
        since: &mut Option<Duration>,
    ) -> Poll<Result<()>> {
        let inner = &*self.0;
        let mut state = inner.state.lock();
        let group = buffer.group();
        // Also before the last credit is spent: the receiver takes it for a sign of want.
        if !state.may_send(group) || state.credit_left(group) == 1 {
            self.progress(&mut state);
        }
        if let Some(error) = state.failure_of(group) {
            return Poll::Ready(Err(error));
        }
        if !state.may_send(group) {
            since.get_or_insert_with(|| inner.fabric.context.now());
            waits_for(match state.credit_left(group) {
                0 => Spending::Credit,
                _ => Spending::Buffer,
            });
            self.wait_for_members(&mut state, group);
            return Poll::Pending;
        }
        if let Some(since) = since.take() {
            let blocked = inner.fabric.context.now().saturating_sub(since);
            state.report.blocked_for_credit += blocked;
            state.note_wait(group, blocked);
            let state = &mut *state;
            for member in &state.groups[group.0].members {
                state.destinations[*member].report.blocked_for_credit += blocked;
            }
        }
        let mut memory = buffer.take();
        let sequence = state.groups[group.0].sent;
        let header = self.data_header(&state, group.0, sequence, partition, data);
        memory.write(0, &header.emit());
        let length = HEADER_LENGTH + data.payload_length as usize;
        let message = (partition, data, origin);
        let sent = state.send_data(group.0, memory, length, message);
        if sent.is_err() {
            // One that was to be read comes back when its destination is closed.
            if !state.design.reads() {
                state.lose_buffer(group, inner.options.message_bytes);
            }
            // Others wait for the same destination.
            inner.queue.wake();
        }
        Poll::Ready(sent)
    }

    /// Forgets a destination: it has all that it wanted, or it is gone. Its queue pair is
    /// destroyed.
    pub fn close(&self, destination: DestinationId, error: Option<ExchangeError>) {
        let mut state = self.0.state.lock();
        let target = &mut state.destinations[destination.0];
        let (sends, carrier) = (target.sends.take(), target.carrier.take());
        if let Some(sends) = &sends {
            state.by_queue_pair.remove(&sends.queue_pair.number());
            let counters = sends.queue_pair.counters();
            state.report.counters.merge(&counters);
        }
        let target = &mut state.destinations[destination.0];
        target.failed = Some(error.unwrap_or_else(|| target.lost(CompletionStatus::Flushed)));
        state.close_groups_of(destination.0);
        drop(state);
        drop((sends, carrier));
        self.0.queue.wake();
    }

    /// Whether a destination can be sent no more.
    pub fn has_failed(&self, destination: DestinationId) -> bool {
        let state = self.0.state.lock();
        state.destinations[destination.0].failed.is_some()
    }

    /// What it did so far.
    pub fn report(&self) -> EndpointReport {
        let state = self.0.state.lock();
        let mut report = state.report;
        if let Some(datagrams) = &state.datagrams {
            report.counters.merge(&datagrams.queue_pair.counters());
        }
        for sends in state.destinations.iter().flat_map(|to| &to.sends) {
            report.counters.merge(&sends.queue_pair.counters());
        }
        report
    }

    /// What it sent to one destination so far.
    pub fn destination_report(&self, destination: DestinationId) -> DestinationReport {
        self.0.state.lock().destinations[destination.0].report
    }

    fn data_header(
        &self,
        state: &State,
        group: usize,
        sequence: u64,
        partition: u32,
        data: Data,
    ) -> Header {
        let credit_seen = match state.groups[group].members[..] {
            [only] => state.destinations[only].allowed(),
            _ => 0,
        };
        Header {
            partition,
            sequence,
            credit_seen,
            ..self.header(group as u16, 0, Body::Data(data))
        }
    }

    /// The header of a message about a group, without what only data has.
    fn header(&self, group: u16, flags: u8, body: Body) -> Header {
        Header {
            flags,
            group,
            ..Header::of(self.0.exchange, self.0.source, 0, body)
        }
    }
}
