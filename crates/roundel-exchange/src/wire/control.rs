//! What control messages say.

use strum::FromRepr;

/// How much a receiver allows a source to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Credit {
    /// Receives posted since the exchange began, modulo 2^32. Absolute, so that a lost, repeated
    /// or overtaken credit does no harm.
    pub credit: u32,
    /// Every message of the group with a lower sequence number has arrived. 0 where lost messages
    /// are not repaired.
    pub acknowledged: u64,
}

/// How much a source has sent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sent {
    /// Data messages on the link.
    pub on_link: u64,
    /// Data messages to the group.
    pub to_group: u64,
}

/// Messages of a group that a receiver misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Missing {
    /// The first of them.
    pub first: u64,
    /// Bit `i` is 1 when message `first + i` is missing; bit 0 is 1.
    pub bitmap: u64,
}

/// How far a multiplexer is in the schedule of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Phase {
    /// Number of the phase, counted since the schedule began.
    pub number: u64,
    /// What of it.
    pub step: Step,
}

/// See [`Phase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr)]
#[repr(u64)]
pub enum Step {
    /// It has done with all phases below.
    Done = 0,
    /// It takes part from now on, and is at the phase.
    In = 1,
    /// It has nothing to send and takes no part until it says so.
    Out = 2,
    /// The one that has just come is behind: others are at the phase.
    At = 3,
}

/// Which way multiplexers send rows, by a schedule or without, and what a node got by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trial {
    /// How often all have changed from one way to the other; by a schedule where that is odd.
    pub number: u64,
    /// How well rows leave the node that way, in bytes per second; 0 where it does not say.
    pub rate: u64,
    /// Rows wait for all peers, more of which there are than messages for each may wait.
    pub crowded: bool,
}

impl Missing {
    /// Sequence numbers that one message can tell of: those from `first` on.
    pub const SPAN: u64 = u64::BITS as u64;

    /// The sequence numbers, in order.
    pub fn sequences(self) -> impl Iterator<Item = u64> {
        let set = (0..Self::SPAN).filter(move |bit| self.bitmap >> bit & 1 == 1);
        set.filter_map(move |bit| self.first.checked_add(bit))
    }
}
