//! The RECEIVE endpoint: keeps receives posted, grants credit for them, and hands out what
//! arrives. It checks that exactly the messages sent have arrived; it does not look into them.

use super::{Fabric, LinkAddress};
use crate::error::{ExchangeError, Result};
use crate::options::ExchangeOptions;
use crate::report::EndpointReport;
use crate::wire::{
    Acknowledge, Body, Credit, Data, FLAG_REPEATED, HEADER_LENGTH, Header, Kind, SequenceDigest,
};
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::{
    AddressHandle, Buffer, Completion, CompletionQueue, CompletionStatus, Opcode, Payload,
    QueuePair, QueuePairOptions, ReceiveRequest, RemoteAddress, SendOperation, SendRequest,
    Transport,
};
use std::collections::HashMap;
use std::time::Duration;

/// Most receives and sends of a datagram queue pair.
const UD_DEPTH: usize = 4096;
/// Receives per link beyond its credit: for an end-of-stream that is repeated on request.
const UD_SPARE_RECEIVES: usize = 2;
/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 64;

/// A link of a receive endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub usize);

/// A data message that arrived. Its buffer goes back with [`ReceiveEndpoint::release`].
#[derive(Debug)]
pub struct Message {
    /// From where.
    pub link: LinkId,
    /// For which partition.
    pub partition: u32,
    /// Its sequence number at its source.
    pub sequence: u64,
    /// Which fragment of which frame it is.
    pub data: Data,
    buffer: Buffer,
    payload_at: usize,
}

impl Message {
    /// Copies the payload, which has `target`'s length.
    pub fn copy_payload(&self, target: &mut [u8]) {
        self.buffer.read(self.payload_at, target);
    }
}

/// One receiving endpoint. Its owner serialises access.
pub struct ReceiveEndpoint {
    fabric: Fabric,
    options: ExchangeOptions,
    queue: CompletionQueue,
    datagrams: Option<QueuePair>,
    /// Receives of the datagram queue pair, those in hand included.
    datagram_receives: usize,
    links: Vec<Link>,
    by_queue_pair: HashMap<u32, usize>,
    by_source: HashMap<(u64, u32), usize>,
    completions: Vec<Completion>,
    report: EndpointReport,
}

struct Link {
    peer: String,
    carrier: Carrier,
    exchange: u64,
    source: u32,
    /// Index of this link among the sender's destinations.
    destination: u32,
    /// Receives of this link: its window.
    buffers: usize,
    /// Absolute credit granted, and messages heard that were paid for with it, modulo 2^32.
    credit: u32,
    heard: u32,
    /// A source used up its credit since the link last grew.
    starved: bool,
    /// Receives posted since credit was last written back.
    unsaid: u32,
    arrived: SequenceDigest,
    end: Option<SequenceDigest>,
    state: LinkState,
    /// How the connection broke; what had arrived before may still be waiting.
    broken: Option<CompletionStatus>,
    heard_at: Duration,
    /// When the link was complete.
    complete_at: Duration,
}

enum Carrier {
    /// Until the sender has answered.
    Offered(Option<QueuePair>),
    Connected(QueuePair),
    Datagram(AddressHandle),
    Closed,
}

#[derive(Clone)]
enum LinkState {
    Open,
    Complete,
    Failed(ExchangeError),
}

impl ReceiveEndpoint {
    /// Opens an endpoint without links.
    pub fn open(fabric: &Fabric, options: &ExchangeOptions) -> Result<Self> {
        let queue = fabric
            .device
            .create_completion_queue(UD_DEPTH, Some(&fabric.channel))?;
        let datagrams = match options.design.transport() {
            Transport::ReliableConnection => None,
            _ => Some(open_datagrams(fabric, &queue)?),
        };
        Ok(Self {
            fabric: fabric.clone(),
            options: options.clone(),
            queue,
            report: EndpointReport {
                queue_pairs: datagrams.iter().count(),
                ..EndpointReport::default()
            },
            datagrams,
            datagram_receives: 0,
            links: Vec::new(),
            by_queue_pair: HashMap::new(),
            by_source: HashMap::new(),
            completions: Vec::new(),
        })
    }

