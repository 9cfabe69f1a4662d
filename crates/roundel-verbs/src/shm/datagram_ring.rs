//! The receive ring of a datagram queue pair: one owner posts, any peer claims and completes.
//!
//! Each slot has a claim word that says who may touch it; the word names the queue pair's
//! incarnation and the receive's sequence number, so that a stale peer can never claim a slot of
//! a later life of the ring:
//!
//! ```text
//!   [ incarnation:20 | phase:2 | sequence:20 | token:22 ]
//!   owner: POSTED(sequence) ──► peer: CLAIMED(sequence, token) ──► peer: DONE(sequence)
//!     ▲                            │ token's process died: the owner takes it back
//!     └────────── owner polls, in any order ◄──────────────────────────────┘
//! ```
//!
//! `taken` is a cursor over the slots, moved by whoever finds its slot claimed: a peer that dies
//! after its claim and before it moves the cursor holds nobody up. A peer that dies inside a slot
//! costs that one receive, which the owner gets back once it knows of the death.

use super::connected_ring::{Completed, Posted, result, store_result};
use super::layout::{PairEntry, SlotEntry};
use super::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

const POSTED: u64 = 1;
const CLAIMED: u64 = 2;
const DONE: u64 = 3;

const SEQUENCE_BITS: u32 = 20;
const TOKEN_BITS: u32 = 22;
const CURSOR_BITS: u32 = 44;
/// Incarnations are told apart modulo this.
pub(super) const INCARNATIONS: u32 = 1 << 20;
/// Tokens are below this.
pub(super) const TOKENS: u32 = 1 << TOKEN_BITS;

fn word(incarnation: u32, phase: u64, sequence: u64, token: u32) -> u64 {
    u64::from(incarnation % INCARNATIONS) << CURSOR_BITS
        | phase << (SEQUENCE_BITS + TOKEN_BITS)
        | (sequence % (1 << SEQUENCE_BITS)) << TOKEN_BITS
        | u64::from(token % TOKENS)
}

fn cursor(incarnation: u32, sequence: u64) -> u64 {
    (u64::from(incarnation % INCARNATIONS) << CURSOR_BITS) | (sequence % (1 << CURSOR_BITS))
}

/// Owner: makes an empty ring.
pub(super) fn reset(pair: &PairEntry, incarnation: u32) {
    pair.posted.store(0, Relaxed);
    pair.peers.taken.store(cursor(incarnation, 0), Relaxed);
}

/// Owner: publishes receive number `sequence`. The caller makes sure that the slot's last receive
/// has been polled. Sequence numbers may be left out, for slots that are not free: claimers pass
/// them by.
pub(super) fn post(
    pair: &PairEntry,
    slots: &[SlotEntry],
    incarnation: u32,
    sequence: u64,
    posted: Posted,
) {
    let slot = &slots[sequence as usize % slots.len()];
    slot.at.store(posted.at, Relaxed);
    slot.length.store(posted.length, Relaxed);
    slot.claim
        .store(word(incarnation, POSTED, sequence, 0), Release);
    pair.posted.store(sequence + 1, Release);
}

/// A slot as its owner finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Nobody has claimed it.
    Posted,
    /// The peer with this token is at work in it.
    Claimed(u32),
    /// There is a message.
    Done(Completed),
}

/// Owner: looks at receive number `sequence`.
pub(super) fn look(slots: &[SlotEntry], incarnation: u32, sequence: u64) -> Slot {
    let slot = &slots[sequence as usize % slots.len()];
    let claim = slot.claim.load(Acquire);
    if claim == word(incarnation, DONE, sequence, 0) {
        Slot::Done(result(slot))
    } else if claim == word(incarnation, POSTED, sequence, 0) {
        Slot::Posted
    } else {
        Slot::Claimed((claim % u64::from(TOKENS)) as u32)
    }
}

/// Owner: takes an unclaimed receive back, so that nobody can claim it any more. False when a
/// peer was faster.
pub(super) fn revoke(slots: &[SlotEntry], incarnation: u32, sequence: u64) -> bool {
    let slot = &slots[sequence as usize % slots.len()];
    let posted = word(incarnation, POSTED, sequence, 0);
    slot.claim
        .compare_exchange(posted, 0, AcqRel, Acquire)
        .is_ok()
}

/// Peer: claims the next posted receive; `None` when there is none, and the datagram is dropped.
pub(super) fn claim(
    pair: &PairEntry,
    slots: &[SlotEntry],
    incarnation: u32,
    token: u32,
) -> Option<(u64, Posted)> {
    loop {
        let taken = pair.peers.taken.load(Acquire);
        if taken >> CURSOR_BITS != u64::from(incarnation % INCARNATIONS) {
            return None;
        }
        let sequence = taken % (1 << CURSOR_BITS);
        if pair.posted.load(Acquire) <= sequence {
            return None;
        }
        let slot = &slots[sequence as usize % slots.len()];
        let claimed = slot.claim.compare_exchange(
            word(incarnation, POSTED, sequence, 0),
            word(incarnation, CLAIMED, sequence, token),
            AcqRel,
            Acquire,
        );
        // Moved by the claimer or by whoever finds it behind: see the module's text.
        let _ = pair.peers.taken.compare_exchange(
            taken,
            cursor(incarnation, sequence + 1),
            AcqRel,
            Relaxed,
        );
        if claimed.is_ok() {
            let posted = Posted {
                at: slot.at.load(Relaxed),
                length: slot.length.load(Relaxed),
            };
            return Some((sequence, posted));
        }
    }
}

/// Peer: completes a claimed receive.
pub(super) fn complete(slots: &[SlotEntry], incarnation: u32, sequence: u64, completed: Completed) {
    let slot = &slots[sequence as usize % slots.len()];
    store_result(slot, completed);
    slot.claim
        .store(word(incarnation, DONE, sequence, 0), Release);
}

/// Peer: claims receive number `sequence` and dies before it moves the cursor.
#[cfg(all(test, roundel_loom))]
pub(super) fn claim_and_stop(
    slots: &[SlotEntry],
    incarnation: u32,
    sequence: u64,
    token: u32,
) -> bool {
    let slot = &slots[sequence as usize % slots.len()];
    slot.claim
        .compare_exchange(
            word(incarnation, POSTED, sequence, 0),
            word(incarnation, CLAIMED, sequence, token),
            AcqRel,
            Acquire,
        )
        .is_ok()
}
