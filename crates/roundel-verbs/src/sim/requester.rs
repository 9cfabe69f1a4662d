//! What a NIC sends, and what it makes of the answers.
#![allow(unsafe_code)] // Copies messages between registered memories.

use super::events::Event;
use super::packet::{Content, Loose, Packet, PairId, Part};
use super::pair::{Request, Response, Side, SimAddressHandle};
use super::parameters::{ACKNOWLEDGE_BYTES, DATAGRAM_BYTES, REMOTE_ADDRESS_BYTES};
use super::state::State;
use super::time::Span;
use crate::memory::copy_words_whole;
use crate::queue_pair::{QueuePairState, Transport};
use crate::work::CompletionStatus::{
    LocalProtection, ReceiverNotReady, RemoteAccess, RetryExceeded,
};
use crate::work::{ATOMIC_BYTES, CompletionStatus, SendOperation};
use std::any::Any;
use std::sync::Arc;

/// Bytes of immediate data (IB).
pub(super) const IMMEDIATE_BYTES: usize = 4;

impl State {
    /// A NIC learns of requests.
    pub(super) fn ring(&mut self, id: PairId, up_to: u64) {
        let Some(pair) = self.pair(id) else { return };
        let sending = &mut pair.sending;
        let new = (sending.rung.max(sending.first)..up_to).filter(|message| {
            let request = sending.requests.get((message - sending.first) as usize);
            request.is_some_and(Request::returns)
        });
        sending.asked += new.count() as u64;
        sending.rung = sending.rung.max(up_to);
        self.take_up(id);
        self.activate(id);
    }

    /// The next packet of a queue pair: first of answers, then of its own requests. Also the time that the engine takes
    /// for it, and whether another queue pair's turn is next in any case.
    pub(super) fn packet_of(
        &mut self,
        node: usize,
        number: u32,
    ) -> Option<(Box<Packet>, Span, bool)> {
        let most = self.parameters.link.packet_bytes;
        let pair = self.nodes[node].pairs[number as usize].as_deref_mut()?;
        if pair.state != QueuePairState::ReadyToSend {
            return None;
        }
        let id = pair.id;
        if let Some(response) = pair.receiving.responses.front_mut() {
            let to = pair.remote?;
            let part = part_of(response.message, response.offset, response.bytes, most);
            response.offset += part.length;
            if part.last {
                pair.receiving.responses.pop_front();
            }
            let packet = Packet {
                from: id,
                to,
                wire_bytes: self.parameters.link.header_bytes + ACKNOWLEDGE_BYTES + part.length,
                payload_bytes: part.length,
                spoilt: false,
                content: Content::Response(part),
            };
            let engine = match part.is_first() {
                true => self.parameters.nic.read,
                false => self.parameters.nic.packet,
            };
            let cost = engine + self.context(id, Side::Responder) + self.translate_answer(id, part);
            return Some((Box::new(packet), cost, false));
        }
        let sending = &pair.sending;
        if sending.waits || sending.next >= sending.rung {
            return None;
        }
        let (message, offset) = (sending.next, sending.offset);
        let request = pair.sending.request(message)?.clone();
        if request.returns() && pair.sending.returning >= self.parameters.nic.reads_max as u64 {
            return None;
        }
        let transport = pair.transport;
        if self.nodes[node].segments.local(&request.local).is_none() {
            self.break_pair(id, Some((message, LocalProtection)));
            return None;
        }
        let part = part_of(message, offset, self.length_of(request.bytes()), most);
        let packet = match transport {
            Transport::UnreliableDatagram => self.datagram(id, message, &request),
            _ => self.part(id, transport, part, &request),
        }?;
        let (read, nic) = (request.returns(), &self.parameters.nic);
        let engine = match offset {
            0 if read => nic.read,
            0 => nic.send,
            _ => nic.packet,
        };
        let source = match read {
            true => Span::ZERO,
            false => self.translate_source(id, &request, part),
        };
        let cost = engine + self.at_hand(id, read) + source;
        Some((Box::new(packet), cost, read))
    }

