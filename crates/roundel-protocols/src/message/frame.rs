//! What a message has around its payload. It comes from outside: whoever reads it checks what it says.
//!
//! ```text
//!   payload (length)  [ connection (4)  checksum (4) ]  length (3)  kind (1)  sequence (3)  marker (1)
//!                       where messages may be lost       the trailer, little endian
//! ```
//!
//! The trailer comes last, and its last byte is the marker: a message that is written into a slot ends where the
//! slot ends, so that the marker has one place whatever the length. A WRITE shows its last byte last; when the
//! marker is that of the lap that is waited for, all of the message is there. The paper has a marker after the
//! length and one after the payload, and zeroes both (section 3); with one place for it, one word is looked at,
//! and zeroed.

use crate::end::EndOptions;
use crate::error::{ProtocolError, Result};
use crate::protocol::{Protocol, Way};
use roundel_verbs::{Capabilities, Transport};
use std::hash::Hasher as _;
use twox_hash::XxHash64;

/// Bytes of the trailer.
pub(crate) const TRAILER_BYTES: usize = 8;
/// Bytes of connection and checksum.
const GUARD_BYTES: usize = 8;
/// Most bytes of a payload: lengths have 24 bits.
pub(crate) const PAYLOAD_BYTES_MAX: usize = (1 << 24) - 1;
/// Sequence numbers on the wire have so many bits.
const SEQUENCE_BITS: u32 = 24;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
/// Most messages under way on a connection, so that sequence numbers on the wire stay unique, also of those that
/// come late.
pub(crate) const SLOTS_MAX: usize = 1 << 16;

impl Protocol {
    /// Most bytes of a request, and of a response, on a device.
    pub fn bytes_max(self, device: &Capabilities) -> (usize, usize) {
        let most = |way: Option<Way>| match way {
            Some(way) if way.transport == Transport::UnreliableDatagram => {
                device.ud_message_bytes_max - overhead(way)
            }
            Some(way) => PAYLOAD_BYTES_MAX.min(device.rc_message_bytes_max) - overhead(way),
            None => PAYLOAD_BYTES_MAX.min(device.rc_message_bytes_max),
        };
        (most(self.requests()), most(self.responses()))
    }
}

impl EndOptions {
    /// Checks how many calls may be pending, and whether a device carries the protocol and messages of these sizes.
    pub(crate) fn check(&self, device: &Capabilities) -> Result<()> {
        let protocol = self.protocol;
        protocol.check(device)?;
        let most = protocol.bytes_max(device);
        let wrong = if self.pending == 0 || self.pending > SLOTS_MAX {
            format!(
                "{} calls pending on a connection: there are 1 to {SLOTS_MAX}",
                self.pending
            )
        } else if self.request_bytes > most.0 {
            format!(
                "requests of {} bytes: with {protocol} they have at most {}",
                self.request_bytes, most.0
            )
        } else if self.response_bytes > most.1 {
            format!(
                "responses of {} bytes: with {protocol} they have at most {}",
                self.response_bytes, most.1
            )
        } else {
            return Ok(());
        };
        Err(ProtocolError::Unsupported(wrong))
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request, or its answer.
    Plain,
    /// The responder refuses; the payload says why, in UTF-8.
    Refusal,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Plain),
            1 => Some(Self::Refusal),
            _ => None,
        }
    }
}

/// The end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Bytes of the payload.
    pub length: usize,
    pub kind: Kind,
    /// Number of the message on its connection, from 0, as far as the wire has it.
    pub sequence: u32,
    pub marker: u8,
}

impl Trailer {
    /// Of the message with this number, among so many slots.
    pub(crate) fn new(length: usize, kind: Kind, sequence: u64, slots: usize) -> Self {
        Self {
            length,
            kind,
            sequence: (sequence & SEQUENCE_MASK) as u32,
            marker: marker(sequence, slots),
        }
    }

    pub(crate) fn to_word(self) -> u64 {
        let (length, kind) = (self.length as u64, self.kind as u64);
        let (sequence, marker) = (u64::from(self.sequence), u64::from(self.marker));
        length | kind << 24 | sequence << 32 | marker << 56
    }