    /// The completion queue to wait on.
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Offers a link to the sender `peer`: the address for it. Its receives are posted already.
    pub fn offer(&mut self, peer: &str) -> Result<(LinkId, LinkAddress)> {
        let index = self.links.len();
        let buffers = self.options.buffers_per_link;
        let (queue_pair, address) = match &self.datagrams {
            Some(datagrams) => {
                let receives = buffers + UD_SPARE_RECEIVES;
                if self.datagram_receives + receives > UD_DEPTH {
                    return Err(too_many_links());
                }
                post_datagram_receives(
                    &self.fabric,
                    datagrams,
                    receives,
                    self.options.message_bytes,
                )?;
                self.datagram_receives += receives;
                self.report.registered_bytes += receives * self.options.message_bytes;
                (None, datagrams.address().clone())
            }
            None => {
                let queue_pair = self.fabric.device.create_queue_pair(
                    &QueuePairOptions {
                        transport: Transport::ReliableConnection,
                        send_depth: self.options.credits_in_flight() + 4,
                        receive_depth: self.options.window_max(),
                        rnr_retry: 7,
                        queue_key: 0,
                    },
                    &self.queue,
                    &self.queue,
                )?;
                let mut receives = Vec::with_capacity(buffers);
                for _ in 0..buffers {
                    receives.push(ReceiveRequest {
                        id: index as u64,
                        buffer: Some(self.fabric.arena.allocate(self.options.message_bytes)?),
                    });
                }
                queue_pair.post_receive(&mut receives)?;
                self.report.registered_bytes += buffers * self.options.message_bytes;
                self.report.queue_pairs += 1;
                let address = queue_pair.address().clone();
                self.by_queue_pair.insert(address.number, index);
                (Some(queue_pair), address)
            }
        };
        self.links.push(Link {
            peer: peer.into(),
            carrier: Carrier::Offered(queue_pair),
            exchange: 0,
            source: 0,
            destination: 0,
            buffers,
            credit: 0,
            heard: 0,
            starved: false,
            unsaid: 0,
            arrived: SequenceDigest::default(),
            end: None,
            state: LinkState::Open,
            broken: None,
            heard_at: self.fabric.context.now(),
            complete_at: Duration::ZERO,
        });
        let address = LinkAddress {
            exchange: 0,
            source: 0,
            destination: 0,
            queue_pair: address,
        };
        Ok((LinkId(index), address))
    }

    /// Completes a link with the sender's answer and grants it the first credit.
    pub fn connect(&mut self, link: LinkId, answer: &LinkAddress) -> Result<()> {
        let target = &mut self.links[link.0];
        target.exchange = answer.exchange;
        target.source = answer.source;
        target.destination = answer.destination;
        target.carrier = match std::mem::replace(&mut target.carrier, Carrier::Closed) {
            Carrier::Offered(Some(queue_pair)) => {
                queue_pair.connect(&answer.queue_pair)?;
                Carrier::Connected(queue_pair)
            }
            _ => {
                self.by_source
                    .insert((answer.exchange, answer.source), link.0);
                Carrier::Datagram(
                    self.fabric
                        .device
                        .create_address_handle(&answer.queue_pair)?,
                )
            }
        };
        target.heard_at = self.fabric.context.now();
        target.credit = self.options.buffers_per_link as u32;
        self.say_credit(link.0, 0)
    }

    /// Appends the data messages that have arrived, at most about `limit`. Ends, credits and
    /// repetitions are dealt with here.
    pub fn poll(&mut self, messages: &mut Vec<Message>, limit: usize) {
        let mut completions = std::mem::take(&mut self.completions);
        let found = self
            .queue
            .poll(&mut completions, limit.clamp(1, POLL_BATCH));
        if found == 0 {
            self.lose_broken();
        }
        for completion in completions.drain(..) {
            if completion.opcode != Opcode::Receive {
                self.take_send(&completion);
            } else if self.datagrams.is_some() {
                self.take_datagram(completion, messages);
            } else {
                self.take_connected(completion, messages);
            }
        }
        self.completions = completions;
    }

