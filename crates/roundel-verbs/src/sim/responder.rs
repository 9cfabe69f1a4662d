//! What comes to a NIC, and what it does for those who ask.
#![allow(unsafe_code)] // Copies messages between registered memories.

use super::events::Event;
use super::packet::{Content, Loose, Packet, PairId, Part};
use super::pair::{Receive, Request, Side};
use super::state::State;
use super::time::{Span, Time};
use crate::capabilities::GRH_BYTES;
use crate::counters::Opcode;
use crate::memory::{copy_last_byte_last, copy_words_whole};
use crate::provider::{RawCompletion, RawLocal};
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::CompletionStatus::{
    LocalLength, LocalProtection, RemoteAccess, RemoteInvalidRequest, RemoteOperation, Success,
};
use crate::work::{ATOMIC_BYTES, CompletionStatus, SendOperation};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

impl State {
    /// A packet has come to a NIC, whose engine looks at it as soon as it can.
    pub(super) fn take_in(&mut self, at: Time, packet: Box<Packet>) {
        let side = match &packet.content {
            Content::Request(_) | Content::Unreliable(..) | Content::Datagram(..) => {
                Side::Responder
            }
            _ => Side::Requester,
        };
        let context = self.context(packet.to, side);
        let target = self.translate_target(packet.from, packet.to, &packet.content);
        let nic = &self.parameters.nic;
        let (receive, packets, fetch) = (nic.receive, nic.packet, nic.fetch);
        let engine = match self.is_for_receive(&packet) {
            true if context > Span::ZERO => receive + fetch,
            true => receive,
            false => packets,
        };
        let to_host = self.parameters.nic.host.time(packet.wire_bytes);
        let split = self.parameters.split(packet.payload_bytes);
        let node = packet.to.node;
        let engine = self.as_slow_as(node, engine + context + target + split);
        let to_host = self.as_slow_as(node, to_host);
        let nic = &mut self.nodes[node].nic;
        // The engine works on one packet while those before it are on their way to the host.
        nic.input_free = at.max(nic.input_free) + engine;
        nic.host_free = nic.input_free.max(nic.host_free + to_host);
        let at = nic.host_free + self.parameters.nic.deliver;
        self.events.add(at, Event::Received(packet));
    }

    /// Whether a packet begins a message that a receive is for.
    fn is_for_receive(&mut self, packet: &Packet) -> bool {
        match &packet.content {
            Content::Request(part) if part.is_first() => {
                let requester = self.pair(packet.from);
                requester
                    .and_then(|pair| pair.sending.request(part.message))
                    .is_some_and(|request| request.consumes_receive())
            }
            Content::Unreliable(part, loose) => part.is_first() && loose.consumes_receive(),
            Content::Datagram(..) => true,
            _ => false,
        }
    }

    pub(super) fn received(&mut self, packet: Packet) {
        let Packet {
            from,
            to,
            wire_bytes,
            spoilt,
            content,
            ..
        } = packet;
        if from.node != to.node {
            self.switch
                .taken_in(to.node, wire_bytes, self.clock, &mut self.events);
        }
        let unheard = from.node != to.node && self.is_cut_off(to.node);
        if spoilt || unheard || !self.concerns(from, to, &content) {
            return;
        }
        match content {
            Content::Request(part) => self.asked(from, to, part),
            Content::Unreliable(part, loose) => self.loose_part(to, part, &loose),
            Content::Datagram(_, loose) => self.datagram_came(from, to, &loose),
            Content::Response(part) => self.returned(from, to, part),
            Content::Found { message, word } => self.found(to, message, word),
            Content::Acknowledge(before) => self.acknowledged(to, before),
            Content::NotReady(message) => self.not_ready(to, message),
            Content::Missing(message) => self.missing(to, message),
            Content::Refused(message, status) => self.refused(to, message, status),
        }
    }