    /// Nothing when it cannot be.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        Some(Self {
            length: (word & PAYLOAD_BYTES_MAX as u64) as usize,
            kind: Kind::of((word >> 24) as u8)?,
            sequence: ((word >> 32) & SEQUENCE_MASK) as u32,
            marker: (word >> 56) as u8,
        })
    }

    /// Whether it is that of the message with this number.
    pub(crate) fn is_of(&self, sequence: u64, slots: usize) -> bool {
        self.marker == marker(sequence, slots)
            && u64::from(self.sequence) == sequence & SEQUENCE_MASK
    }
}

/// The last byte of a message: never 0, and another one in the next lap over the slots.
fn marker(sequence: u64, slots: usize) -> u8 {
    (sequence / slots as u64 % 255) as u8 + 1
}

/// The marker in a trailer word.
pub(crate) fn marker_of(word: u64) -> u8 {
    (word >> 56) as u8
}

/// Whether a word in memory may be the trailer of the message with this number.
pub(crate) fn is_marked(word: u64, sequence: u64, slots: usize) -> bool {
    marker_of(word) == marker(sequence, slots)
}

/// The whole number of a message of which the wire has the lower bits, when it is near one that is known.
pub(crate) fn sequence_near(known: u64, wire: u32) -> Option<u64> {
    let ahead = u64::from(wire).wrapping_sub(known) & SEQUENCE_MASK;
    match ahead <= SEQUENCE_MASK / 2 {
        true => known.checked_add(ahead),
        false => known.checked_sub(SEQUENCE_MASK + 1 - ahead),
    }
}

/// Bytes around a payload.
pub(crate) fn overhead(way: Way) -> usize {
    match way.is_lossy() {
        true => GUARD_BYTES + TRAILER_BYTES,
        false => TRAILER_BYTES,
    }
}

/// What guards a message that may be lost, and come late: the receiver's number of its connection, and what it
/// told to those that may write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub connection: u32,
    pub nonce: u64,
}

impl Guard {
    fn checksum(self, payload: &[u8], trailer: u64) -> u32 {
        let mut hasher = XxHash64::with_seed(self.nonce);
        hasher.write(payload);
        hasher.write(&self.connection.to_le_bytes());
        hasher.write(&trailer.to_le_bytes());
        hasher.finish() as u32
    }
}

/// What follows a payload.
pub(crate) struct Tail {
    bytes: [u8; GUARD_BYTES + TRAILER_BYTES],
    from: usize,
}

