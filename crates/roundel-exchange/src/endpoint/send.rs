//! The SEND endpoint: Send/Receive with stateless absolute credit, over Reliable Connection (one
//! queue pair per destination) or Unreliable Datagram (one queue pair for all).

use super::{Fabric, LinkAddress};
use crate::error::{ExchangeError, Result};
use crate::options::ExchangeOptions;
use crate::report::EndpointReport;
use crate::wire::{Body, Data, EndOfStream, FLAG_REPEATED, HEADER_LENGTH, Header, SequenceDigest};
use parking_lot::Mutex;
use roundel_verbs::completion_queue::until_ready;
use roundel_verbs::{
    AddressHandle, Buffer, Completion, CompletionQueue, CompletionStatus, Opcode, Payload,
    QueuePair, QueuePairOptions, ReceiveRequest, SendOperation, SendRequest, SharedBuffer,
    Transport,
};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

/// Most destinations of one datagram endpoint; its send queue is sized for it.
const UD_SEND_DEPTH: usize = 1024;
/// Receives that a datagram endpoint posts for acknowledgements and repetitions, per destination
/// and beyond those for credit.
const UD_CONTROL_RECEIVES: usize = 4;
/// Buffers that a group begins with at most; it gets more when all of them are in use.
const BUFFERS_FIRST: usize = 8;
/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 64;
/// Mark of a send whose buffer is shared or absent, above group numbers.
const SHARED: u64 = 1 << 62;
const CONTROL: u64 = 1 << 63;

/// A destination of a send endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DestinationId(usize);

/// A transmission group: the destinations that get the same messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(usize);

/// One sending endpoint. Clones share it; every method may be called by any thread.
#[derive(Clone)]
pub struct SendEndpoint(Arc<Inner>);

struct Inner {
    fabric: Fabric,
    options: ExchangeOptions,
    exchange: u64,
    source: u32,
    queue: CompletionQueue,
    state: Mutex<State>,
}

struct State {
    /// The one queue pair of a datagram endpoint.
    datagrams: Option<QueuePair>,
    destinations: Vec<Destination>,
    by_queue_pair: HashMap<u32, usize>,
    groups: Vec<Group>,
    shared: HashMap<u64, SharedSend>,
    shared_next: u64,
    /// Messages posted so far: the sequence numbers of this source.
    sequence: u64,
    completions: Vec<Completion>,
    report: EndpointReport,
}

struct Destination {
    peer: String,
    carrier: Carrier,
    /// Absolute credit received and messages sent, both modulo 2^32.
    credit: u32,
    sent: u32,
    digest: SequenceDigest,
    /// Reliable Connection: sends posted and not completed, and whether one of them failed.
    in_flight: usize,
    undelivered: bool,
    end: Option<End>,
    failed: Option<ExchangeError>,
}

enum Carrier {
    Connected(QueuePair),
    Datagram { handle: AddressHandle, number: u32 },
    Closed,
}

/// An end-of-stream that was sent.
struct End {
    sequence: u64,
    acknowledged: bool,
    said_at: Duration,
}

struct Group {
    members: Vec<usize>,
    free: Vec<Buffer>,
    /// All its buffers, those in use included.
    buffers: usize,
}

struct SharedSend {
    buffer: SharedBuffer,
    group: usize,
    outstanding: usize,
}

/// A registered buffer to fill with a message. Dropped without being put, it goes back.
pub struct SendBuffer {
    buffer: Option<Buffer>,
    group: GroupId,
    endpoint: Weak<Inner>,
}

impl SendBuffer {
    /// The memory of the message's payload starts at this offset of the buffer.
    pub const PAYLOAD_AT: usize = HEADER_LENGTH;