    /// Whether a packet is for a queue pair as it is now.
    fn concerns(&mut self, from: PairId, to: PairId, content: &Content) -> bool {
        let Some(pair) = self.pair(to) else {
            return false;
        };
        let from_peer = match content {
            Content::Datagram(_, loose) => {
                pair.transport == Transport::UnreliableDatagram && pair.queue_key == loose.queue_key
            }
            _ => pair.remote == Some(from),
        };
        from_peer && pair.state == QueuePairState::ReadyToSend
    }

    /// A part of a request on a reliable connection.
    fn asked(&mut self, from: PairId, to: PairId, part: Part) {
        let Some(pair) = self.pair(to) else { return };
        let receiving = &mut pair.receiving;
        let expected = receiving.expected;
        if part.message < expected {
            if part.last {
                self.asked_again(from, to, part.message);
            }
            return;
        }
        if part.message > expected || part.offset != receiving.offset {
            if !std::mem::replace(&mut receiving.complained, true) {
                self.answer(to, from, Content::Missing(expected));
            }
            return;
        }
        let asked = self
            .pair(from)
            .and_then(|peer| peer.sending.request(part.message));
        let Some(request) = asked.cloned() else {
            return;
        };
        if part.is_first() && !self.admits(from, to, part.message, &request) {
            return;
        }
        self.write_part(from, to, part, &request);
        let Some(pair) = self.pair(to) else { return };
        let receiving = &mut pair.receiving;
        receiving.complained = false;
        if !part.last {
            receiving.offset += part.length;
            return;
        }
        receiving.offset = 0;
        receiving.expected += 1;
        self.carry_out(from, to, part.message, &request);
    }

    /// Whether a request can be carried out, as far as its first packet tells.
    fn admits(&mut self, from: PairId, to: PairId, message: u64, request: &Request) -> bool {
        let bytes = request.bytes();
        let Some(pair) = self.pair(to) else {
            return false;
        };
        if request.consumes_receive() {
            let Some(receive) = pair.receiving.posted.front().copied() else {
                pair.receiving.complained = true;
                self.unwanted.requests += u64::from(bytes > 0);
                self.answer(to, from, Content::NotReady(message));
                return false;
            };
            if request.remote_address().is_none()
                && let Err((status, theirs)) = self.fits(to, &receive, bytes)
            {
                self.refuse(from, to, message, theirs);
                self.spoil(to, receive, status);
                return false;
            }
        }
        let length = match request.operation.atomic_word() {
            Some(_) => ATOMIC_BYTES,
            None => bytes,
        };
        if let Some(at) = request.remote_address()
            && self.nodes[to.node].segments.exposed(at, length).is_none()
        {
            self.refuse(from, to, message, RemoteAccess);
            self.break_pair(to, None);
            return false;
        }
        true
    }

    /// Whether a receive can take a message; if not, how the receive ends, and how the request.
    fn fits(
        &self,
        to: PairId,
        receive: &Receive,
        bytes: usize,
    ) -> Result<(), (CompletionStatus, CompletionStatus)> {
        if bytes > receive.local.length {
            return Err((LocalLength, RemoteInvalidRequest));
        }
        match self.nodes[to.node].segments.local(&receive.local) {
            Some(_) => Ok(()),
            None => Err((LocalProtection, RemoteOperation)),
        }
    }

    fn refuse(&mut self, from: PairId, to: PairId, message: u64, status: CompletionStatus) {
        self.answer(to, from, Content::Refused(message, status));
    }

    /// Where the bytes of a request are.
    fn source(&self, from: PairId, request: &Request) -> Option<*const u8> {
        match &request.inline {
            Some(inline) => Some(inline.as_slice().as_ptr()),
            None => {
                let local = self.nodes[from.node].segments.local(&request.local);
                local.map(<*mut u8>::cast_const)
            }
        }
    }

