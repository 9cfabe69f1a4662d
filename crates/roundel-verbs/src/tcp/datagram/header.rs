//! What a datagram begins with. Any bytes decode to a header or to nothing; whether it is meant for
//! a queue pair is for that to say.

use crate::tcp::address::array;

/// Bytes in front of a datagram's payload.
pub(super) const HEADER_BYTES: usize = 28;
const MAGIC: [u8; 3] = *b"rud";
/// Of this header.
const VERSION: u8 = 1;
/// What a datagram begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub number: u32,
    pub incarnation: u32,
    pub queue_key: u32,
    pub source: u32,
    pub immediate: Option<u32>,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        bytes[4] = u8::from(self.immediate.is_some());
        let words = [
            self.number,
            self.incarnation,
            self.queue_key,
            self.source,
            self.immediate.unwrap_or(0),
        ];
        for (place, word) in bytes[8..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at| u32::from_le_bytes(array(bytes, at));
        if bytes[..3] != MAGIC || bytes[3] != VERSION {
            return None;
        }
        Some(Self {
            number: word(8),
            incarnation: word(12),
            queue_key: word(16),
            source: word(20),
            immediate: (bytes[4] != 0).then(|| word(24)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_go_round(words: [u32; 4], immediate: Option<u32>) {
            let [number, incarnation, queue_key, source] = words;
            let header = Header { number, incarnation, queue_key, source, immediate };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        }

        #[test]
        fn any_bytes_are_a_header_or_nothing(bytes: [u8; HEADER_BYTES], head: bool) {
            let mut bytes = bytes;
            if head {
                bytes[..3].copy_from_slice(&MAGIC);
                bytes[3] = VERSION;
            }
            let _ = Header::decode(&bytes);
        }
    }
}