    /// Copies payload bytes to `offset` of the payload.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.buffer
            .as_mut()
            .expect("a buffer is there until it is put")
            .write(Self::PAYLOAD_AT + offset, bytes);
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        if let (Some(buffer), Some(endpoint)) = (self.buffer.take(), self.endpoint.upgrade()) {
            endpoint.state.lock().groups[self.group.0].free.push(buffer);
            endpoint.queue.wake();
        }
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
            .create_completion_queue(UD_SEND_DEPTH, Some(&fabric.channel))?;
        let datagrams = match options.design.transport() {
            Transport::ReliableConnection => None,
            _ => Some(super::receive::open_datagrams(fabric, &queue)?),
        };
        Ok(Self(Arc::new(Inner {
            fabric: fabric.clone(),
            options: options.clone(),
            exchange,
            source,
            queue,
            state: Mutex::new(State {
                report: EndpointReport {
                    queue_pairs: datagrams.iter().count(),
                    ..EndpointReport::default()
                },
                datagrams,
                destinations: Vec::new(),
                by_queue_pair: HashMap::new(),
                groups: Vec::new(),
                shared: HashMap::new(),
                shared_next: 0,
                sequence: 0,
                completions: Vec::new(),
            }),
        })))
    }

    /// Accepts the offer of a receiver named `peer`: a new destination, and the answer for it.
    /// Nothing is sent before it grants its first credit.
    pub fn accept(&self, offer: &LinkAddress, peer: &str) -> Result<(DestinationId, LinkAddress)> {
        let inner = &*self.0;
        let mut state = inner.state.lock();
        let index = state.destinations.len();
        let (carrier, queue_pair) = match &state.datagrams {
            None => {
                let control = inner.options.credits_in_flight() + 4;
                let queue_pair = inner.fabric.device.create_queue_pair(
                    &QueuePairOptions {
                        transport: Transport::ReliableConnection,
                        send_depth: inner.options.window_max() + 4,
                        receive_depth: control,
                        rnr_retry: 7,
                        queue_key: 0,
                    },
                    &inner.queue,
                    &inner.queue,
                )?;
                let mut receives = (0..control)
                    .map(|_| ReceiveRequest {
                        id: index as u64,
                        buffer: None,
                    })
                    .collect();
                queue_pair.post_receive(&mut receives)?;
                queue_pair.connect(&offer.queue_pair)?;
                let address = queue_pair.address().clone();
                state.by_queue_pair.insert(address.number, index);
                state.report.queue_pairs += 1;
                (Carrier::Connected(queue_pair), address)
            }
            Some(datagrams) => {
                let handle = inner
                    .fabric
                    .device
                    .create_address_handle(&offer.queue_pair)?;
                super::receive::post_datagram_receives(
                    &inner.fabric,
                    datagrams,
                    inner.options.credits_in_flight() + UD_CONTROL_RECEIVES,
                    HEADER_LENGTH,
                )?;
                let carrier = Carrier::Datagram {
                    handle,
                    number: offer.queue_pair.number,
                };
                (carrier, datagrams.address().clone())
            }
        };
        state.destinations.push(Destination {
            peer: peer.into(),
            carrier,
            credit: 0,
            sent: 0,
            digest: SequenceDigest::default(),
            in_flight: 0,
            undelivered: false,
            end: None,
            failed: None,
        });
        let address = LinkAddress {
            exchange: inner.exchange,
            source: inner.source,
            destination: index as u32,
            queue_pair,
        };
        Ok((DestinationId(index), address))
    }

    /// Makes a transmission group with its buffers: one member for repartitioning, several for
    /// multicast, all for broadcast. A destination may be in any number of groups.
    pub fn group(&self, members: &[DestinationId]) -> Result<GroupId> {
        let inner = &*self.0;
        let count = inner.options.buffers_per_link.min(BUFFERS_FIRST);
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            free.push(inner.fabric.arena.allocate(inner.options.message_bytes)?);
        }
        let mut state = inner.state.lock();
        state.report.registered_bytes += count * inner.options.message_bytes;
        state.groups.push(Group {
            members: members.iter().map(|member| member.0).collect(),
            buffers: free.len(),
            free,
        });
        Ok(GroupId(state.groups.len() - 1))
    }

    /// Waits for a free buffer of the group.
    pub async fn acquire(&self, group: GroupId) -> Result<SendBuffer> {
        until_ready(&[&self.0.queue], |_| self.poll_acquire(group)).await
    }

    fn poll_acquire(&self, group: GroupId) -> Poll<Result<SendBuffer>> {
        let mut state = self.0.state.lock();
        if state.groups[group.0].free.is_empty() {
            self.progress(&mut state);
        }
        if let Some(error) = state.failure_of(group) {
            return Poll::Ready(Err(error));
        }
        let buffer = state.groups[group.0].free.pop();
        match buffer.or_else(|| self.grow(&mut state, group)) {
            Some(buffer) => Poll::Ready(Ok(SendBuffer {
                buffer: Some(buffer),
                group,
                endpoint: Arc::downgrade(&self.0),
            })),
            None => Poll::Pending,
        }
    }

    /// One more buffer for a group all of whose buffers are in use, if there is memory to spare.
    fn grow(&self, state: &mut State, group: GroupId) -> Option<Buffer> {
        let (options, fabric) = (&self.0.options, &self.0.fabric);
        if state.groups[group.0].buffers >= options.window_max() {
            return None;
        }
        let buffer = fabric.spare_buffer(options.message_bytes)?;
        state.groups[group.0].buffers += 1;
        state.report.registered_bytes += options.message_bytes;
        Some(buffer)
    }

    /// Sends the first `data.payload_length` bytes of the buffer's payload to every member of its
    /// group, as soon as each has granted credit for it.
    pub async fn put(&self, mut buffer: SendBuffer, partition: u32, data: Data) -> Result<()> {
        let mut since = None;
        until_ready(&[&self.0.queue], |_| {
            self.poll_put(&mut buffer, partition, data, &mut since)
        })
        .await
    }

    fn poll_put(
        &self,
        buffer: &mut SendBuffer,
        partition: u32,
        data: Data,
        since: &mut Option<Duration>,
    ) -> Poll<Result<()>> {
        let inner = &*self.0;
        let mut state = inner.state.lock();
        let group = buffer.group;
        if !state.has_credit(group) {
            self.progress(&mut state);
        }
        if let Some(error) = state.failure_of(group) {
            return Poll::Ready(Err(error));
        }
        if !state.has_credit(group) {
            since.get_or_insert_with(|| inner.fabric.context.now());
            return Poll::Pending;
        }
        if let Some(since) = since.take() {
            state.report.blocked_for_credit += inner.fabric.context.now().saturating_sub(since);
        }
        let mut memory = buffer
            .buffer
            .take()
            .expect("a buffer is there until it is put");
        let sequence = state.next_sequence();
        let mut header = self.header(sequence, 0, partition, Body::Data(data));
        if let [only] = state.groups[group.0].members[..] {
            header.credit_seen = state.destinations[only].credit;
        }
        memory.write(0, &header.emit());
        let length = HEADER_LENGTH + data.payload_length as usize;
        Poll::Ready(self.post(&mut state, group, memory, length, sequence))
    }

    fn post(
        &self,
        state: &mut State,
        group: GroupId,
        memory: Buffer,
        length: usize,
        sequence: u64,
    ) -> Result<()> {
        let members = state.groups[group.0].members.clone();
        if let [only] = members[..] {
            let payload = Payload::Owned {
                buffer: memory,
                length,
            };
            return state.send(only, group.0 as u64, payload, Some(sequence));
        }
        let key = state.shared_next;
        state.shared_next += 1;
        let buffer = memory.share();
        state.shared.insert(
            key,
            SharedSend {
                buffer: buffer.clone(),
                group: group.0,
                outstanding: members.len(),
            },
        );
        for member in members {
            let payload = Payload::Shared {
                buffer: buffer.clone(),
                length,
            };
            state.send(member, SHARED | key, payload, Some(sequence))?;
        }
        Ok(())
    }

    /// Tells a destination that no more data comes, and waits until all of it, and the news, has
    /// been handed over: completed by the device over Reliable Connection, acknowledged by the
    /// receiver over datagrams.
    pub async fn finish(&self, destination: DestinationId) -> Result<()> {
        let queue = &self.0.queue;
        until_ready(&[queue], |_| self.poll_say_end(destination)).await?;
        loop {
            // The sleep bounds the wait for an acknowledgement that was lost.
            let mut repeat = self.0.fabric.context.sleep(self.0.options.repeat_interval);
            let done = until_ready(&[queue], |cx| {
                if let Poll::Ready(done) = self.poll_ended(destination) {
                    return Poll::Ready(Some(done));
                }
                repeat.as_mut().poll(cx).map(|()| None)
            })
            .await;
            match done {
                Some(done) => return done,
                None => self.repeat_end(destination)?,
            }
        }
    }

    fn poll_say_end(&self, destination: DestinationId) -> Poll<Result<()>> {
        let mut state = self.0.state.lock();
        self.progress(&mut state);
        let target = &state.destinations[destination.0];
        if let Some(error) = &target.failed {
            return Poll::Ready(Err(error.clone()));
        }
        if target.credit_left() == 0 {
            return Poll::Pending;
        }
        let sequence = state.next_sequence();
        Poll::Ready(self.say_end(&mut state, destination.0, sequence, 0))
    }

    fn say_end(
        &self,
        state: &mut State,
        destination: usize,
        sequence: u64,
        flags: u8,
    ) -> Result<()> {
        let target = &mut state.destinations[destination];
        let body = Body::EndOfStream(EndOfStream {
            sent: target.digest,
        });
        target.end = Some(End {
            sequence,
            acknowledged: false,
            said_at: self.0.fabric.context.now(),
        });
        let header = self.header(sequence, flags, 0, body);
        state.send_inline(destination, &header)
    }

    fn repeat_end(&self, destination: DestinationId) -> Result<()> {
        let mut state = self.0.state.lock();
        let target = &state.destinations[destination.0];
        // Without credit the receiver has no receive for it: it asks again when it wants to know.
        if matches!(target.carrier, Carrier::Datagram { .. })
            && target.credit_left() > 0
            && let Some(end) = &target.end
            && !end.acknowledged
        {
            let sequence = end.sequence;
            return self.say_end(&mut state, destination.0, sequence, FLAG_REPEATED);
        }
        Ok(())
    }

    fn poll_ended(&self, destination: DestinationId) -> Poll<Result<()>> {
        let mut state = self.0.state.lock();
        self.progress(&mut state);
        let target = &state.destinations[destination.0];
        let done = match target.carrier {
            Carrier::Connected(_) => target.in_flight == 0 && !target.undelivered,
            Carrier::Datagram { .. } => target.end.as_ref().is_some_and(|end| end.acknowledged),
            Carrier::Closed => false,
        };
        // A receiver that has everything may close the connection first.
        match &target.failed {
            _ if done => Poll::Ready(Ok(())),
            Some(error) => Poll::Ready(Err(error.clone())),
            None => Poll::Pending,
        }
    }

    /// Forgets a destination: it has all that it wanted, or it is gone. Its queue pair is
    /// destroyed.
    pub fn close(&self, destination: DestinationId, error: Option<ExchangeError>) {
        let mut state = self.0.state.lock();
        let carrier = std::mem::replace(
            &mut state.destinations[destination.0].carrier,
            Carrier::Closed,
        );
        if let Carrier::Connected(queue_pair) = &carrier {
            state.by_queue_pair.remove(&queue_pair.number());
            let counters = queue_pair.counters();
            state.report.counters.merge(&counters);
        }
        let peer = state.destinations[destination.0].peer.clone();
        state.destinations[destination.0].failed = Some(error.unwrap_or(ExchangeError::PeerLost {
            peer,
            status: CompletionStatus::Flushed,
        }));
        for group in &mut state.groups {
            // Buffers of groups that nobody listens to any more go back to the arena.
            if group.members == [destination.0] {
                group.free.clear();
            }
        }
        drop(state);
        drop(carrier);
        self.0.queue.wake();
    }

    /// What it did so far.
    pub fn report(&self) -> EndpointReport {
        let state = self.0.state.lock();
        let mut report = state.report;
        if let Some(datagrams) = &state.datagrams {
            report.counters.merge(&datagrams.counters());
        }
        for destination in &state.destinations {
            if let Carrier::Connected(queue_pair) = &destination.carrier {
                report.counters.merge(&queue_pair.counters());
            }
        }
        report
    }

    fn header(&self, sequence: u64, flags: u8, partition: u32, body: Body) -> Header {
        Header {
            flags,
            exchange: self.0.exchange,
            source: self.0.source,
            partition,
            sequence,
            credit_seen: 0,
            body,
        }
    }

    /// Takes completions: buffers come back, credits and acknowledgements arrive.
    fn progress(&self, state: &mut State) {
        loop {
            let mut completions = std::mem::take(&mut state.completions);
            let found = self.0.queue.poll(&mut completions, POLL_BATCH);
            for completion in completions.drain(..) {
                self.take(state, completion);
            }
            state.completions = completions;
            if found < POLL_BATCH {
                return;
            }
        }
    }

    fn take(&self, state: &mut State, completion: Completion) {
        if completion.opcode == Opcode::Receive {
            match state.datagrams {
                None => state.take_credit(&completion),
                Some(_) => self.take_datagram(state, completion),
            }
            return;
        }
        if let Some(&index) = state.by_queue_pair.get(&completion.queue_pair) {
            let destination = &mut state.destinations[index];
            destination.in_flight -= 1;
            destination.undelivered |= completion.status != CompletionStatus::Success;
        }
        if completion.status != CompletionStatus::Success {
            state.fail_queue_pair(&completion);
        }
        if completion.id & CONTROL != 0 {
            return;
        }
        if completion.id & SHARED == 0 {
            if let (Some(buffer), Some(group)) = (
                completion.buffer,
                state.groups.get_mut(completion.id as usize),
            ) {
                group.free.push(buffer);
            }
            return;
        }
        let key = completion.id & !SHARED;
        let Some(send) = state.shared.get_mut(&key) else {
            return;
        };
        send.outstanding -= 1;
        if send.outstanding == 0
            && let Some(send) = state.shared.remove(&key)
            && let Ok(buffer) = send.buffer.try_into_owned()
        {
            state.groups[send.group].free.push(buffer);
        }
    }

    fn take_datagram(&self, state: &mut State, completion: Completion) {
        let Some(buffer) = completion.buffer else {
            return;
        };
        let header = super::receive::datagram_header(&buffer, completion.bytes);
        let Some(datagrams) = &state.datagrams else {
            return;
        };
        if completion.status == CompletionStatus::Flushed {
            return;
        }
        let mut again = vec![ReceiveRequest {
            id: 0,
            buffer: Some(buffer),
        }];
        // A queue pair that refuses its own buffer is in error: its sends say so.
        let _ = datagrams.post_receive(&mut again);
        // Garbage and strangers are dropped; whoever spoke is told apart by its queue pair.
        let Some(header) = header
            .filter(|header| header.exchange == self.0.exchange && header.source == self.0.source)
        else {
            return;
        };
        let index = header.partition as usize;
        let known = state.destinations.get(index).is_some_and(|destination| {
            matches!(destination.carrier, Carrier::Datagram { number, .. }
                if number == completion.source_queue_pair)
        });
        if !known {
            return;
        }
        match header.body {
            Body::Credit(credit) => {
                let destination = &mut state.destinations[index];
                destination.grant(credit.credit);
                // A receiver that asks again has not heard of the end.
                let ask = header.is_repeated()
                    && destination.end.as_ref().is_some_and(|end| {
                        !end.acknowledged
                            && self.0.fabric.context.now().saturating_sub(end.said_at)
                                >= self.0.options.repeat_interval / 2
                    });
                if ask && let Some(end) = &destination.end {
                    let sequence = end.sequence;
                    // Failing to repeat is no failure: the receiver asks again.
                    let _ = self.say_end(state, index, sequence, FLAG_REPEATED);
                }
            }
            Body::Acknowledge(_) => {
                if let Some(end) = &mut state.destinations[index].end {
                    end.acknowledged = true;
                }
            }
            Body::Data(_) | Body::EndOfStream(_) => {}
        }
    }
}