    fn take_send(&mut self, completion: &Completion) {
        // Credit that cannot be written back: the sender is gone. What it had sent counts first.
        if completion.status != CompletionStatus::Success
            && let Some(&index) = self.by_queue_pair.get(&completion.queue_pair)
        {
            self.links[index].broken.get_or_insert(completion.status);
        }
    }

    fn take_connected(&mut self, completion: Completion, messages: &mut Vec<Message>) {
        let Some(&index) = self.by_queue_pair.get(&completion.queue_pair) else {
            return;
        };
        if completion.status != CompletionStatus::Success {
            self.links[index].broken.get_or_insert(completion.status);
            return;
        }
        let Some(buffer) = completion.buffer else {
            return;
        };
        match header_at(&buffer, 0, completion.bytes) {
            Ok(header) => {
                let link = &self.links[index];
                if header.exchange == link.exchange && header.source == link.source {
                    self.take_message(index, &header, buffer, 0, messages);
                } else {
                    self.fail(index, "a message of another exchange".into());
                }
            }
            Err(error) => self.fail(index, error.to_string()),
        }
    }

    fn take_datagram(&mut self, completion: Completion, messages: &mut Vec<Message>) {
        let Some(buffer) = completion.buffer else {
            return;
        };
        if completion.status == CompletionStatus::Flushed {
            return;
        }
        let index = datagram_header(&buffer, completion.bytes).and_then(|header| {
            let index = *self.by_source.get(&(header.exchange, header.source))?;
            Some((index, header))
        });
        match index {
            Some((index, header)) if matches!(self.links[index].state, LinkState::Open) => {
                self.take_message(index, &header, buffer, GRH_BYTES, messages);
            }
            Some((index, header)) => {
                // A complete link whose sender has not heard so yet, or a failed one.
                if let Body::EndOfStream(_) = header.body {
                    self.acknowledge(index, header.sequence);
                }
                self.post_datagram(buffer);
            }
            // Garbage, strangers and stale messages are dropped.
            None => self.post_datagram(buffer),
        }
    }

    fn take_message(
        &mut self,
        index: usize,
        header: &Header,
        buffer: Buffer,
        at: usize,
        messages: &mut Vec<Message>,
    ) {
        let now = self.fabric.context.now();
        let datagrams = self.datagrams.is_some();
        let link = &mut self.links[index];
        link.heard_at = now;
        match header.body {
            Body::Data(data) => {
                link.heard = link.heard.wrapping_add(1);
                link.starved |= header.credit_seen == link.heard;
                messages.push(Message {
                    link: LinkId(index),
                    partition: header.partition,
                    sequence: header.sequence,
                    data,
                    buffer,
                    payload_at: at + HEADER_LENGTH,
                });
            }
            Body::EndOfStream(end) => {
                let again = header.is_repeated();
                let first = link.end.is_none();
                link.end = Some(end.sent);
                if datagrams {
                    self.acknowledge(index, header.sequence);
                    self.post_datagram(buffer);
                    // A repetition was not paid for with credit when it came on request.
                    if first && !again {
                        self.count_receive(index);
                    }
                }
                self.check_end(index);
            }
            Body::Credit(_) | Body::Acknowledge(_) => {
                if datagrams {
                    self.post_datagram(buffer);
                } else {
                    self.fail(index, "control messages from a sender".into());
                }
            }
        }
    }

