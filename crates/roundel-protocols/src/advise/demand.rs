//! What a call takes of the NIC at each of its two ends, in nanoseconds. The costs are those of the simulated NIC
//! (module `sim` of `roundel-verbs`), packet by packet, with averages where that draws and plays.

use crate::message::frame;
use crate::protocol::{Protocol, Via, Way};
use roundel_verbs::Transport;
use roundel_verbs::sim::{Parameters, Rate, Span};

/// More bytes in the first packet of a message to remote memory, in acknowledgements, in datagrams, and of immediate
/// data (IB).
const REMOTE_ADDRESS_BYTES: usize = 16;
const ACKNOWLEDGE_BYTES: usize = 4;
const DATAGRAM_BYTES: usize = 8;
const IMMEDIATE_BYTES: usize = 4;
/// Messages that a NIC sends while the acknowledgement of one is under way.
const ACKNOWLEDGED_AFTER: f64 = 12.0;
/// Payload that a NIC moves in one piece.
const SPLIT_BYTES: usize = 256;

/// What a call takes at one of its ends, on average, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    /// Of the engine that sends, without contexts that are fetched.
    pub send: f64,
    /// Of contexts and requests that the engine that sends has to fetch.
    pub send_misses: f64,
    /// Of the engine that receives, likewise.
    pub receive: f64,
    pub receive_misses: f64,
    /// Of them, what messages take more that consume a receive.
    pub receives: f64,
    /// Of the link and the host's bus, out and in.
    pub out: f64,
    pub into: f64,
}

impl Demand {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            send: self.send + other.send,
            send_misses: self.send_misses + other.send_misses,
            receive: self.receive + other.receive,
            receive_misses: self.receive_misses + other.receive_misses,
            receives: self.receives + other.receives,
            out: self.out + other.out,
            into: self.into + other.into,
        }
    }
}

/// What is known of an end's queue pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    /// Connected queue pairs of the whole NIC on which it sends messages, and on which it receives them. Each has a context
    /// for either.
    pub sending: usize,
    pub receiving: usize,
    /// Calls pending on each.
    pub pending: usize,
    /// Whether it is the end that answers.
    pub answers: bool,
    /// READs that the NIC has outstanding.
    pub reads: usize,
}

/// Costs of a generation.
pub(super) struct Costs<'a> {
    parameters: &'a Parameters,
}

/// One way of a message.
struct Message {
    packets: f64,
    wire: Vec<usize>,
    split: f64,
}

fn nanos(span: Span) -> f64 {
    span.as_picos() as f64 / 1e3
}

fn time(rate: Rate, bytes: usize) -> f64 {
    nanos(rate.time(bytes))
}

impl<'a> Costs<'a> {
    pub(super) fn new(parameters: &'a Parameters) -> Self {
        Self { parameters }
    }

    /// Messages of a queue pair that are sent in a row, where many wait.
    fn in_a_row(&self, pairs: Pairs, wire: usize) -> f64 {
        let fit = self.parameters.link.packet_bytes.div_ceil(wire.max(1));
        let turn = self.parameters.nic.turn.min(fit).max(1);
        let most = turn.min(pairs.pending) as f64;
        // Those that answer have what has come by then, which is less.
        if pairs.answers { most.sqrt() } else { most }
    }

    fn message(&self, payload: usize, first: usize, each: usize) -> Message {
        let most = self.parameters.link.packet_bytes;
        let header = self.parameters.link.header_bytes + each;
        let mut left = payload;
        let (mut wire, mut split) = (Vec::new(), 0.0);
        loop {
            let part = left.min(most);
            let more = if wire.is_empty() { first } else { 0 };
            wire.push(part + header + more);
            split += match part > SPLIT_BYTES {
                true => nanos(self.parameters.nic.split),
                false => 0.0,
            };
            left -= part;
            if left == 0 {
                break;
            }
        }
        Message {
            packets: wire.len() as f64,
            wire,
            split,
        }
    }

    /// A message of a way, with so much payload.
    fn of(&self, way: Way, payload: usize) -> Message {
        let first = match way.via {
            Via::Send => 0,
            Via::Write => REMOTE_ADDRESS_BYTES,
            Via::WriteImmediate => REMOTE_ADDRESS_BYTES + IMMEDIATE_BYTES,
        };
        let each = match way.transport {
            Transport::UnreliableDatagram => DATAGRAM_BYTES,
            _ => 0,
        };
        self.message(payload + frame::overhead(way), first, each)
    }