impl State {
    fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    fn has_credit(&self, group: GroupId) -> bool {
        self.groups[group.0]
            .members
            .iter()
            .all(|member| self.destinations[*member].credit_left() > 0)
    }

    fn failure_of(&self, group: GroupId) -> Option<ExchangeError> {
        self.groups[group.0]
            .members
            .iter()
            .find_map(|member| self.destinations[*member].failed.clone())
    }

    fn send(
        &mut self,
        destination: usize,
        id: u64,
        payload: Payload,
        data_sequence: Option<u64>,
    ) -> Result<()> {
        let target = &mut self.destinations[destination];
        let (queue_pair, handle) = match (&target.carrier, &self.datagrams) {
            (Carrier::Connected(queue_pair), _) => (queue_pair, None),
            (Carrier::Datagram { handle, .. }, Some(datagrams)) => {
                (datagrams, Some(handle.clone()))
            }
            _ => {
                return Err(ExchangeError::PeerLost {
                    peer: target.peer.clone(),
                    status: CompletionStatus::Flushed,
                });
            }
        };
        let mut requests = vec![SendRequest {
            id,
            operation: SendOperation::Send,
            payload,
            destination: handle,
        }];
        // The depth covers what credit allows; credit of a peer that lies does not get further.
        if queue_pair.post_send(&mut requests)? == 0 {
            return Err(ExchangeError::Protocol {
                peer: target.peer.clone(),
                reason: "it grants more credit than it said it would".into(),
            });
        }
        target.in_flight += 1;
        target.sent = target.sent.wrapping_add(1);
        if let Some(sequence) = data_sequence {
            target.digest.add(sequence);
        }
        Ok(())
    }