    /// A part of a request on a connection.
    fn part(
        &mut self,
        id: PairId,
        transport: Transport,
        part: Part,
        request: &Request,
    ) -> Option<Packet> {
        let clock = self.clock;
        let loose = match transport {
            Transport::UnreliableConnection if part.is_first() => Some(self.loose(id, request, 0)),
            _ => None,
        };
        let pair = self.pair(id)?;
        let to = pair.remote?;
        let sending = &mut pair.sending;
        let (part, payload) = match request.returns() {
            // It is short, whatever it asks for.
            true => (Part { last: true, ..part }, 0),
            false => (part, part.length),
        };
        if part.last {
            if sending.next == sending.first {
                sending.progress = clock;
            }
            sending.next += 1;
            sending.offset = 0;
            sending.returning += u64::from(request.returns());
        } else {
            sending.offset += part.length;
        }
        let content = match transport {
            Transport::UnreliableConnection => {
                if loose.is_some() {
                    sending.loose = loose;
                }
                Content::Unreliable(part, sending.loose.clone()?)
            }
            _ => Content::Request(part),
        };
        let watch = transport == Transport::ReliableConnection
            && !std::mem::replace(&mut sending.watched, true);
        if watch {
            let at = clock + self.parameters.nic.acknowledge_wait;
            self.events.add(at, Event::Timeout(id));
        }
        let addressed = part.is_first() && request.remote_address().is_some();
        let immediate = part.last && request.immediate().is_some();
        Some(Packet {
            from: id,
            to,
            wire_bytes: self.parameters.link.header_bytes
                + payload
                + usize::from(addressed) * REMOTE_ADDRESS_BYTES
                + usize::from(immediate) * IMMEDIATE_BYTES,
            payload_bytes: payload,
            spoilt: false,
            content,
        })
    }

    /// A datagram, which is one packet.
    fn datagram(&mut self, id: PairId, message: u64, request: &Request) -> Option<Packet> {
        let handle = request.destination.as_ref()?;
        let handle: &dyn Any = handle.as_ref();
        let handle = handle.downcast_ref::<SimAddressHandle>()?;
        let loose = self.loose(id, request, handle.queue_key);
        let pair = self.pair(id)?;
        pair.sending.next += 1;
        let payload_bytes = self.length_of(loose.bytes.len());
        Some(Packet {
            from: id,
            to: handle.pair,
            wire_bytes: self.parameters.link.header_bytes + DATAGRAM_BYTES + payload_bytes,
            payload_bytes,
            spoilt: false,
            content: Content::Datagram(message, loose),
        })
    }

    /// A copy of a message, for those that complete before they have come.
    fn loose(&self, id: PairId, request: &Request, queue_key: u32) -> Arc<Loose> {
        let bytes = match &request.inline {
            Some(inline) => inline.as_slice().to_vec(),
            None => {
                let length = request.local.length;
                let mut bytes = vec![0; length];
                if let Some(from) = self.nodes[id.node].segments.local(&request.local) {
                    // SAFETY: the source was checked against its segment, and is readable until the request
                    // completes; the target is as long.
                    unsafe { copy_words_whole(from, bytes.as_mut_ptr(), length) };
                }
                bytes
            }
        };
        Arc::new(Loose {
            bytes,
            immediate: request.immediate(),
            write: request.remote_address(),
            queue_key,
        })
    }

    /// The last packet of a message that nobody acknowledges has left.
    pub(super) fn left(&mut self, id: PairId, message: u64) {
        let Some(pair) = self.pair(id) else { return };
        if let Some(request) = pair.sending.request(message) {
            request.done = true;
            self.complete_sends(id);
        }
    }

    /// Everything before this request was carried out, but for what is to be returned.
    pub(super) fn acknowledged(&mut self, id: PairId, before: u64) {
        let Some(pair) = self.pair(id) else { return };
        let first = pair.sending.first;
        for message in first..before {
            match pair.sending.request(message) {
                Some(request) if !request.returns() => request.done = true,
                Some(_) => {}
                None => break,
            }
        }
        self.complete_sends(id);
    }

    /// The peer has no receive for this request.
    pub(super) fn not_ready(&mut self, id: PairId, message: u64) {
        self.acknowledged(id, message);
        let clock = self.clock;
        let Some(pair) = self.pair(id) else { return };
        if pair.sending.request(message).is_none() || pair.sending.waits {
            return;
        }
        pair.sending.not_ready += 1;
        // 7 is without end (IB).
        if pair.rnr_retry < 7 && pair.sending.not_ready > u32::from(pair.rnr_retry) {
            self.break_pair(id, Some((message, ReceiverNotReady)));
            return;
        }
        pair.sending.progress = clock;
        pair.sending.tries = 0;
        pair.sending.waits = true;
        self.go_back(id, message);
        let at = clock + self.parameters.nic.not_ready_wait;
        self.events.add(at, Event::Resume(id));
    }