    /// Share of times that a context is not held, where queue pairs are served one after the other: when it is first
    /// wanted for a burst of messages, and when it is wanted once more after so many other bursts, if at all. A
    /// context that is fetched takes the place of any other.
    fn missing(&self, pairs: Pairs, again_after: Option<f64>) -> (f64, f64) {
        const STEPS: usize = 50;
        let held = self.parameters.nic.contexts;
        let contexts = pairs.sending + pairs.receiving;
        if contexts <= held {
            return (0.0, 0.0);
        }
        let kept = |misses: f64| (-misses / held as f64).exp();
        let (mut first, mut again) = (1.0, 1.0);
        for _ in 0..STEPS {
            let misses = first + again;
            let next = 1.0 - kept(contexts as f64 * misses);
            first = 0.5 * (first + next);
            again = again_after.map_or(0.0, |bursts| 1.0 - kept(bursts * misses));
        }
        (first, again)
    }

    /// Share of READs whose request is not remembered.
    fn forgotten(&self, reads: usize) -> f64 {
        let held = self.parameters.nic.reads;
        match reads > held {
            true => 1.0 - held as f64 / reads as f64,
            false => 0.0,
        }
    }

    fn on_wire(&self, wire: &[usize]) -> f64 {
        let link = self.parameters.link.rate;
        let host = self.parameters.nic.host;
        let packet = |bytes: &usize| time(link, *bytes).max(time(host, *bytes));
        wire.iter().map(packet).sum()
    }

    fn acknowledgement(&self) -> Vec<usize> {
        vec![self.parameters.link.header_bytes + ACKNOWLEDGE_BYTES]
    }

    /// A message at its sender, with the acknowledgement that comes back.
    fn sent(&self, way: Way, payload: usize, pairs: Pairs) -> Demand {
        let nic = &self.parameters.nic;
        let message = self.of(way, payload);
        let row = self.in_a_row(pairs, message.wire[0]);
        let acknowledged = (!way.is_lossy()).then_some(ACKNOWLEDGED_AFTER / row);
        let (first, again) = match way.transport.is_connected() {
            true => self.missing(pairs, acknowledged),
            false => (0.0, 0.0),
        };
        let miss = nanos(nic.requester_miss);
        let mut demand = Demand {
            send: nanos(nic.send) + (message.packets - 1.0) * nanos(nic.packet),
            // Long messages of others come between their packets.
            send_misses: miss * first * message.packets / row,
            out: self.on_wire(&message.wire),
            ..Demand::default()
        };
        if !way.is_lossy() {
            demand.receive = nanos(nic.packet);
            demand.receive_misses = miss * again / row;
            demand.into = self.on_wire(&self.acknowledgement());
        }
        demand
    }

    /// A message at its receiver, with the acknowledgement that goes back.
    fn received(&self, way: Way, payload: usize, pairs: Pairs) -> Demand {
        let nic = &self.parameters.nic;
        let message = self.of(way, payload);
        let row = self.in_a_row(pairs, message.wire[0]);
        let (missing, _) = match way.transport.is_connected() {
            true => self.missing(pairs, None),
            false => (0.0, 0.0),
        };
        // Receives are fetched with the context.
        let receives = match way.consumes_receive() {
            true => nanos(nic.fetch),
            false => 0.0,
        };
        let miss = (nanos(nic.responder_miss) + receives) * missing;
        let more = match way.consumes_receive() {
            true => nanos(nic.receive) - nanos(nic.packet),
            false => 0.0,
        };
        let mut demand = Demand {
            receive: message.packets * nanos(nic.packet) + more + message.split,
            receives: more,
            receive_misses: miss / row,
            into: self.on_wire(&message.wire),
            ..Demand::default()
        };
        if !way.is_lossy() {
            demand.send = nanos(nic.packet);
            demand.out = self.on_wire(&self.acknowledgement());
        }
        demand
    }

    /// A call at the end that asks.
    pub(super) fn asking(&self, protocol: Protocol, bytes: (usize, usize), pairs: Pairs) -> Demand {
        let (Some(requests), Some(responses)) = (protocol.requests(), protocol.responses()) else {
            return self.reading(bytes.1, pairs);
        };
        let asked = self.sent(requests, bytes.0, pairs);
        asked.plus(self.received(responses, bytes.1, pairs))
    }

