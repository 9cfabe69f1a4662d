//! When a NIC needs translations of addresses: to read what it sends, and to write what came to memory.

use super::memory::Place;
use super::packet::{Content, PairId, Part};
use super::pair::Request;
use super::state::State;
use super::time::Span;
use super::translations::LINE_BYTES;
use rand::Rng as _;

impl State {
    /// What it takes a NIC to have at hand where a packet of a request is read from.
    pub(super) fn translate_source(&mut self, id: PairId, request: &Request, part: Part) -> Span {
        let place = match request.inline {
            Some(_) => None,
            None => self.nodes[id.node].segments.place(&request.local),
        };
        let miss = self.parameters.nic.requester_miss;
        self.translate(id.node, place, part, miss)
    }

    /// The same for a packet of an answer to a READ.
    pub(super) fn translate_answer(&mut self, id: PairId, part: Part) -> Span {
        let peer = self.pair(id).and_then(|pair| pair.remote);
        let asked = peer.and_then(|peer| self.pair(peer)?.sending.request(part.message));
        let from = asked.and_then(|request| request.remote_address());
        let place = from.and_then(|from| self.nodes[id.node].segments.place_exposed(from));
        let miss = self.parameters.nic.responder_miss;
        self.translate(id.node, place, part, miss)
    }

    /// What it takes a NIC to have at hand where a packet that came is written to.
    pub(super) fn translate_target(&mut self, from: PairId, to: PairId, content: &Content) -> Span {
        let (written, part) = match content {
            Content::Request(part) => {
                let sender = self.pair(from);
                let asked = sender.and_then(|pair| pair.sending.request(part.message));
                let Some(request) = asked.filter(|request| !request.returns()) else {
                    return Span::ZERO;
                };
                (request.remote_address(), *part)
            }
            Content::Unreliable(part, loose) => (loose.write, *part),
            Content::Datagram(message, loose) => (
                None,
                Part {
                    message: *message,
                    offset: 0,
                    length: self.length_of(loose.bytes.len()),
                    last: true,
                },
            ),
            Content::Response(part) => return self.translate_returned(to, *part),
            _ => return Span::ZERO,
        };
        let receive = self
            .pair(to)
            .and_then(|pair| pair.receiving.posted.front().copied());
        let segments = &self.nodes[to.node].segments;
        let place = match written {
            Some(at) => segments.place_exposed(at),
            // What comes next may be for one of those behind it, which are as likely to be held.
            None => receive.and_then(|receive| segments.place(&receive.local)),
        };
        let miss = self.parameters.nic.responder_miss;
        self.translate(to.node, place, part, miss)
    }

    /// The same for a part of what a READ returns.
    fn translate_returned(&mut self, to: PairId, part: Part) -> Span {
        let asked = self
            .pair(to)
            .and_then(|pair| pair.sending.request(part.message));
        let local = asked.map(|request| request.local);
        let place = local.and_then(|local| self.nodes[to.node].segments.place(&local));
        let miss = self.parameters.nic.responder_miss;
        self.translate(to.node, place, part, miss)
    }

    /// Has a NIC hold the lines for a part of a message that begins at a place. Returns what those take that it has to fetch.
    fn translate(&mut self, node: usize, place: Option<Place>, part: Part, miss: Span) -> Span {
        let most = self.parameters.nic.translations;
        let Some(place) = place.filter(|_| part.length > 0 && miss > Span::ZERO) else {
            return Span::ZERO;
        };
        let begin = place.offset * self.parameters.memory_times + part.offset;
        let lines = begin / LINE_BYTES..=(begin + part.length - 1) / LINE_BYTES;
        let random = &mut self.random;
        let held = &mut self.nodes[node].nic.translations;
        let mut fetched = 0;
        for number in lines {
            let drop = || random.random_range(0..most);
            fetched += u64::from(!held.hold((place.segment, number), most, drop));
        }
        miss * fetched
    }
}