    /// Gives a message's buffer back and counts the message as arrived. `fresh` is false for one
    /// that had arrived before.
    pub fn release(&mut self, message: Message, fresh: bool) {
        let index = message.link.0;
        let link = &mut self.links[index];
        if fresh {
            link.arrived.add(message.sequence);
        } else {
            self.report.duplicates += 1;
        }
        match &link.carrier {
            Carrier::Connected(queue_pair) => {
                let mut again = vec![ReceiveRequest {
                    id: index as u64,
                    buffer: Some(message.buffer),
                }];
                // A queue pair that refuses its own buffer is in error: completions say so.
                let _ = queue_pair.post_receive(&mut again);
            }
            _ => self.post_datagram(message.buffer),
        }
        if self.links[index].starved {
            self.grow(index);
        }
        self.count_receive(index);
        self.check_end(index);
    }

    /// Doubles a link's window, as far as there is memory to spare.
    fn grow(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.starved = false;
        let wanted = link.buffers.min(self.options.window_max() - link.buffers);
        if wanted == 0 || link.end.is_some() {
            return;
        }
        let mut receives = Vec::with_capacity(wanted);
        for _ in 0..wanted {
            let Some(buffer) = self.fabric.spare_buffer(self.options.message_bytes + GRH_BYTES)
            else {
                break;
            };
            receives.push(ReceiveRequest {
                id: index as u64,
                buffer: Some(buffer),
            });
        }
        // A queue pair that has no room for all leaves the rest, and they go back to the arena.
        let posted = match (&link.carrier, &self.datagrams) {
            (Carrier::Connected(queue_pair), _) => queue_pair.post_receive(&mut receives),
            (Carrier::Datagram(_), Some(datagrams)) => {
                // One that was taken and not posted again has its place reserved.
                receives.truncate(UD_DEPTH.saturating_sub(self.datagram_receives));
                datagrams.post_receive(&mut receives)
            }
            _ => return,
        };
        let posted = posted.unwrap_or(0);
        if self.datagrams.is_some() {
            self.datagram_receives += posted;
        }
        link.buffers += posted;
        link.credit = link.credit.wrapping_add(posted as u32);
        link.unsaid += posted as u32;
        self.report.registered_bytes += posted * self.options.message_bytes;
    }

    /// Counts a receive posted again for a link, and writes credit back when enough have been.
    fn count_receive(&mut self, index: usize) {
        let frequency = self.options.credit_every(self.links[index].buffers);
        let link = &mut self.links[index];
        link.credit = link.credit.wrapping_add(1);
        link.unsaid += 1;
        // After the end nobody needs credit.
        if link.unsaid >= frequency
            && link.end.is_none()
            && let Err(error) = self.say_credit(index, 0)
        {
            self.links[index].state = LinkState::Failed(error);
        }
    }

    fn say_credit(&mut self, index: usize, flags: u8) -> Result<()> {
        let link = &mut self.links[index];
        link.unsaid = 0;
        let credit = link.credit;
        match &link.carrier {
            Carrier::Connected(queue_pair) => {
                let nowhere = RemoteAddress {
                    address: 0,
                    remote_key: 0,
                };
                let mut requests = vec![SendRequest {
                    id: index as u64,
                    operation: SendOperation::WriteWithImmediate(nowhere, credit),
                    payload: Payload::Empty,
                    destination: None,
                }];
                // A full queue has newer credit to say than the sender has taken: it can wait.
                queue_pair.post_send(&mut requests)?;
                Ok(())
            }
            Carrier::Datagram(_) => {
                let body = Body::Credit(Credit { credit });
                self.say(index, flags, body)
            }
            Carrier::Offered(_) | Carrier::Closed => Ok(()),
        }
    }

    fn acknowledge(&mut self, index: usize, sequence: u64) {
        let body = Body::Acknowledge(Acknowledge {
            kind: Kind::EndOfStream,
            sequence,
        });
        // Failing to say so is no failure: the sender repeats its end.
        let _ = self.say(index, 0, body);
    }

