//! The port of a thread: its queue pairs, its completion queue, and what is known of each peer.

mod incoming;
mod outgoing;

pub(crate) use incoming::{Arrival, Arrivals};

use super::frame::Guard;
use super::offer::Offer;
use crate::end::{EndOptions, Fabric};
use crate::error::{Gone, ProtocolError, Result};
use crate::protocol::{Protocol, Way};
use incoming::Incoming;
use outgoing::Outgoing;
use roundel_verbs::{
    AddressHandle, Arena, Buffer, Completion, CompletionQueue, CompletionStatus, Context, Device,
    Opcode, Payload, QUEUE_KEY_MAX, QueuePair, QueuePairOptions, QueuePairState, RemoteAddress,
    SendOperation, SendRequest, Transport,
};
use std::sync::Arc;

/// Completions taken at a time.
const POLL_MAX: usize = 64;
/// A SEND waits for a receive without end.
const RNR_RETRY: u8 = 7;

/// What is known of the peer of a connection.
pub(crate) struct Peer {
    /// How errors call it.
    pub name: String,
    /// Its slots, or the memory that can be read.
    pub memory: Option<RemoteAddress>,
    pub readable: u64,
    /// Where datagrams go.
    pub handle: Option<AddressHandle>,
    /// What it wants to see in messages that may be lost.
    pub guard: Guard,
}

/// The queue pairs of a thread and what goes over them.
pub(crate) struct Port {
    device: Device,
    arena: Arena,
    context: Arc<dyn Context>,
    options: EndOptions,
    /// Whether it is that of a requester.
    asks: bool,
    queue: CompletionQueue,
    /// One for each connection, where the protocol has any.
    connected: Vec<QueuePair>,
    /// For all of them.
    datagram: Option<QueuePair>,
    nonce: u64,
    peers: Vec<Option<Peer>>,
    gone: Vec<Option<Gone>>,
    /// Those whose end nobody was told of.
    newly_gone: Vec<usize>,
    outgoing: Outgoing,
    incoming: Incoming,
    completions: Vec<Completion>,
    /// READs that have ended: their ids, what was read, and how many bytes.
    pub(crate) read: Vec<(u64, Option<Buffer>, usize)>,
}

