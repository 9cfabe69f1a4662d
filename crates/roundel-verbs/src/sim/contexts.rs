//! The contexts of queue pairs that a NIC holds. It has room for so many, and drops any of them for another.

use super::packet::PairId;
use super::pair::Side;
use super::state::State;
use super::time::Span;
use rand::Rng as _;

impl State {
    /// What it takes a NIC to have at hand what it sends a request with. A READ takes more than others, since the
    /// NIC comes back to it with the answer: where it held no context, and, on average, where it no longer holds the
    /// request then: it drops any of those that it holds for another.
    pub(super) fn at_hand(&mut self, id: PairId, read: bool) -> Span {
        let context = self.context(id, Side::Requester);
        if !read {
            return context;
        }
        let nic = &self.parameters.nic;
        let (held, taken_up) = (nic.reads as u64, self.nodes[id.node].nic.reads);
        let again = match taken_up.saturating_sub(held) {
            0 => Span::ZERO,
            missing => Span::picos(nic.fetch.as_picos() * missing / taken_up),
        };
        let more = match context {
            Span::ZERO => Span::ZERO,
            _ => nic.read_miss,
        };
        context + more + again
    }

    /// What it takes a NIC to have a queue pair's context at hand.
    pub(super) fn context(&mut self, id: PairId, side: Side) -> Span {
        let nic = &self.parameters.nic;
        let most = nic.contexts;
        let miss = match side {
            Side::Requester => nic.requester_miss,
            Side::Responder => nic.responder_miss,
        };
        let node = &mut self.nodes[id.node];
        let Some(Some(pair)) = node.pairs.get_mut(id.number as usize) else {
            return Span::ZERO;
        };
        let held = &mut node.nic.contexts;
        let place = match side {
            Side::Requester => &mut pair.requester,
            Side::Responder => &mut pair.responder,
        };
        if place.is_some_and(|at| held.get(at) == Some(&(id.number, side))) {
            return Span::ZERO;
        }
        let at = match held.len() < most {
            true => {
                held.push((id.number, side));
                held.len() - 1
            }
            false => self.random.random_range(0..most),
        };
        held[at] = (id.number, side);
        *place = Some(at);
        miss
    }
}
