//! The receive ring of a reliable connection: one owner posts, one peer completes.
//!
//! ```text
//!   owner:  fill slot → posted += 1 ─────────────► peer:  posted > taken? read slot, copy message,
//!   owner:  taken > polled? read slot ◄─────────── peer:  fill result → taken += 1
//! ```
//!
//! A slot is the owner's until `posted` passes it, the peer's until `taken` passes it, then the
//! owner's again. The peer brackets whatever it does to the owner's memory with [`enter`] and
//! [`leave`], so that the owner can break the connection off and know when nobody writes any
//! more: between the write of its own word and the look at the other's each side has a
//! sequentially consistent fence, hence either the peer sees the broken state, or the owner sees
//! the peer inside. The same bracket protects exposed memory that is deregistered.

use super::layout::{PAIR_READY, PairEntry, SlotEntry, life};
use super::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use super::sync::fence;

/// A receive as posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posted {
    pub at: u64,
    pub length: u32,
}

/// A message as completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Completed {
    pub bytes: u32,
    pub immediate: u32,
    pub flags: u32,
    pub source_pair: u32,
}

/// Owner: makes an empty ring.
pub(super) fn reset(pair: &PairEntry) {
    pair.posted.store(0, Relaxed);
    pair.peers.taken.store(0, Relaxed);
    pair.peers.waiting.store(0, Relaxed);
}

/// Owner: publishes receive number `sequence` (counted from 0). The caller keeps
/// `sequence - polled` below the ring's slots.
pub(super) fn post(pair: &PairEntry, slots: &[SlotEntry], sequence: u64, posted: Posted) {
    let slot = &slots[sequence as usize % slots.len()];
    slot.at.store(posted.at, Relaxed);
    slot.length.store(posted.length, Relaxed);
    pair.posted.store(sequence + 1, Release);
}

/// Owner: after posting, whether the peer waits for it and wants to be woken. The flag is taken.
pub(super) fn take_waiting(pair: &PairEntry) -> bool {
    // Pairs with the fence in `announce_waiting`: either we see the flag here or the peer sees
    // what was posted.
    fence(SeqCst);
    pair.peers.waiting.load(Relaxed) == 1 && pair.peers.waiting.swap(0, AcqRel) == 1
}

/// Owner: the completion of receive number `sequence`, if it is there.
pub(super) fn poll(pair: &PairEntry, slots: &[SlotEntry], sequence: u64) -> Option<Completed> {
    if pair.peers.taken.load(Acquire) <= sequence {
        return None;
    }
    Some(result(&slots[sequence as usize % slots.len()]))
}

/// Peer: receive number `sequence`, if it is posted.
pub(super) fn next(pair: &PairEntry, slots: &[SlotEntry], sequence: u64) -> Option<Posted> {
    if pair.posted.load(Acquire) <= sequence {
        return None;
    }
    let slot = &slots[sequence as usize % slots.len()];
    Some(Posted {
        at: slot.at.load(Relaxed),
        length: slot.length.load(Relaxed),
    })
}

/// Peer: tells the owner that it waits for a receive. Look once more afterwards.
pub(super) fn announce_waiting(pair: &PairEntry) {
    pair.peers.waiting.store(1, Relaxed);
    fence(SeqCst);
}

/// Peer: completes receive number `sequence`.
pub(super) fn complete(pair: &PairEntry, slots: &[SlotEntry], sequence: u64, completed: Completed) {
    store_result(&slots[sequence as usize % slots.len()], completed);
    pair.peers.taken.store(sequence + 1, Release);
}

pub(super) fn store_result(slot: &SlotEntry, completed: Completed) {
    slot.bytes.store(completed.bytes, Relaxed);
    slot.immediate.store(completed.immediate, Relaxed);
    slot.flags.store(completed.flags, Relaxed);
    slot.source_pair.store(completed.source_pair, Relaxed);
}

pub(super) fn result(slot: &SlotEntry) -> Completed {
    Completed {
        bytes: slot.bytes.load(Relaxed),
        immediate: slot.immediate.load(Relaxed),
        flags: slot.flags.load(Relaxed),
        source_pair: slot.source_pair.load(Relaxed),
    }
}

/// Peer: begins an operation on the owner's memory. `own` is the peer's own entry and `visit` its
/// count of operations so far, of which it keeps the truth in private. False when the owner's
/// queue pair is not ready in that incarnation; then nothing may be touched.
pub(super) fn enter(own: &PairEntry, visit: u64, owner: &PairEntry, incarnation: u32) -> bool {
    own.inside.store(2 * visit + 1, Release);
    fence(SeqCst);
    if owner.life.load(Acquire) == life(incarnation, PAIR_READY) {
        return true;
    }
    leave(own, visit);
    false
}

/// Peer: ends it.
pub(super) fn leave(own: &PairEntry, visit: u64) {
    own.inside.store(2 * visit + 2, Release);
}

/// Owner: takes its queue pair from being ready to another state. [`inside`] tells afterwards
/// whether the peer has noticed.
pub(super) fn close(pair: &PairEntry, incarnation: u32, state: u32) {
    pair.life.store(life(incarnation, state), Release);
    fence(SeqCst);
}

/// Owner: which operation the queue pair of `peer`'s entry is inside of, after a fence that
/// follows whatever forbade it to enter. `None` when it is outside, or was destroyed, which it
/// only is outside.
pub(super) fn inside(peer: &PairEntry, incarnation: u32) -> Option<u64> {
    let inside = peer.inside.load(Acquire);
    let same = (peer.life.load(Acquire) >> 32) == u64::from(incarnation);
    (same && inside % 2 == 1).then_some(inside)
}
