//! The head of an element. Here each field that comes from the network is checked.

use super::Place;

/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 24;
/// Says that this is an element, of this version.
const MAGIC: u32 = u32::from_le_bytes(*b"rdl1");

/// The head of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The place that it comes from.
    pub origin: u16,
    /// How many hosts have passed it on, its origin included.
    pub hops: u16,
    /// Its number among those of its origin.
    pub sequence: u32,
    /// Whether it is the last of its origin.
    pub last: bool,
    /// Bytes of payload.
    pub payload: u32,
    /// Bytes of notes after them.
    pub notes: u32,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.origin.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.hops.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.last).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.payload.to_le_bytes());
        bytes[20..].copy_from_slice(&self.notes.to_le_bytes());
        bytes
    }

    /// The head of a message of so many bytes that came to `place`; says what is wrong with it otherwise.
    pub(super) fn decode(
        bytes: &[u8; HEAD_BYTES],
        length: usize,
        place: Place,
    ) -> Result<Self, String> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if word(0) != MAGIC {
            return Err("not an element of this version".into());
        }
        let head = Self {
            origin: half(4),
            hops: half(6),
            sequence: word(8),
            last: match word(12) {
                0 => false,
                1 => true,
                other => return Err(format!("flags {other:#x}")),
            },
            payload: word(16),
            notes: word(20),
        };
        let (origin, hops) = (usize::from(head.origin), usize::from(head.hops));
        if origin >= place.hosts || hops == 0 || hops >= place.hosts {
            return Err(format!("an element of host {origin} after {hops} hops"));
        }
        if (origin + hops) % place.hosts != place.number {
            return Err(format!(
                "an element of host {origin} that took {hops} hops to host {}",
                place.number
            ));
        }
        let told = HEAD_BYTES as u64 + u64::from(head.payload) + u64::from(head.notes);
        if told != length as u64 {
            return Err(format!(
                "an element of {told} bytes in a message of {length}"
            ));
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            hosts in 2..300usize, origin: usize, hops: usize, sequence: u32, last: bool,
            payload in 0..1u32 << 30, notes in 0..1u32 << 30
        ) {
            let (origin, hops) = (origin % hosts, 1 + hops % (hosts - 1));
            let head = Head { origin: origin as u16, hops: hops as u16, sequence, last, payload, notes };
            let place = Place { number: (origin + hops) % hosts, hosts };
            let length = HEAD_BYTES + (payload + notes) as usize;
            prop_assert_eq!(Head::decode(&head.encode(), length, place), Ok(head));
            prop_assert!(Head::decode(&head.encode(), length + 1, place).is_err());
            let elsewhere = Place { number: (place.number + 1) % hosts, hosts };
            prop_assert!(Head::decode(&head.encode(), length, elsewhere).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: [u8; HEAD_BYTES], length: usize, number in 0..4usize) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            if let Ok(head) = Head::decode(&bytes, length, Place { number, hosts: 4 }) {
                prop_assert!(usize::from(head.origin) < 4 && (1..4).contains(&head.hops));
            }
        }
    }
}
