//! What travels on a connection: frames of a fixed header, some with a payload behind it. Knows
//! nothing of sockets and queue pairs. Any bytes decode to a frame or to nothing; whether its
//! numbers make sense is for those to check who know what they name.

use super::address::array;
use crate::memory::RemoteAddress;
use crate::work::CompletionStatus;

/// Bytes of every header.
pub(super) const HEADER_BYTES: usize = 40;

const SEND: u8 = 1;
const WRITE: u8 = 2;
const READ: u8 = 3;
const COMPARE_AND_SWAP: u8 = 4;
const FETCH_AND_ADD: u8 = 5;
const ACKNOWLEDGE: u8 = 16;
const READ_RESPONSE: u8 = 17;
const ATOMIC_RESPONSE: u8 = 18;
const REFUSE: u8 = 19;
const GONE: u8 = 20;

/// In the flags: there is immediate data.
const IMMEDIATE: u8 = 1;

/// A header. Requests have no sequence number: they are counted, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A message; `length` bytes follow.
    Send { length: u32, immediate: Option<u32> },
    /// A WRITE; `length` bytes follow.
    Write {
        at: RemoteAddress,
        length: u32,
        immediate: Option<u32>,
    },
    /// A READ of `length` bytes.
    Read { at: RemoteAddress, length: u32 },
    /// A compare-and-swap.
    CompareAndSwap {
        at: RemoteAddress,
        compare: u64,
        swap: u64,
    },
    /// A fetch-and-add.
    FetchAndAdd { at: RemoteAddress, add: u64 },
    /// The first `done` requests were carried out; `posted` receives have been posted so far.
    Acknowledge { done: u64, posted: u64 },
    /// The answer to READ `sequence`; `length` bytes follow.
    ReadResponse { sequence: u64, length: u32 },
    /// The answer to atomic `sequence`: the word as it was.
    AtomicResponse { sequence: u64, word: u64 },
    /// Request `sequence` failed, and the sender of this frame is broken.
    Refuse { sequence: u64, refusal: Refusal },
    /// The queue pair is not ready any more: the last frame of a connection.
    Gone,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The receive was too small.
    Invalid,
    /// The remote key, the range or the rights do not allow the access.
    Access,
    /// The receive could not be used.
    Operation,
}

impl Refusal {
    /// How the request ends.
    pub(super) fn status(self) -> CompletionStatus {
        match self {
            Self::Invalid => CompletionStatus::RemoteInvalidRequest,
            Self::Access => CompletionStatus::RemoteAccess,
            Self::Operation => CompletionStatus::RemoteOperation,
        }
    }
}

/// The fields of a header as they lie in it, little-endian: kind, flags, refusal, zero, immediate,
/// length, key, address, and two words.
#[derive(Default)]
struct Fields {
    kind: u8,
    flags: u8,
    refusal: u8,
    immediate: u32,
    length: u32,
    key: u32,
    address: u64,
    first: u64,
    second: u64,
}

impl Fields {
    fn of(kind: u8) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    fn at(self, at: RemoteAddress) -> Self {
        Self {
            key: at.remote_key,
            address: at.address,
            ..self
        }
    }

    fn immediate(self, immediate: Option<u32>) -> Self {
        Self {
            flags: if immediate.is_some() { IMMEDIATE } else { 0 },
            immediate: immediate.unwrap_or(0),
            ..self
        }
    }

    fn words(self, first: u64, second: u64) -> Self {
        Self {
            first,
            second,
            ..self
        }
    }
}

impl Frame {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let fields = match *self {
            Self::Send { length, immediate } => Fields {
                length,
                ..Fields::of(SEND).immediate(immediate)
            },
            Self::Write {
                at,
                length,
                immediate,
            } => Fields {
                length,
                ..Fields::of(WRITE).at(at).immediate(immediate)
            },
            Self::Read { at, length } => Fields {
                length,
                ..Fields::of(READ).at(at)
            },
            Self::CompareAndSwap { at, compare, swap } => {
                Fields::of(COMPARE_AND_SWAP).at(at).words(compare, swap)
            }
            Self::FetchAndAdd { at, add } => Fields::of(FETCH_AND_ADD).at(at).words(add, 0),
            Self::Acknowledge { done, posted } => Fields::of(ACKNOWLEDGE).words(done, posted),
            Self::ReadResponse { sequence, length } => Fields {
                length,
                ..Fields::of(READ_RESPONSE).words(sequence, 0)
            },
            Self::AtomicResponse { sequence, word } => {
                Fields::of(ATOMIC_RESPONSE).words(sequence, word)
            }
            Self::Refuse { sequence, refusal } => Fields {
                refusal: match refusal {
                    Refusal::Invalid => 1,
                    Refusal::Access => 2,
                    Refusal::Operation => 3,
                },
                ..Fields::of(REFUSE).words(sequence, 0)
            },
            Self::Gone => Fields::of(GONE),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = fields.kind;
        bytes[1] = fields.flags;
        bytes[2] = fields.refusal;
        bytes[4..8].copy_from_slice(&fields.immediate.to_le_bytes());
        bytes[8..12].copy_from_slice(&fields.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&fields.key.to_le_bytes());
        bytes[16..24].copy_from_slice(&fields.address.to_le_bytes());
        bytes[24..32].copy_from_slice(&fields.first.to_le_bytes());
        bytes[32..40].copy_from_slice(&fields.second.to_le_bytes());
        bytes
    }

