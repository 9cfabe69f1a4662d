//! The bytes that a test sends, without an allocation per message, and the pattern that they make.

use roundel_verbs::work::InlineBytes;
use roundel_verbs::{AddressHandle, Buffer, Payload, SendOperation, SendRequest, SharedBuffer};

/// Where the payloads of one end come from.
pub(super) enum Payloads {
    /// A copy in each work request.
    Inline {
        /// What is copied.
        bytes: Vec<u8>,
    },
    /// One buffer for all.
    Shared {
        /// The buffer.
        buffer: SharedBuffer,
        /// Bytes in use.
        length: usize,
    },
    /// A buffer for each, because something is written into them.
    Owned {
        /// Those that are not in flight, the one used last on top: its bytes are in the cache.
        free: Vec<Buffer>,
        /// Bytes in use.
        length: usize,
    },
}

impl Payloads {
    /// Appends a request that sends the next message; not when all buffers are in flight. It is
    /// made in place: requests are large, and copying them costs as much as posting them.
    pub(super) fn append_request(
        &mut self,
        requests: &mut Vec<SendRequest>,
        id: u64,
        operation: SendOperation,
        destination: Option<&AddressHandle>,
    ) {
        let destination = destination.cloned();
        match self {
            Self::Inline { bytes } => {
                if let Some(bytes) = InlineBytes::new(bytes) {
                    requests.push(SendRequest {
                        id,
                        operation,
                        payload: Payload::Inline(bytes),
                        destination,
                    });
                }
            }
            Self::Shared { buffer, length } => requests.push(SendRequest {
                id,
                operation,
                payload: Payload::Shared {
                    buffer: buffer.clone(),
                    length: *length,
                },
                destination,
            }),
            Self::Owned { free, length } => {
                if let Some(buffer) = free.pop() {
                    requests.push(SendRequest {
                        id,
                        operation,
                        payload: Payload::Owned {
                            buffer,
                            length: *length,
                        },
                        destination,
                    });
                }
            }
        }
    }

    /// Sets the last byte of the next message. Of shared buffers it stays as it is.
    pub(super) fn mark(&mut self, mark: u8) {
        match self {
            Self::Inline { bytes } => {
                if let Some(last) = bytes.last_mut() {
                    *last = mark;
                }
            }
            Self::Owned { free, length } => {
                if let Some(buffer) = free.last_mut() {
                    buffer.write(*length - 1, &[mark]);
                }
            }
            Self::Shared { .. } => {}
        }
    }

    /// Takes a buffer back.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        if let Self::Owned { free, .. } = self {
            free.push(buffer);
        }
    }
}

/// Fills bytes with a pattern that differs from seed to seed.
pub(super) fn fill(seed: u64, bytes: &mut [u8]) {
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&word(seed, index).to_le_bytes()[..chunk.len()]);
    }
}

/// The first byte that is not the expected one. A message of another size is wrong from its first byte on.
pub(super) fn first_difference(expected: &[u8], bytes: &[u8]) -> Option<usize> {
    match bytes.len() == expected.len() {
        true => (0..bytes.len()).find(|at| bytes[*at] != expected[*at]),
        false => Some(0),
    }
}

/// The pattern's 64-bit word of this index: neighbours have nothing in common.
pub(super) fn word(seed: u64, index: usize) -> u64 {
    // SplitMix64, of a state in which seeds lie far apart.
    let mut word = seed
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_wrong_byte_is_found(
            seed: u64,
            length in 1usize..200,
            at: prop::sample::Index,
            change in 1u8..,
        ) {
            let mut bytes = vec![0; length];
            fill(seed, &mut bytes);
            let expected = bytes.clone();
            prop_assert_eq!(first_difference(&expected, &bytes), None);
            prop_assert_eq!(first_difference(&expected[1..], &bytes), Some(0));
            let at = at.index(length);
            bytes[at] ^= change;
            prop_assert_eq!(first_difference(&expected, &bytes), Some(at));
        }
    }

    #[test]
    fn patterns_of_other_seeds_differ() {
        let [mut bytes, mut others] = [[0; 8]; 2];
        fill(7, &mut bytes);
        fill(8, &mut others);
        assert_ne!(bytes, others);
        assert_ne!(word(7, 1), word(8, 0));
    }
}