    pub(super) fn resume(&mut self, id: PairId) {
        let Some(pair) = self.pair(id) else { return };
        pair.sending.waits = false;
        self.activate(id);
    }

    /// The peer wants this request, and what comes after it, once more.
    pub(super) fn missing(&mut self, id: PairId, message: u64) {
        self.acknowledged(id, message);
        self.go_back(id, message);
        self.activate(id);
    }

    /// The peer refused this request.
    pub(super) fn refused(&mut self, id: PairId, message: u64, status: CompletionStatus) {
        self.acknowledged(id, message);
        self.break_pair(id, Some((message, status)));
    }

    pub(super) fn timeout(&mut self, id: PairId) {
        let (clock, wait) = (self.clock, self.parameters.nic.acknowledge_wait);
        let retries = self.parameters.nic.retries;
        let Some(pair) = self.pair(id) else { return };
        let sending = &mut pair.sending;
        if pair.state != QueuePairState::ReadyToSend || sending.first >= sending.next {
            sending.watched = false;
            return;
        }
        let mut due = sending.progress + wait;
        if due <= clock {
            sending.tries += 1;
            let first = sending.first;
            if sending.tries > retries {
                self.break_pair(id, Some((first, RetryExceeded)));
                return;
            }
            sending.progress = clock;
            self.go_back(id, first);
            due = clock + wait;
            self.activate(id);
        }
        self.events.add(due, Event::Timeout(id));
    }

    /// A part of what a READ asked for.
    pub(super) fn returned(&mut self, from: PairId, id: PairId, part: Part) {
        let Some(pair) = self.pair(id) else { return };
        let Some(request) = pair.sending.request(part.message) else {
            return;
        };
        if request.done || request.returned != part.offset {
            return;
        }
        request.returned += part.length;
        if !part.last {
            return;
        }
        let (SendOperation::Read(at), local) = (request.operation, request.local) else {
            return;
        };
        let source = self.nodes[from.node].segments.exposed(at, local.length);
        let target = self.nodes[id.node].segments.local(&local);
        match (source, target) {
            (Some(source), Some(target)) => {
                // SAFETY: both ranges were checked against their segments; a posted buffer is the request's
                // alone, and never overlaps exposed memory.
                unsafe { copy_words_whole(source, target, local.length) };
                self.answered(id, part.message);
            }
            (None, _) => self.break_pair(id, Some((part.message, RemoteAccess))),
            (_, None) => self.break_pair(id, Some((part.message, LocalProtection))),
        }
    }

    /// What an atomic found.
    pub(super) fn found(&mut self, id: PairId, message: u64, word: u64) {
        let Some(pair) = self.pair(id) else { return };
        let Some(request) = pair
            .sending
            .request(message)
            .filter(|request| !request.done)
        else {
            return;
        };
        let local = request.local;
        match self.nodes[id.node].segments.local(&local) {
            Some(target) if local.length == ATOMIC_BYTES => {
                // SAFETY: the range was checked, and is as long as a word; a posted buffer is the request's
                // alone.
                unsafe { target.cast::<u64>().write_unaligned(word) };
                self.answered(id, message);
            }
            _ => self.break_pair(id, Some((message, LocalProtection))),
        }
    }

    fn answered(&mut self, id: PairId, message: u64) {
        let Some(pair) = self.pair(id) else { return };
        if let Some(request) = pair.sending.request(message) {
            request.done = true;
            // One that is to be sent again is not counted.
            pair.sending.returning = pair.sending.returning.saturating_sub(1);
            pair.sending.asked -= 1;
        }
        self.take_up(id);
        self.acknowledged(id, message);
        self.activate(id);
    }

    /// Answers a READ.
    pub(super) fn respond(&mut self, id: PairId, message: u64, bytes: usize) {
        let bytes = self.length_of(bytes);
        let Some(pair) = self.pair(id) else { return };
        pair.receiving.responses.push_back(Response {
            message,
            bytes,
            offset: 0,
        });
        self.activate(id);
    }
}

/// The part of a message that begins at an offset.
fn part_of(message: u64, offset: usize, bytes: usize, most: usize) -> Part {
    let length = (bytes - offset).min(most);
    Part {
        message,
        offset,
        length,
        last: offset + length == bytes,
    }
}