    /// The frame of a header; `None` when there is none like it.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at| u32::from_le_bytes(array(bytes, at));
        let long = |at| u64::from_le_bytes(array(bytes, at));
        let (length, first, second) = (word(8), long(24), long(32));
        let at = RemoteAddress {
            address: long(16),
            remote_key: word(12),
        };
        let immediate = (bytes[1] & IMMEDIATE != 0).then(|| word(4));
        Some(match bytes[0] {
            SEND => Self::Send { length, immediate },
            WRITE => Self::Write {
                at,
                length,
                immediate,
            },
            READ => Self::Read { at, length },
            COMPARE_AND_SWAP => Self::CompareAndSwap {
                at,
                compare: first,
                swap: second,
            },
            FETCH_AND_ADD => Self::FetchAndAdd { at, add: first },
            ACKNOWLEDGE => Self::Acknowledge {
                done: first,
                posted: second,
            },
            READ_RESPONSE => Self::ReadResponse {
                sequence: first,
                length,
            },
            ATOMIC_RESPONSE => Self::AtomicResponse {
                sequence: first,
                word: second,
            },
            REFUSE => Self::Refuse {
                sequence: first,
                refusal: match bytes[2] {
                    1 => Refusal::Invalid,
                    2 => Refusal::Access,
                    3 => Refusal::Operation,
                    _ => return None,
                },
            },
            GONE => Self::Gone,
            _ => return None,
        })
    }

    /// Bytes behind the header.
    pub(super) fn payload(&self) -> usize {
        match *self {
            Self::Send { length, .. }
            | Self::Write { length, .. }
            | Self::ReadResponse { length, .. } => length as usize,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at() -> impl Strategy<Value = RemoteAddress> {
        any::<(u64, u32)>().prop_map(|(address, remote_key)| RemoteAddress {
            address,
            remote_key,
        })
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let immediate = any::<Option<u32>>;
        prop_oneof![
            (any::<u32>(), immediate())
                .prop_map(|(length, immediate)| Frame::Send { length, immediate }),
            (at(), any::<u32>(), immediate()).prop_map(|(at, length, immediate)| Frame::Write {
                at,
                length,
                immediate
            }),
            (at(), any::<u32>()).prop_map(|(at, length)| Frame::Read { at, length }),
            (at(), any::<u64>(), any::<u64>())
                .prop_map(|(at, compare, swap)| Frame::CompareAndSwap { at, compare, swap }),
            (at(), any::<u64>()).prop_map(|(at, add)| Frame::FetchAndAdd { at, add }),
            any::<(u64, u64)>().prop_map(|(done, posted)| Frame::Acknowledge { done, posted }),
            any::<(u64, u32)>()
                .prop_map(|(sequence, length)| Frame::ReadResponse { sequence, length }),
            any::<(u64, u64)>()
                .prop_map(|(sequence, word)| Frame::AtomicResponse { sequence, word }),
            (
                any::<u64>(),
                prop_oneof![
                    Just(Refusal::Invalid),
                    Just(Refusal::Access),
                    Just(Refusal::Operation)
                ]
            )
                .prop_map(|(sequence, refusal)| Frame::Refuse { sequence, refusal }),
            Just(Frame::Gone),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(frame in frame()) {
            prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }

        #[test]
        fn any_bytes_are_a_frame_or_nothing(kind in 0u8..24, rest in any::<[u8; HEADER_BYTES]>()) {
            let mut bytes = rest;
            bytes[0] = kind;
            if let Some(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
            }
        }
    }
}