    /// A call at the end that answers.
    pub(super) fn answering(
        &self,
        protocol: Protocol,
        bytes: (usize, usize),
        pairs: Pairs,
    ) -> Demand {
        let (Some(requests), Some(responses)) = (protocol.requests(), protocol.responses()) else {
            return self.read(bytes.1, pairs);
        };
        let heard = self.received(requests, bytes.0, pairs);
        heard.plus(self.sent(responses, bytes.1, pairs))
    }

    /// A READ at the end that reads.
    fn reading(&self, bytes: usize, pairs: Pairs) -> Demand {
        let nic = &self.parameters.nic;
        let request = self.message(0, REMOTE_ADDRESS_BYTES, 0);
        let response = self.message(bytes, 0, ACKNOWLEDGE_BYTES);
        // READs take turns one by one.
        let answered = Some(pairs.reads as f64);
        let (first, again) = self.missing(pairs, answered);
        let context = nanos(nic.requester_miss);
        let fetched = nanos(nic.fetch) * self.forgotten(pairs.reads);
        Demand {
            send: nanos(nic.read),
            send_misses: (context + nanos(nic.read_miss)) * first + fetched,
            receive: response.packets * nanos(nic.packet) + response.split,
            receive_misses: context * again * response.packets,
            out: self.on_wire(&request.wire),
            into: self.on_wire(&response.wire),
            ..Demand::default()
        }
    }

    /// A READ at the end that is read from.
    fn read(&self, bytes: usize, pairs: Pairs) -> Demand {
        let nic = &self.parameters.nic;
        let request = self.message(0, REMOTE_ADDRESS_BYTES, 0);
        let response = self.message(bytes, 0, ACKNOWLEDGE_BYTES);
        let row = self.in_a_row(pairs, response.wire[0]);
        let (missing, _) = self.missing(pairs, None);
        let context = nanos(nic.responder_miss) * missing / row;
        Demand {
            send: nanos(nic.read) + (response.packets - 1.0) * nanos(nic.packet),
            send_misses: context,
            receive: nanos(nic.packet),
            receive_misses: context,
            out: self.on_wire(&response.wire),
            into: self.on_wire(&request.wire),
            ..Demand::default()
        }
    }

    /// What a thread takes for a call: at the end that asks, and at the end that answers.
    pub(super) fn thread(&self, protocol: Protocol, bytes: (usize, usize), row: f64) -> (f64, f64) {
        let cpu = &self.parameters.cpu;
        let inline = self.parameters.nic.inline_bytes_max;
        let cycles = |count: f64| count * nanos(cpu.cycle);
        let copy = |bytes: usize| time(cpu.copy, bytes);
        let post = nanos(cpu.post) / row + nanos(cpu.post_each);
        let completion = nanos(cpu.poll_each) + nanos(cpu.poll) / row;
        let send = |way: Way, payload: usize| {
            let length = payload + frame::overhead(way);
            post + completion + if length > inline { copy(length) } else { 0.0 }
        };
        let receive = |way: Way, payload: usize| {
            let noticed = match way.consumes_receive() {
                true => completion + post,
                false => 0.0,
            };
            let found = if way.goes_to_memory() {
                cycles(60.0)
            } else {
                0.0
            };
            noticed + found + copy(payload + frame::overhead(way))
        };
        match (protocol.requests(), protocol.responses()) {
            (Some(requests), Some(responses)) => (
                send(requests, bytes.0) + receive(responses, bytes.1),
                receive(requests, bytes.0) + send(responses, bytes.1),
            ),
            _ => (post + completion + copy(bytes.1), 0.0),
        }
    }

    /// From a call to its response, with nothing else to do.
    pub(super) fn latency(&self, protocol: Protocol, bytes: (usize, usize)) -> f64 {
        let parameters = self.parameters;
        let trip = parameters.round_trip().as_nanos() as f64;
        let fetch = nanos(parameters.nic.fetch);
        let inline = parameters.nic.inline_bytes_max;
        let wire = self.on_wire(&self.message(bytes.1, 0, 0).wire);
        let (asks, answers) = self.thread(protocol, bytes, 1.0);
        let fetched = match (protocol.requests(), protocol.responses()) {
            (Some(requests), Some(responses)) => {
                let is_long = |payload: usize, way| payload + frame::overhead(way) > inline;
                let count = usize::from(is_long(bytes.0, requests))
                    + usize::from(is_long(bytes.1, responses));
                count as f64 * fetch
            }
            // The answering NIC needs no thread, but fetches what is read.
            _ => fetch - nanos(parameters.nic.doorbell),
        };
        trip + fetched + wire * 2.0 + asks + answers
    }
}