impl Port {
    /// Makes the queue pairs and their memory, and posts receives. With a channel its owner can sleep. `asks` says
    /// whether its owner is a requester; to each peer there is one connection.
    pub(crate) fn open(
        fabric: &Fabric,
        options: &EndOptions,
        asks: bool,
        connections: usize,
    ) -> Result<Self> {
        let (device, arena, context) = (&fabric.device, &fabric.arena, &fabric.context);
        let capabilities = device.capabilities();
        options.check(capabilities)?;
        if connections == 0 {
            return Err(ProtocolError::Unsupported("a port without peers".into()));
        }
        // How it sends, and how it receives, and most bytes of that.
        let requests = (options.protocol.requests(), options.request_bytes);
        let responses = (options.protocol.responses(), options.response_bytes);
        let ((sends, bytes_out), (receives, bytes_in)) = match asks {
            true => (requests, responses),
            false => (responses, requests),
        };
        let transports = options.protocol.transports();
        let slots = options.pending;
        let depths = |transport| {
            let uses = |way: Option<Way>| way.is_some_and(|way| way.transport == transport);
            let all = match transport {
                Transport::UnreliableDatagram => slots * connections,
                _ => slots,
            };
            let reads = options.protocol == Protocol::Read && asks;
            let send = all * usize::from(uses(sends) || reads);
            let consumes = receives.is_some_and(|way| way.consumes_receive());
            let receive = all * usize::from(uses(receives) && consumes);
            // Messages that are sent again have room beside the first ones, and so have those that come again.
            let again = 1 + usize::from(options.protocol.is_lossy());
            let most = capabilities.work_requests_max;
            ((send * again).clamp(1, most), (receive * again).min(most))
        };
        let completions = transports.iter().map(|transport| {
            let (send, receive) = depths(*transport);
            let pairs = if transport.is_connected() {
                connections
            } else {
                1
            };
            pairs * (send + receive)
        });
        let queue = device.create_completion_queue(completions.sum(), fabric.channel.as_ref())?;
        let nonce = context.random();
        let pair = |transport| {
            let (send_depth, receive_depth) = depths(transport);
            let options = QueuePairOptions {
                transport,
                send_depth,
                receive_depth,
                rnr_retry: RNR_RETRY,
                queue_key: nonce as u32 & QUEUE_KEY_MAX,
            };
            device.create_queue_pair(&options, &queue, &queue)
        };
        let (mut connected, mut datagram) = (Vec::new(), None);
        for transport in transports {
            match transport {
                Transport::UnreliableDatagram => datagram = Some(pair(transport)?),
                _ => {
                    let pairs = (0..connections).map(|_| pair(transport));
                    connected = pairs.collect::<Result<_, _>>()?;
                }
            }
        }
        let receive_depth = receives.map_or(0, |way| depths(way.transport).1);
        let mut port = Self {
            device: device.clone(),
            arena: arena.clone(),
            context: context.clone(),
            options: options.clone(),
            asks,
            queue,
            connected,
            datagram,
            nonce,
            peers: (0..connections).map(|_| None).collect(),
            gone: vec![None; connections],
            newly_gone: Vec::new(),
            outgoing: Outgoing::new(sends, bytes_out, connections, capabilities.inline_bytes_max),
            incoming: Incoming::new(receives, bytes_in, slots),
            completions: Vec::with_capacity(POLL_MAX),
            read: Vec::new(),
        };
        // All that can be under way at a time: memory is not registered when there is something to do.
        if let Some(bytes) = port.outgoing.buffer_bytes() {
            for _ in 0..connections * slots {
                let buffer = arena.allocate(bytes)?;
                port.outgoing.give_back(Some(buffer));
            }
        }
        port.open_slots()?;
        port.post_first_receives(receive_depth)?;
        Ok(port)
    }

    /// What the peer of a connection needs to know.
    pub(crate) fn offer(&self, connection: usize) -> Offer {
        let address = |pair: &QueuePair| pair.address().clone();
        Offer {
            connection: connection as u32,
            nonce: self.nonce,
            connected: self.connected.get(connection).map(address),
            datagram: self.datagram.as_ref().map(address),
            memory: self.slots_of(connection),
            ..Offer::new(&self.options, self.asks)
        }
    }

    /// Connects to the end that offers this, called `name`.
    pub(crate) fn connect(&mut self, connection: usize, offer: &[u8], name: &str) -> Result<()> {
        let offer = Offer::parse(offer, &Offer::new(&self.options, self.asks), name)?;
        let missing = |what: &str| ProtocolError::Offer {
            peer: name.to_owned(),
            reason: format!("it offers no {what}"),
        };
        if let Some(pair) = self.connected.get(connection) {
            let address = offer.connected.ok_or_else(|| missing("connection"))?;
            pair.connect(&address)?;
        }
        let handle = match &self.datagram {
            Some(pair) => {
                if pair.state() == QueuePairState::Init {
                    pair.activate()?;
                }
                let address = offer.datagram;
                let address = address.ok_or_else(|| missing("place for datagrams"))?;
                Some(self.device.create_address_handle(&address)?)
            }
            None => None,
        };
        let writes = self.outgoing.way().is_some_and(Way::goes_to_memory);
        let reads = self.options.protocol == Protocol::Read && self.asks;
        if (writes || reads) && offer.memory.is_none() {
            return Err(missing("memory"));
        }
        self.peers[connection] = Some(Peer {
            name: name.to_owned(),
            memory: offer.memory,
            readable: offer.readable,
            handle,
            guard: Guard {
                connection: offer.connection,
                nonce: offer.nonce,
            },
        });
        Ok(())
    }

    /// The completion queue that tells of messages, for a task that waits for them.
    pub(crate) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    pub(crate) fn context(&self) -> &Arc<dyn Context> {
        &self.context
    }