impl Tail {
    /// Of a payload with this trailer.
    pub(crate) fn new(payload: &[u8], trailer: Trailer, guard: Option<Guard>) -> Self {
        let word = trailer.to_word();
        let mut bytes = [0; GUARD_BYTES + TRAILER_BYTES];
        let mut from = GUARD_BYTES;
        if let Some(guard) = guard {
            from = 0;
            bytes[..4].copy_from_slice(&guard.connection.to_le_bytes());
            bytes[4..8].copy_from_slice(&guard.checksum(payload, word).to_le_bytes());
        }
        bytes[GUARD_BYTES..].copy_from_slice(&word.to_le_bytes());
        Self { bytes, from }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

/// The trailer of bytes that came, which are a message and nothing else, and the number of the connection that a
/// guarded one names. The checksum has not been looked at.
pub(crate) fn open(message: &[u8], way: Way) -> Option<(Trailer, Option<u32>)> {
    let (rest, word) = message.split_last_chunk::<TRAILER_BYTES>()?;
    let trailer = Trailer::from_word(u64::from_le_bytes(*word))?;
    let (payload, connection) = match way.is_lossy() {
        true => {
            let (payload, guard) = rest.split_last_chunk::<GUARD_BYTES>()?;
            let connection = guard.first_chunk::<4>()?;
            (payload, Some(u32::from_le_bytes(*connection)))
        }
        false => (rest, None),
    };
    (payload.len() == trailer.length).then_some((trailer, connection))
}

/// Whether the checksum of a guarded message is right. `message` has been [opened](open).
pub(crate) fn is_whole(message: &[u8], guard: Guard) -> bool {
    let Some((rest, word)) = message.split_last_chunk::<TRAILER_BYTES>() else {
        return false;
    };
    let Some((payload, theirs)) = rest.split_last_chunk::<GUARD_BYTES>() else {
        return false;
    };
    let [a, b, c, d, checksum @ ..] = *theirs;
    u32::from_le_bytes([a, b, c, d]) == guard.connection
        && u32::from_le_bytes(checksum) == guard.checksum(payload, u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GUARD: Guard = Guard {
        connection: 7,
        nonce: 0x1234_5678_9abc_def0,
    };

    fn ways() -> Vec<Way> {
        let ways = Protocol::ALL.map(|one| [one.requests(), one.responses()]);
        ways.into_iter().flatten().flatten().collect()
    }

    #[test]
    fn markers_are_never_zero_and_change_from_lap_to_lap() {
        for slots in [1, 2, 3, 128, 255, 256, SLOTS_MAX] {
            for sequence in (0..2000).chain(u64::MAX - 70_000..u64::MAX - 69_000) {
                let own = marker(sequence, slots);
                assert_ne!(own, 0);
                assert_ne!(own, marker(sequence + slots as u64, slots));
            }
        }
    }

    #[test]
    fn numbers_come_back_from_what_the_wire_has_of_them() {
        for known in [0, 1, 70_000, SEQUENCE_MASK, 1 << 40] {
            for away in [0, 1, 255, SLOTS_MAX as u64] {
                for number in [Some(known + away), known.checked_sub(away)] {
                    let Some(number) = number else { continue };
                    let wire = (number & SEQUENCE_MASK) as u32;
                    assert_eq!(sequence_near(known, wire), Some(number));
                }
            }
        }
        assert_eq!(
            sequence_near(3, SEQUENCE_MASK as u32),
            None,
            "before the first"
        );
    }

    proptest! {
        #[test]
        fn messages_come_back(
            payload in prop::collection::vec(any::<u8>(), 0..600),
            sequence in any::<u64>(),
            slots in 1..=SLOTS_MAX,
            refused in any::<bool>(),
        ) {
            for way in ways() {
                let guard = way.is_lossy().then_some(GUARD);
                let kind = if refused { Kind::Refusal } else { Kind::Plain };
                let trailer = Trailer::new(payload.len(), kind, sequence, slots);
                let message = [&payload, Tail::new(&payload, trailer, guard).as_slice()].concat();
                prop_assert_eq!(message.len(), payload.len() + overhead(way));
                let (trailer, connection) = open(&message, way).unwrap();
                prop_assert!(trailer.is_of(sequence, slots));
                prop_assert_eq!((trailer.length, trailer.kind), (payload.len(), kind));
                prop_assert_eq!(connection, guard.map(|guard| guard.connection));
                prop_assert!(guard.is_none_or(|guard| is_whole(&message, guard)));
            }
        }

        #[test]
        fn whatever_comes_is_read_or_refused(
            message in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            for way in ways() {
                if let Some((trailer, _)) = open(&message, way) {
                    prop_assert_eq!(trailer.length + overhead(way), message.len());
                }
                is_whole(&message, GUARD);
            }
        }

        #[test]
        fn a_guarded_message_that_was_changed_is_noticed(
            payload in prop::collection::vec(any::<u8>(), 0..100),
            at in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let trailer = Trailer::new(payload.len(), Kind::Plain, 9, 4);
            let mut message = [&payload, Tail::new(&payload, trailer, Some(GUARD)).as_slice()].concat();
            let at = at.index(message.len());
            message[at] ^= 1u8 << bit;
            prop_assert!(!is_whole(&message, GUARD));
            message[at] ^= 1u8 << bit;
            let other = Guard { nonce: 1, ..GUARD };
            prop_assert!(!is_whole(&message, other));
        }
    }
}