    fn send_inline(&mut self, destination: usize, header: &Header) -> Result<()> {
        let bytes = roundel_verbs::work::InlineBytes::new(&header.emit())
            .expect("a header is smaller than an inline payload");
        self.send(destination, CONTROL, Payload::Inline(bytes), None)
    }

    /// A credit over Reliable Connection: it is the immediate data of an empty WRITE.
    fn take_credit(&mut self, completion: &Completion) {
        let Some(&index) = self.by_queue_pair.get(&completion.queue_pair) else {
            return;
        };
        if completion.status != CompletionStatus::Success {
            self.fail(index, completion.status);
            return;
        }
        let destination = &mut self.destinations[index];
        if let Some(credit) = completion.immediate {
            destination.grant(credit);
        }
        if let Carrier::Connected(queue_pair) = &destination.carrier {
            let mut again = vec![ReceiveRequest {
                id: index as u64,
                buffer: None,
            }];
            // A queue pair that refuses is in error: its completions say so.
            let _ = queue_pair.post_receive(&mut again);
        }
    }

    fn fail_queue_pair(&mut self, completion: &Completion) {
        match self.by_queue_pair.get(&completion.queue_pair) {
            Some(&index) => self.fail(index, completion.status),
            None => {
                for index in 0..self.destinations.len() {
                    self.fail(index, completion.status);
                }
            }
        }
    }

    fn fail(&mut self, index: usize, status: CompletionStatus) {
        let destination = &mut self.destinations[index];
        if destination.failed.is_none() {
            destination.failed = Some(ExchangeError::PeerLost {
                peer: destination.peer.clone(),
                status,
            });
        }
    }
}

impl Destination {
    fn credit_left(&self) -> u32 {
        let left = self.credit.wrapping_sub(self.sent);
        if left > i32::MAX as u32 { 0 } else { left }
    }

    /// Takes an absolute credit; an older one does not take credit away.
    fn grant(&mut self, credit: u32) {
        if credit.wrapping_sub(self.credit) <= i32::MAX as u32 {
            self.credit = credit;
        }
    }
}