    /// Queue pairs that it has.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.connected.len() + usize::from(self.datagram.is_some())
    }

    /// Whether the peer of a connection is known.
    pub(crate) fn is_connected(&self, connection: usize) -> bool {
        self.peers[connection].is_some()
    }

    /// How errors call a peer.
    pub(crate) fn name(&self, connection: usize) -> &str {
        let peer = self.peers[connection].as_ref();
        peer.map_or("that is not connected", |peer| &peer.name)
    }

    /// Bytes of a peer's memory that can be read.
    pub(crate) fn readable(&self, connection: usize) -> u64 {
        self.peers[connection]
            .as_ref()
            .map_or(0, |peer| peer.readable)
    }

    /// Why a connection is of no use any more, if it is not.
    pub(crate) fn gone(&self, connection: usize) -> Option<&Gone> {
        self.gone[connection].as_ref()
    }

    /// Gives a connection up.
    pub(crate) fn give_up(&mut self, connection: usize, gone: Gone) {
        if self.gone[connection].is_none() {
            self.gone[connection] = Some(gone);
            self.newly_gone.push(connection);
            if let Some(pair) = self.connected.get(connection) {
                pair.modify_to_error();
            }
        }
    }

    /// Notices connections that broke without a completion that says so.
    pub(crate) fn look_at_states(&mut self) {
        for connection in 0..self.connected.len() {
            if self.gone[connection].is_none()
                && self.connected[connection].state() == QueuePairState::Error
            {
                self.give_up(connection, Gone("its queue pair broke".into()));
            }
        }
    }

    /// A connection that is gone, once.
    pub(crate) fn next_gone(&mut self) -> Option<usize> {
        self.newly_gone.pop()
    }

    /// Puts a READ of a peer's memory in line, into the first bytes of a buffer. It ends with this id, whose upper half
    /// is the connection's number.
    pub(crate) fn read(&mut self, connection: usize, offset: u64, into: (Buffer, usize), id: u64) {
        let memory = self.peers[connection].as_ref().and_then(|peer| peer.memory);
        let (Some(memory), true) = (memory, self.gone[connection].is_none()) else {
            return;
        };
        let (buffer, length) = into;
        let request = SendRequest {
            id,
            operation: SendOperation::Read(memory.offset(offset as usize)),
            payload: Payload::Owned { buffer, length },
            destination: None,
        };
        self.outgoing.add(connection, request);
    }

    /// Takes what has completed: messages go to `arrivals`. Receives are posted again before whatever is sent next.
    ///
    /// # Errors
    /// When a verb fails.
    pub(crate) fn poll(&mut self, arrivals: &mut Arrivals) -> Result<usize> {
        let mut completions = std::mem::take(&mut self.completions);
        let count = self.queue.poll(&mut completions, POLL_MAX);
        for completion in completions.drain(..) {
            match completion.opcode {
                Opcode::Receive => self.received(completion, arrivals),
                _ => self.sent(completion),
            }
        }
        self.completions = completions;
        if count > 0 {
            self.post_receives()?;
        }
        Ok(count)
    }

    fn sent(&mut self, completion: Completion) {
        let connection = (completion.id >> 32) as usize;
        if completion.status != CompletionStatus::Success {
            let gone = Gone::status(completion.opcode.name(), completion.status);
            self.failed(connection, self.outgoing.way(), gone);
        }
        match completion.opcode {
            Opcode::Read => {
                let done = completion.status == CompletionStatus::Success;
                self.read.push((
                    completion.id,
                    completion.buffer.filter(|_| done),
                    completion.bytes,
                ));
            }
            _ => self.outgoing.give_back(completion.buffer),
        }
    }

    /// A request ended badly that went this way. One queue pair for all takes all with it.
    fn failed(&mut self, connection: usize, way: Option<Way>, gone: Gone) {
        match way.is_none_or(|way| way.transport.is_connected()) {
            true => self.give_up(connection, gone),
            false => (0..self.gone.len()).for_each(|each| self.give_up(each, gone.clone())),
        }
    }
}