    /// What a WRITE writes is seen as it comes.
    fn write_part(&mut self, from: PairId, to: PairId, part: Part, request: &Request) {
        let (SendOperation::Write(at) | SendOperation::WriteWithImmediate(at, _)) =
            request.operation
        else {
            return;
        };
        let (bytes, source) = (request.bytes(), self.source(from, request));
        let target = self.nodes[to.node].segments.exposed(at, bytes);
        let part = match self.parameters.payload_times {
            1 => part,
            // Its bytes stand for more than there are: they come with the last.
            _ if part.last => Part {
                offset: 0,
                length: bytes,
                ..part
            },
            _ => return,
        };
        let end = part.offset + part.length;
        if let (Some(source), Some(target), true) = (source, target, end <= bytes) {
            // SAFETY: both ranges were checked against their segments, and the part ends within them; exposed
            // memory never overlaps a buffer that can be posted.
            unsafe {
                let (source, target) = (source.add(part.offset), target.add(part.offset));
                copy_last_byte_last(source, target, part.length);
            }
            if part.last {
                self.written(to);
            }
        }
    }

    /// Those who look at memory that a peer writes to see something new.
    fn written(&mut self, to: PairId) {
        let Some(pair) = self.pair(to) else { return };
        let (sends, receives) = (pair.send_queue, pair.receive_queue);
        let queues = &mut self.nodes[to.node].queues;
        queues.at(sends).wake();
        queues.at(receives).wake();
    }

    /// Carries a request out that has come whole, and answers.
    fn carry_out(&mut self, from: PairId, to: PairId, message: u64, request: &Request) {
        let bytes = request.bytes();
        let source = self.source(from, request);
        match request.operation {
            SendOperation::Read(_) => return self.respond(to, message, bytes),
            SendOperation::CompareAndSwap { .. } | SendOperation::FetchAndAdd { .. } => {
                return self.change_word(from, to, message, request);
            }
            _ => {}
        }
        if request.consumes_receive() {
            let written = request.remote_address().is_some();
            let receive = self
                .pair(to)
                .and_then(|pair| pair.receiving.posted.pop_front());
            if let Some(receive) = receive {
                if let (false, Some(source)) = (written, source) {
                    self.fill(to, &receive.local, 0, source, bytes);
                }
                self.complete_receive(to, receive, bytes, written, request.immediate(), 0);
            }
        }
        self.acknowledge(to, from);
    }

    /// Copies into the memory of a receive.
    fn fill(&mut self, to: PairId, local: &RawLocal, at: usize, source: *const u8, bytes: usize) {
        let part = RawLocal {
            address: local.address + at as u64,
            length: bytes,
            local_key: local.local_key,
        };
        if let Some(target) = self.nodes[to.node].segments.local(&part) {
            // SAFETY: the target was checked against its segment, and is the receive's alone; the source is
            // readable for as many bytes, as the callers checked.
            unsafe { copy_words_whole(source, target, bytes) };
        }
    }

    fn complete_receive(
        &mut self,
        to: PairId,
        receive: Receive,
        bytes: usize,
        written: bool,
        immediate: Option<u32>,
        source_queue_pair: u32,
    ) {
        let Some(pair) = self.pair(to) else { return };
        pair.counters.add(Opcode::Receive, bytes);
        let completion = RawCompletion {
            bytes,
            written,
            immediate,
            source_queue_pair,
            ..pair.receive_completion(receive.id, Success)
        };
        let queue = pair.receive_queue;
        self.nodes[to.node].queues.at(queue).push(completion);
    }

    /// A request has come before: its answer was lost, or is late.
    fn asked_again(&mut self, from: PairId, to: PairId, message: u64) {
        let asked = self
            .pair(from)
            .and_then(|peer| peer.sending.request(message));
        let request = asked.cloned();
        let Some(pair) = self.pair(to) else { return };
        let known = pair.receiving.found.iter().find(|(of, _)| *of == message);
        let word = known.map(|(_, word)| *word);
        match request {
            Some(request) if matches!(request.operation, SendOperation::Read(_)) => {
                self.respond(to, message, request.bytes());
            }
            Some(request) if request.returns() => {
                if let Some(word) = word {
                    self.answer(to, from, Content::Found { message, word });
                }
            }
            _ => self.acknowledge(to, from),
        }
    }

