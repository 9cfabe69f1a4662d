//! The contexts of queue pairs that a NIC holds. It has room for so many, and drops any of them for another.

use super::packet::PairId;
use super::state::State;
use super::time::Span;
use rand::Rng as _;

/// For what a NIC needs a context: it has room for each apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Requester,
    Responder,
}

impl State {
    /// What it takes a NIC to have at hand what it sends a request with. A READ takes more than others, since the
    /// NIC comes back to it with the answer: where it held no context, or, on average, no longer holds the request
    /// then: it drops any of those that it holds for another.
    pub(super) fn at_hand(&mut self, id: PairId, read: bool) -> Span {
        let context = self.context(id, Side::Requester);
        let nic = &self.parameters.nic;
        let (held, sent) = (nic.reads as u64, self.nodes[id.node].nic.reads);
        context
            + match (read, sent.saturating_sub(held)) {
                (false, _) => Span::ZERO,
                (true, _) if context > Span::ZERO => nic.read_miss,
                (true, 0) => Span::ZERO,
                (true, missing) => Span::picos(nic.read_miss.as_picos() * missing / sent),
            }
    }

    /// What it takes a NIC to have a queue pair's context at hand.
    pub(super) fn context(&mut self, id: PairId, side: Side) -> Span {
        let (most, miss) = match side {
            Side::Requester => (
                self.parameters.nic.requesters,
                self.parameters.nic.requester_miss,
            ),
            Side::Responder => (
                self.parameters.nic.responders,
                self.parameters.nic.responder_miss,
            ),
        };
        let node = &mut self.nodes[id.node];
        let Some(Some(pair)) = node.pairs.get_mut(id.number as usize) else {
            return Span::ZERO;
        };
        let (held, place) = match side {
            Side::Requester => (&mut node.nic.requesters, &mut pair.requester),
            Side::Responder => (&mut node.nic.responders, &mut pair.responder),
        };
        if place.is_some_and(|at| held.get(at) == Some(&id.number)) {
            return Span::ZERO;
        }
        let at = match held.len() < most {
            true => {
                held.push(id.number);
                held.len() - 1
            }
            false => self.random.random_range(0..most),
        };
        held[at] = id.number;
        *place = Some(at);
        miss
    }
}
