//! The receive ring of a reliable connection: one owner posts, one peer completes.
//!
//! ```text
//!   owner:  fill slot → posted += 1 ─────────────► peer:  posted > taken? read slot, copy message,
//!   owner:  taken > polled? read slot ◄─────────── peer:  fill result → taken += 1
//! ```
//!
//! A slot is the owner's until `posted` passes it, the peer's until `taken` passes it, then the
//! owner's again. The peer brackets whatever it does to the owner's memory with
//! [`enter`] and [`leave`], so that the owner can break the connection off and know
//! when nobody writes any more: both flags are sequentially consistent, hence either the peer sees
//! the broken state, or the owner sees the peer inside.

use super::layout::{PAIR_READY, PairEntry, SlotEntry};
use super::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

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
    super::sync::fence(SeqCst);
    pair.peer_waiting.load(Relaxed) == 1 && pair.peer_waiting.swap(0, AcqRel) == 1
}

/// Owner: the completion of receive number `sequence`, if it is there.
pub(super) fn poll(pair: &PairEntry, slots: &[SlotEntry], sequence: u64) -> Option<Completed> {
    if pair.taken.load(Acquire) <= sequence {
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
    pair.peer_waiting.store(1, Relaxed);
    super::sync::fence(SeqCst);
}

/// Peer: completes receive number `sequence`.
pub(super) fn complete(
    pair: &PairEntry,
    slots: &[SlotEntry],
    sequence: u64,
    completed: Completed,
) {
    store_result(&slots[sequence as usize % slots.len()], completed);
    pair.taken.store(sequence + 1, Release);
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

/// Peer: begins an operation on the owner's memory. False when the connection is broken off; then
/// nothing may be touched.
pub(super) fn enter(pair: &PairEntry) -> bool {
    pair.peer_active.store(1, SeqCst);
    if pair.state.load(SeqCst) == PAIR_READY {
        return true;
    }
    leave(pair);
    false
}

/// Peer: ends it.
pub(super) fn leave(pair: &PairEntry) {
    pair.peer_active.store(0, Release);
}

/// Owner: after the state was set to something else than ready (sequentially consistent),
/// whether the peer is outside.
pub(super) fn quiescent(pair: &PairEntry) -> bool {
    pair.peer_active.load(SeqCst) == 0
}