    fn say(&self, index: usize, flags: u8, body: Body) -> Result<()> {
        let link = &self.links[index];
        let (Some(datagrams), Carrier::Datagram(handle)) = (&self.datagrams, &link.carrier) else {
            return Ok(());
        };
        let header = Header {
            flags,
            exchange: link.exchange,
            source: link.source,
            partition: link.destination,
            sequence: 0,
            credit_seen: 0,
            body,
        };
        let bytes = roundel_verbs::work::InlineBytes::new(&header.emit())
            .expect("a header is smaller than an inline payload");
        let mut requests = vec![SendRequest {
            id: index as u64,
            operation: SendOperation::Send,
            payload: Payload::Inline(bytes),
            destination: Some(handle.clone()),
        }];
        // Control over datagrams may be lost, here as on the way.
        datagrams.post_send(&mut requests)?;
        Ok(())
    }

    fn post_datagram(&self, buffer: Buffer) {
        if let Some(datagrams) = &self.datagrams {
            let mut again = vec![ReceiveRequest {
                id: 0,
                buffer: Some(buffer),
            }];
            // A queue pair that refuses its own buffer is in error: completions say so.
            let _ = datagrams.post_receive(&mut again);
        }
    }

    fn check_end(&mut self, index: usize) {
        let link = &mut self.links[index];
        let (Some(end), LinkState::Open) = (link.end, &link.state) else {
            return;
        };
        if link.arrived == end {
            link.state = LinkState::Complete;
            link.complete_at = self.fabric.context.now();
        } else if matches!(link.carrier, Carrier::Connected(_)) && link.arrived.count >= end.count {
            self.fail(
                index,
                "its end-of-stream does not match what it sent".into(),
            );
        }
    }

    /// Over datagrams, when nothing was heard for a while: asks the senders again, and gives up
    /// on messages that are missing for too long. Call it when a wait has lasted
    /// [`repeat_interval`](ExchangeOptions::repeat_interval).
    pub fn on_silence(&mut self) {
        if self.datagrams.is_none() {
            return;
        }
        let now = self.fabric.context.now();
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let silent = now.saturating_sub(link.heard_at);
            if !matches!(link.state, LinkState::Open)
                || !matches!(link.carrier, Carrier::Datagram(_))
                || silent < self.options.repeat_interval
            {
                continue;
            }
            match link.end {
                Some(end) if silent >= self.options.missing_deadline => {
                    link.state = LinkState::Failed(ExchangeError::MessagesMissing {
                        peer: link.peer.clone(),
                        sent: end.count,
                        missing: end.count.saturating_sub(link.arrived.count).max(1),
                        waited_ms: silent.as_millis(),
                    });
                }
                Some(_) => {}
                None => {
                    if let Err(error) = self.say_credit(index, FLAG_REPEATED) {
                        self.links[index].state = LinkState::Failed(error);
                    }
                }
            }
        }
    }

    /// Whether a sender may still have to be told that all has arrived: its link was complete less
    /// than `linger` ago and is not closed.
    pub fn owes_acknowledgement(&self, linger: Duration) -> bool {
        let now = self.fabric.context.now();
        self.links.iter().any(|link| {
            matches!(link.state, LinkState::Complete)
                && matches!(link.carrier, Carrier::Datagram(_))
                && now.saturating_sub(link.complete_at) < linger
        })
    }

    /// How a link stands: `None` while more may come, then how it ended.
    pub fn ended(&self, link: LinkId) -> Option<Result<()>> {
        match &self.links[link.0].state {
            LinkState::Open => None,
            LinkState::Complete => Some(Ok(())),
            LinkState::Failed(error) => Some(Err(error.clone())),
        }
    }

    /// Ends a link with an error that was learnt elsewhere, unless it is complete.
    pub fn abort(&mut self, link: LinkId, error: ExchangeError) {
        let state = &mut self.links[link.0].state;
        if matches!(state, LinkState::Open) {
            *state = LinkState::Failed(error);
        }
    }

    /// Destroys the link's end: nobody wants its data any more.
    pub fn close(&mut self, link: LinkId) {
        let target = &mut self.links[link.0];
        let peer = target.peer.clone();
        let carrier = std::mem::replace(&mut target.carrier, Carrier::Closed);
        if matches!(target.state, LinkState::Open) {
            target.state = LinkState::Failed(ExchangeError::PeerLost {
                peer,
                status: CompletionStatus::Flushed,
            });
        }
        if let Carrier::Connected(queue_pair) | Carrier::Offered(Some(queue_pair)) = &carrier {
            self.by_queue_pair.remove(&queue_pair.number());
            self.report.counters.merge(&queue_pair.counters());
        }
    }

    /// The name of a link's peer.
    pub fn peer(&self, link: LinkId) -> &str {
        &self.links[link.0].peer
    }

    /// What it did so far.
    pub fn report(&self) -> EndpointReport {
        let mut report = self.report;
        if let Some(datagrams) = &self.datagrams {
            report.counters.merge(&datagrams.counters());
        }
        for link in &self.links {
            if let Carrier::Connected(queue_pair) = &link.carrier {
                report.counters.merge(&queue_pair.counters());
            }
        }
        report
    }

    /// Gives up the links whose connection broke, now that everything that had arrived was taken.
    fn lose_broken(&mut self) {
        for link in &mut self.links {
            if let (Some(status), LinkState::Open) = (link.broken, &link.state) {
                link.state = LinkState::Failed(ExchangeError::PeerLost {
                    peer: link.peer.clone(),
                    status,
                });
            }
        }
    }

    fn fail(&mut self, index: usize, reason: String) {
        let link = &mut self.links[index];
        if matches!(link.state, LinkState::Open) {
            link.state = LinkState::Failed(ExchangeError::Protocol {
                peer: link.peer.clone(),
                reason,
            });
        }
    }
}

