//! The RECEIVE endpoint: keeps receives posted, grants credit for them, and hands out what
//! arrives. It checks that exactly the messages sent have arrived; it does not look into them.

mod arrivals;
mod link;
mod multicast;
mod queues;
mod repair;
mod silence;
#[cfg(test)]
mod tests;
mod window;

use super::{LinkAddress, LinkState};
use crate::designs::carrier::Place;
use crate::designs::send_ud;
use crate::error::{ExchangeError, Result};
use crate::fabric::Fabric;
use crate::frame::aligned;
use crate::link::credit::Grant;
use crate::link::queue::Queue;
use crate::link::queue_pair::post_receives;
use crate::link::silence::Silence;
use crate::options::ExchangeOptions;
use crate::report::EndpointReport;
use crate::wire::Data;
use link::{Connection, Link, Stage};
use roundel_verbs::capabilities::GRH_BYTES;
use roundel_verbs::{Completion, CompletionQueue, CompletionStatus, QueuePair, Transport};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// Over datagrams, receives beyond credit: for what comes unpaid, which is answers to questions, and repetitions. Where
/// lost messages are repaired, so many of an endpoint; else of each link, since what is lost ends the query.
const UD_SPARE_RECEIVES: usize = 1;
const UD_SPARE_RECEIVES_OF_LINK: usize = 4;
/// Sends of a connected link beyond its credits.
const SPARE_SENDS: usize = 4;

/// A link of a receive endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub usize);

/// A data message that arrived. Its buffer goes back with [`ReceiveEndpoint::release`].
#[derive(Debug)]
pub struct Message {
    /// The link that it came over.
    pub link: LinkId,
    /// The partition that it is for.
    pub partition: u32,
    /// Its sequence number at its source, among the messages to the same group.
    pub sequence: u64,
    /// Which fragment of which frame it is.
    pub data: Data,
    group: u16,
    credit_seen: u32,
    place: Place,
}

impl Message {
    /// Copies the payload, which has `target`'s length.
    ///
    /// # Errors
    /// How the connection ended over which it should have been read.
    pub fn copy_payload(&self, target: &mut [u8]) -> Result<(), CompletionStatus> {
        self.place.copy_payload(target)
    }

    /// Appends the payload, without clearing memory for it first; nothing where it fails.
    ///
    /// # Errors
    /// How the connection ended over which it should have been read.
    pub fn append_payload(&self, target: &mut Vec<u8>) -> Result<(), CompletionStatus> {
        let length = self.data.payload_length as usize;
        self.place.append_payload(length, target)
    }

