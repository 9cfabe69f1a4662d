//! The translations of addresses that a NIC holds: of each page of registered memory, where it is in the host's. It fetches
//! them by lines of its table, has room for so many lines, and drops any of them for another. What it keeps of each
//! registered region besides is not modelled, as a node has few regions.

use super::memory::Place;
use super::packet::{Content, PairId, Part};
use super::pair::Request;
use super::requester::remote_address;
use super::state::State;
use super::time::Span;
use rand::Rng as _;

/// Bytes of memory that a line translates: 8 pages of 4 KiB. Each has 8 bytes in the table (mlx4), and the host's memory is
/// read by 64 bytes.
const LINE_BYTES: usize = 8 * 4096;

/// A line of a NIC's table: the number of its segment, and which of the segment's lines it is.
type Line = (usize, usize);

/// The lines that a NIC holds.
#[derive(Default)]
pub(super) struct Translations {
    held: Vec<Line>,
    /// Where each line is among them, or was, by segment.
    at: Vec<Vec<usize>>,
}

impl Translations {
    /// Has it hold a line, if need be in the place of another, which `drop` names. Returns whether it did already.
    fn hold(&mut self, line: Line, most: usize, drop: impl FnOnce() -> usize) -> bool {
        let (segment, number) = line;
        if self.at.len() <= segment {
            self.at.resize_with(segment + 1, Vec::new);
        }
        let lines = &mut self.at[segment];
        if lines.len() <= number {
            lines.resize(number + 1, usize::MAX);
        }
        if self.held.get(lines[number]) == Some(&line) {
            return true;
        }
        lines[number] = match self.held.len() < most {
            true => {
                self.held.push(line);
                self.held.len() - 1
            }
            false => drop(),
        };
        self.held[lines[number]] = line;
        false
    }
}

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
        let from = asked.and_then(|request| remote_address(&request.operation));
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
                (remote_address(&request.operation), *part)
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
        let begin = place.offset * self.parameters.payload_times + part.offset;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_held_until_others_take_their_places() {
        let mut held = Translations::default();
        let never = || panic!("there is room");
        assert!(!held.hold((0, 3), 2, never));
        assert!(!held.hold((4, 0), 2, never));
        assert!(held.hold((0, 3), 2, never));
        assert!(!held.hold((1, 1), 2, || 0));
        assert!(held.hold((4, 0), 2, never));
        assert!(!held.hold((0, 3), 2, || 1));
        assert!(held.hold((1, 1), 2, never));
    }
}