/// A datagram queue pair, ready to send and receive, on one completion queue.
pub(super) fn open_datagrams(fabric: &Fabric, queue: &CompletionQueue) -> Result<QueuePair> {
    let depth = UD_DEPTH.min(fabric.device.capabilities().work_requests_max);
    let queue_pair = fabric.device.create_queue_pair(
        &QueuePairOptions {
            transport: Transport::UnreliableDatagram,
            send_depth: depth,
            receive_depth: depth,
            rnr_retry: 7,
            // At random: a fixed key would let any stranger's datagrams in.
            queue_key: fabric.context.random() as u32,
        },
        queue,
        queue,
    )?;
    queue_pair.activate()?;
    Ok(queue_pair)
}

/// Posts receives for `count` datagrams of up to `bytes`.
pub(super) fn post_datagram_receives(
    fabric: &Fabric,
    queue_pair: &QueuePair,
    count: usize,
    bytes: usize,
) -> Result<()> {
    let mut receives = Vec::with_capacity(count);
    for _ in 0..count {
        receives.push(ReceiveRequest {
            id: 0,
            buffer: Some(fabric.arena.allocate(GRH_BYTES + bytes)?),
        });
    }
    if queue_pair.post_receive(&mut receives)? < count {
        return Err(too_many_links());
    }
    Ok(())
}

fn too_many_links() -> ExchangeError {
    ExchangeError::Protocol {
        peer: "this process".into(),
        reason: format!("more links than a datagram queue pair of {UD_DEPTH} receives can serve"),
    }
}

/// The header of a datagram; `None` for what is none.
pub(super) fn datagram_header(buffer: &Buffer, bytes: usize) -> Option<Header> {
    header_at(buffer, GRH_BYTES, bytes).ok()
}

/// Reads a header into private memory and checks it there.
fn header_at(buffer: &Buffer, at: usize, bytes: usize) -> Result<Header, crate::wire::WireError> {
    use crate::wire::WireError;
    let bytes = bytes.min(buffer.len());
    let message = bytes.saturating_sub(at);
    if message < HEADER_LENGTH {
        return Err(WireError::Truncated { length: message });
    }
    let mut header = [0; HEADER_LENGTH];
    buffer.read(at, &mut header);
    let header = Header::parse(&header)?;
    let found = message - HEADER_LENGTH;
    if header.payload_length() as usize != found {
        return Err(WireError::PayloadLength {
            announced: header.payload_length(),
            found,
        });
    }
    Ok(header)
}