    /// A copy of the payload in memory of its own, aligned as [frames](crate::frame) are.
    ///
    /// # Errors
    /// How the connection ended over which it should have been read.
    pub fn payload(&self) -> Result<arrow::buffer::Buffer, CompletionStatus> {
        let mut copy = Vec::with_capacity(self.data.payload_length as usize);
        self.append_payload(&mut copy)?;
        Ok(aligned(copy))
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
    /// When somebody last looked for messages, and whether they had not for long before.
    looked_at: Duration,
    away: bool,
    /// Counts looks that found nothing, by the paper's rule of adaptive buffers.
    turn: usize,
    links: Vec<Link>,
    /// Whether a link may miss messages that can be repaired.
    any_misses: bool,
    by_queue_pair: HashMap<u32, usize>,
    by_source: HashMap<(u64, u32), usize>,
    /// Datagrams of sources whose answer to an offer has not come yet: they overtook it.
    early: Vec<Completion>,
    /// A link was connected or closed since they were looked at.
    recheck_early: bool,
    completions: Vec<Completion>,
    report: EndpointReport,
}

impl ReceiveEndpoint {
    /// Opens an endpoint without links.
    pub fn open(fabric: &Fabric, options: &ExchangeOptions) -> Result<Self> {
        let queue = fabric
            .device
            .create_completion_queue(options.datagrams_max, Some(&fabric.channel))?;
        let datagrams = match options.design.transport() {
            Transport::ReliableConnection => None,
            _ => Some(send_ud::open(
                fabric,
                &queue,
                options.datagrams_max,
                options.queue_key,
            )?),
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
            looked_at: Duration::ZERO,
            away: false,
            turn: 0,
            links: Vec::new(),
            any_misses: false,
            by_queue_pair: HashMap::new(),
            by_source: HashMap::new(),
            early: Vec::new(),
            recheck_early: false,
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
        let buffers = self.options.window.least;
        let (connection, address) = match &self.datagrams {
            Some(datagrams) => {
                let receives = buffers + self.spare_receives();
                if self.datagram_receives + receives > self.options.datagrams_max {
                    return Err(send_ud::too_many_links(self.options.datagrams_max));
                }
                send_ud::post_receives(
                    &self.fabric,
                    datagrams,
                    receives,
                    self.options.message_bytes,
                )?;
                self.datagram_receives += receives;
                self.report.hold(receives, self.receive_bytes());
                (None, datagrams.address().clone())
            }
            None => {
                let connection = self.open_connection(index)?;
                let address = connection.queue_pair.address().clone();
                self.by_queue_pair.insert(address.number, index);
                (Some(connection), address)
            }
        };
        let carrier = connection.as_ref().map(|connection| &connection.carrier);
        let queue = carrier.and_then(|carrier| carrier.queue().map(Queue::address));
        let grant = carrier.map_or(buffers, |carrier| carrier.first_grant(buffers));
        let grant = Grant::new(grant);
        let now = self.fabric.context.now();
        self.links
            .push(Link::offered(peer, connection, (buffers, grant), now));
        self.widen(index, self.window_start());
        let address = LinkAddress {
            exchange: 0,
            source: 0,
            destination: 0,
            credit: self.links[index].first_credit(),
            queue,
            local: 0,
            queue_pair: address,
        };
        Ok((LinkId(index), address))
    }

    /// Bytes of a receive: over datagrams with the routing header.
    fn receive_bytes(&self) -> usize {
        let routing = if self.datagrams.is_some() {
            GRH_BYTES
        } else {
            0
        };
        routing + self.options.message_bytes
    }

    /// Receives of a new link over datagrams that no credit is for.
    fn spare_receives(&self) -> usize {
        match (self.options.repairs(), self.datagram_receives) {
            (true, 0) => UD_SPARE_RECEIVES,
            (true, _) => 0,
            (false, _) => UD_SPARE_RECEIVES_OF_LINK,
        }
    }

    /// A queue pair for a link, with the buffers that the link begins with.
    fn open_connection(&mut self, index: usize) -> Result<Connection> {
        let options = &self.options;
        let design = options.design;
        // Besides credit, where messages are written or read: a word for each buffer that becomes free, and READs.
        let in_flight_max = match design.has_queues() {
            true => 2 * options.window_max(),
            false => 0,
        };
        let sizes = options.link_sizes();
        let sends = in_flight_max + options.credits_in_flight() + SPARE_SENDS;
        let receives = design.receives(sizes.most);
        let queue_pair = self.fabric.connected(&self.queue, sends, receives)?;
        let queue_pair = Arc::new(queue_pair);
        let fabric = &self.fabric;
        let mut allocate = |bytes, exposable| fabric.buffer(bytes, exposable);
        let at_once = fabric.device.capabilities().reads_at_once;
        let at_once = at_once.then_some(&queue_pair);
        let mut carrier = design.connected_receiver(fabric, &sizes, &mut allocate, at_once)?;
        post_receives(&queue_pair, index as u64, carrier.first_receives(receives))?;
        if carrier.has_buffers() {
            self.report.hold(sizes.least, sizes.message_bytes);
        }
        self.report.queue_pairs += 1;
        self.report.registered_bytes += carrier.queue().map_or(0, Queue::bytes);
        Ok(Connection {
            queue_pair,
            carrier,
            in_flight: 0,
            in_flight_max,
            unposted: Vec::new(),
        })
    }

    /// Completes a link with the sender's answer and says its credit, which is the first that a
    /// connected sender hears of.
    ///
    /// # Errors
    /// When the sender cannot be reached, or is linked already.
    pub fn connect(&mut self, link: LinkId, answer: &LinkAddress) -> Result<()> {
        let target = &mut self.links[link.0];
        target.exchange = answer.exchange;
        target.source = answer.source;
        target.destination = answer.destination;
        target.speaker = answer.queue_pair.number;
        let device = &self.fabric.device;
        target.stage = match std::mem::replace(&mut target.stage, Stage::Closed) {
            Stage::Offered(Some(mut connection)) => {
                connection.queue_pair.connect(&answer.queue_pair)?;
                connection.carrier.begin(answer.queue, &target.peer)?;
                Stage::Connected(connection)
            }
            Stage::Offered(None) => {
                let handle = device.create_address_handle(&answer.queue_pair)?;
                match self.by_source.entry((answer.exchange, answer.source)) {
                    Entry::Occupied(_) => {
                        return Err(target.broke_protocol("it answers twice for one source"));
                    }
                    Entry::Vacant(entry) => entry.insert(link.0),
                };
                Stage::Datagram(handle)
            }
            _ => return Err(target.broke_protocol("it answers an offer twice")),
        };
        target.silence = Silence::since(self.fabric.context.now());
        self.recheck_early = true;
        self.pump_queues(link.0);
        self.say_credit(link.0, 0, 0)
    }

    /// How a link stands: `None` while more may come, then how it ended.
    pub fn ended(&self, link: LinkId) -> Option<Result<()>> {
        self.links[link.0].state.ended()
    }

    /// Buffers of a link: the messages that its source may have in flight.
    pub fn window(&self, link: LinkId) -> usize {
        self.links[link.0].window.buffers()
    }

    /// The links on which more may come.
    pub fn open_links(&self) -> impl Iterator<Item = LinkId> {
        let open = |(_, link): &(usize, &Link)| link.is_open();
        let links = self.links.iter().enumerate().filter(open);
        links.map(|(index, _)| LinkId(index))
    }

    /// Ends a link with an error that was learnt elsewhere, unless it is complete.
    pub fn abort(&mut self, link: LinkId, error: ExchangeError) {
        self.links[link.0].fail(error);
    }

    /// Ends a link whose connection turns out to be broken, unless it is complete.
    pub fn lose(&mut self, link: LinkId, status: CompletionStatus) {
        let target = &mut self.links[link.0];
        target.fail(target.lost(status));
    }

    /// An offered link needs no endpoint: its source hands rows over in memory. It stays open until it
    /// is [completed](Self::complete).
    pub(crate) fn localize(&mut self, link: LinkId) {
        let target = &mut self.links[link.0];
        if let Stage::Offered(Some(connection)) =
            std::mem::replace(&mut target.stage, Stage::Closed)
        {
            self.by_queue_pair.remove(&connection.queue_pair.number());
            self.report.queue_pairs -= 1;
        }
    }

    /// All of a link within the process has arrived.
    pub(crate) fn complete(&mut self, link: LinkId) {
        let target = &mut self.links[link.0];
        if target.is_open() {
            target.state = LinkState::Complete;
        }
    }

    /// Destroys the link's end: nobody wants its data any more.
    pub fn close(&mut self, link: LinkId) {
        let target = &mut self.links[link.0];
        target.fail(target.lost(CompletionStatus::Flushed));
        self.recheck_early = true;
        let stage = std::mem::replace(&mut target.stage, Stage::Closed);
        if let Stage::Datagram(_) = &stage {
            self.by_source.remove(&(target.exchange, target.source));
        }
        if let Stage::Connected(connection) | Stage::Offered(Some(connection)) = &stage {
            let queue_pair = &connection.queue_pair;
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
            if let Stage::Connected(connection) = &link.stage {
                report.counters.merge(&connection.queue_pair.counters());
            }
        }
        report
    }
}
