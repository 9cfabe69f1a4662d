//! The RECEIVE endpoint: keeps receives posted, grants credit for them, and hands out what
//! arrives. It checks that exactly the messages sent have arrived; it does not look into them.

mod arrivals;
mod link;
mod multicast;
mod queues;
mod read;
mod repair;
mod silence;
#[cfg(test)]
mod tests;
mod window;
mod written;

use super::{LinkAddress, LinkState, datagram};
use crate::design::Verb;
use crate::error::{ExchangeError, Result};
use crate::fabric::Fabric;
use crate::frame::aligned;
use crate::link::credit::Grant;
use crate::link::silence::Silence;
use crate::options::ExchangeOptions;
use crate::report::EndpointReport;
use crate::wire::{Data, HEADER_LENGTH};
use link::{Carrier, Connection, Link, Way};
use read::Reads;
use roundel_verbs::{
    Buffer, Completion, CompletionQueue, CompletionStatus, QueuePair, QueuePairOptions,
    ReceiveRequest, RemoteAddress, Transport,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use written::Written;

/// Over datagrams, receives per link beyond its credit: for what comes unpaid, which is answers to questions, and
/// repetitions.
const UD_SPARE_RECEIVES: usize = 4;
/// Sends of a connected link beyond its credits.
const SPARE_SENDS: usize = 4;
/// Receives of a connected link for bells, or for credit beyond the buffers there are.
const SPARE_RECEIVES: usize = 8;

/// A link of a receive endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Where a message is until it is released.
#[derive(Debug)]
enum Place {
    /// In a registered buffer here, from a byte on; with the buffer's number, where the source writes to
    /// numbered ones.
    Here {
        buffer: Buffer,
        at: usize,
        slot: u32,
    },
    /// Still in the source's memory, which is read at once; with the number that the source gave it.
    There {
        queue_pair: Arc<QueuePair>,
        at: RemoteAddress,
        number: u64,
    },
}

impl Message {
    /// Copies the payload, which has `target`'s length.
    ///
    /// # Errors
    /// How the connection ended over which it should have been read.
    pub fn copy_payload(&self, target: &mut [u8]) -> Result<(), CompletionStatus> {
        match &self.place {
            Place::Here { buffer, at, .. } => {
                buffer.read(at + HEADER_LENGTH, target);
                Ok(())
            }
            Place::There { queue_pair, at, .. } => {
                read::ended(queue_pair.read_at_once(at.offset(HEADER_LENGTH), target))
            }
        }
    }

    /// Appends the payload, without clearing memory for it first; nothing where it fails.
    ///
    /// # Errors
    /// How the connection ended over which it should have been read.
    pub fn append_payload(&self, target: &mut Vec<u8>) -> Result<(), CompletionStatus> {
        let length = self.data.payload_length as usize;
        match &self.place {
            Place::Here { buffer, at, .. } => {
                buffer.read_append(at + HEADER_LENGTH, length, target);
                Ok(())
            }
            Place::There { queue_pair, at, .. } => {
                let from = at.offset(HEADER_LENGTH);
                read::ended(queue_pair.read_at_once_append(from, length, target))
            }
        }
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
            _ => Some(datagram::open(fabric, &queue, options)?),
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
                let receives = buffers + UD_SPARE_RECEIVES;
                if self.datagram_receives + receives > self.options.datagrams_max {
                    return Err(datagram::too_many_links(self.options.datagrams_max));
                }
                datagram::post_receives(
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
                let connection = self.open_connection(index)?;
                let address = connection.queue_pair.address().clone();
                self.by_queue_pair.insert(address.number, index);
                (Some(connection), address)
            }
        };
        let queue = connection.as_ref().and_then(Connection::queue);
        let now = self.fabric.context.now();
        let grant = Grant::new(match self.options.design.verb() {
            Verb::Write(_) => self.receives_beyond_buffers(),
            _ => buffers,
        });
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

    /// A queue pair for a link, with the buffers that the link begins with.
    fn open_connection(&mut self, index: usize) -> Result<Connection> {
        let options = &self.options;
        let verb = options.design.verb();
        let extra = self.receives_beyond_buffers();
        let in_flight_max = 2 * options.window_max();
        let queue_pair = self.fabric.device.create_queue_pair(
            &QueuePairOptions {
                transport: Transport::ReliableConnection,
                // Besides credit, where messages are written or read: a word for each buffer that
                // becomes free, and READs.
                send_depth: match verb {
                    Verb::Send => options.credits_in_flight() + SPARE_SENDS,
                    _ => in_flight_max + options.credits_in_flight() + SPARE_SENDS,
                },
                receive_depth: match verb {
                    Verb::Send => options.window_max(),
                    _ => extra,
                },
                rnr_retry: 7,
                queue_key: 0,
            },
            &self.queue,
            &self.queue,
        )?;
        let (count, bytes) = (options.window.least, options.message_bytes);
        let mut receives = Vec::new();
        let way = match verb {
            Verb::Send => {
                for _ in 0..count {
                    receives.push(ReceiveRequest {
                        id: index as u64,
                        buffer: Some(self.fabric.arena.allocate(bytes)?),
                    });
                }
                Way::Send
            }
            Verb::Write(notification) => Way::Write(Box::new(Written::open(
                notification,
                &self.fabric,
                options,
            )?)),
            Verb::Read => Way::Read(Box::new(Reads::open(&self.fabric, options)?)),
        };
        if verb != Verb::Send {
            receives.extend((0..extra).map(|_| ReceiveRequest {
                id: index as u64,
                buffer: None,
            }));
        }
        queue_pair.post_receive(&mut receives)?;
        self.report.queue_pairs += 1;
        let connection = Connection {
            queue_pair: Arc::new(queue_pair),
            way,
            in_flight: 0,
            in_flight_max,
            unposted: Vec::new(),
        };
        let buffers = match connection.way.has_buffers() {
            true => count * bytes,
            false => 0,
        };
        self.report.registered_bytes += buffers + connection.queue_bytes();
        Ok(connection)
    }

    /// Receives of a link over which messages are written or read: they need no memory, so that
    /// there may be more of them than buffers.
    fn receives_beyond_buffers(&self) -> usize {
        self.options.window_max() + SPARE_RECEIVES
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
        target.carrier = match std::mem::replace(&mut target.carrier, Carrier::Closed) {
            Carrier::Offered(Some(mut connection)) => {
                connection.queue_pair.connect(&answer.queue_pair)?;
                connection.begin(answer.queue, &target.peer)?;
                Carrier::Connected(connection)
            }
            Carrier::Offered(None) => {
                let handle = device.create_address_handle(&answer.queue_pair)?;
                match self.by_source.entry((answer.exchange, answer.source)) {
                    Entry::Occupied(_) => {
                        return Err(target.broke_protocol("it answers twice for one source"));
                    }
                    Entry::Vacant(entry) => entry.insert(link.0),
                };
                Carrier::Datagram(handle)
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
        if let Carrier::Offered(Some(connection)) =
            std::mem::replace(&mut target.carrier, Carrier::Closed)
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
        let carrier = std::mem::replace(&mut target.carrier, Carrier::Closed);
        if let Carrier::Datagram(_) = &carrier {
            self.by_source.remove(&(target.exchange, target.source));
        }
        if let Carrier::Connected(connection) | Carrier::Offered(Some(connection)) = &carrier {
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
            if let Carrier::Connected(connection) = &link.carrier {
                report.counters.merge(&connection.queue_pair.counters());
            }
        }
        report
    }
}