    /// Carries an atomic out, once.
    fn change_word(&mut self, from: PairId, to: PairId, message: u64, request: &Request) {
        let kept = self.parameters.nic.reads_max;
        let address = request
            .remote_address()
            .and_then(|at| self.nodes[to.node].segments.exposed(at, ATOMIC_BYTES));
        let Some(address) = address else { return };
        // SAFETY: the word lies in exposed memory (checked), is aligned (the object model checks the address,
        // segments begin at pages), and everybody reaches exposed memory through atomics only.
        let shared = unsafe { AtomicU64::from_ptr(address.cast()) };
        let word = match request.operation {
            SendOperation::CompareAndSwap { compare, swap, .. } => shared
                .compare_exchange(compare, swap, SeqCst, SeqCst)
                .unwrap_or_else(|before| before),
            SendOperation::FetchAndAdd { add, .. } => shared.fetch_add(add, SeqCst),
            _ => return,
        };
        if let Some(pair) = self.pair(to) {
            let found = &mut pair.receiving.found;
            found.push_back((message, word));
            if found.len() > kept {
                found.pop_front();
            }
        }
        self.answer(to, from, Content::Found { message, word });
    }

    /// A part of a message on an unreliable connection: without its beginning, or what is in between, it is
    /// dropped, and nobody is told.
    fn loose_part(&mut self, to: PairId, part: Part, loose: &Loose) {
        let Some(pair) = self.pair(to) else { return };
        let receiving = &mut pair.receiving;
        if part.is_first() {
            (receiving.expected, receiving.offset) = (part.message, 0);
        }
        if part.message != receiving.expected || part.offset != receiving.offset {
            return;
        }
        receiving.offset += part.length;
        if !part.last {
            return;
        }
        let bytes = loose.bytes.len();
        let consumes = loose.consumes_receive();
        let receive = receiving.posted.front().copied();
        if consumes && receive.is_none() {
            return;
        }
        match (loose.write, receive) {
            (Some(at), _) => {
                let Some(target) = self.nodes[to.node].segments.exposed(at, bytes) else {
                    return;
                };
                // SAFETY: the target was checked against its segment; the source is as long.
                unsafe { copy_last_byte_last(loose.bytes.as_ptr(), target, bytes) };
                self.written(to);
            }
            (None, Some(receive)) => match self.fits(to, &receive, bytes) {
                Ok(()) => self.fill(to, &receive.local, 0, loose.bytes.as_ptr(), bytes),
                Err((status, _)) => return self.spoil(to, receive, status),
            },
            (None, None) => return,
        }
        if let (true, Some(receive)) = (consumes, receive) {
            if let Some(pair) = self.pair(to) {
                pair.receiving.posted.pop_front();
            }
            self.complete_receive(
                to,
                receive,
                bytes,
                loose.write.is_some(),
                loose.immediate,
                0,
            );
        }
    }

    /// The first receive cannot take what came for it.
    fn spoil(&mut self, to: PairId, receive: Receive, status: CompletionStatus) {
        let Some(pair) = self.pair(to) else { return };
        pair.receiving.posted.pop_front();
        let completion = pair.receive_completion(receive.id, status);
        let queue = pair.receive_queue;
        self.nodes[to.node].queues.at(queue).push(completion);
        self.break_pair(to, None);
    }

    /// A datagram, with the place of its routing header in front.
    fn datagram_came(&mut self, from: PairId, to: PairId, loose: &Loose) {
        let Some(pair) = self.pair(to) else { return };
        let Some(receive) = pair.receiving.posted.front().copied() else {
            self.unwanted.datagrams += 1;
            return;
        };
        let bytes = GRH_BYTES + loose.bytes.len();
        if let Err((status, _)) = self.fits(to, &receive, bytes) {
            return self.spoil(to, receive, status);
        }
        if let Some(pair) = self.pair(to) {
            pair.receiving.posted.pop_front();
        }
        let header = [0; GRH_BYTES];
        self.fill(to, &receive.local, 0, header.as_ptr(), GRH_BYTES);
        let (source, length) = (loose.bytes.as_ptr(), loose.bytes.len());
        self.fill(to, &receive.local, GRH_BYTES, source, length);
        self.complete_receive(to, receive, bytes, false, loose.immediate, from.number);
    }
}
