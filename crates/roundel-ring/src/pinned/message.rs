//! The kinds of elements of a pinned ring, as their notes say. Here each field that comes from the network is checked.

use super::QueryId;

/// Bytes of the notes of an element.
pub(super) const NOTE_BYTES: usize = 32;
/// Most fragments of a host.
pub(super) const FRAGMENTS_MAX: u32 = 1 << 24;

/// What an element is, and what its payload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Rows: the fragment of this number, of so many that its origin has.
    Fragment { number: u32, of: u32 },
    /// Its origin has a query that needs what all others have: once more around, from wherever they are.
    Call,
    /// Bits of the rows that have had a partner at its origin: of a query, and a fragment of the host at this place.
    Matches {
        query: QueryId,
        place: u32,
        number: u32,
    },
    /// The query has come to an early end at its origin.
    Over { query: QueryId },
    /// Its origin has no query any more, and takes none; it may leave.
    Closing { leaves: bool },
    /// Rows of a host that leaves: the fragment of this number.
    Handover { number: u32 },
    /// There is nothing more of its origin.
    Last,
}

impl Message {
    pub(super) fn encode(self) -> [u8; NOTE_BYTES] {
        let no_query = QueryId(0);
        let (kind, one, other, query) = match self {
            Self::Fragment { number, of } => (1, number, of, no_query),
            Self::Call => (2, 0, 0, no_query),
            Self::Matches {
                query,
                place,
                number,
            } => (3, number, place, query),
            Self::Over { query } => (4, 0, 0, query),
            Self::Closing { leaves } => (5, u32::from(leaves), 0, no_query),
            Self::Handover { number } => (6, number, 0, no_query),
            Self::Last => (7, 0, 0, no_query),
        };
        let mut bytes = [0; NOTE_BYTES];
        for (at, word) in [kind, one, other].into_iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        bytes[16..].copy_from_slice(&query.0.to_le_bytes());
        bytes
    }

    /// Says what is wrong with notes that are none of these.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Ok(bytes) = <&[u8; NOTE_BYTES]>::try_from(bytes) else {
            return Err(format!(
                "{} bytes of notes instead of {NOTE_BYTES}",
                bytes.len()
            ));
        };
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let query = {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[16..]);
            QueryId(u128::from_le_bytes(id))
        };
        let (one, other) = (word(4), word(8));
        Ok(match word(0) {
            1 if one < other && other <= FRAGMENTS_MAX => Self::Fragment {
                number: one,
                of: other,
            },
            1 => return Err(format!("fragment {one} of {other}")),
            2 => Self::Call,
            3 => Self::Matches {
                query,
                place: other,
                number: one,
            },
            4 => Self::Over { query },
            5 => Self::Closing { leaves: one != 0 },
            6 => Self::Handover { number: one },
            7 => Self::Last,
            kind => return Err(format!("an element of kind {kind}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Message> {
        let query = any::<u128>().prop_map(QueryId);
        prop_oneof![
            (0..FRAGMENTS_MAX, 1..=FRAGMENTS_MAX).prop_map(|(number, of)| Message::Fragment {
                number: number % of,
                of
            }),
            Just(Message::Call),
            (query.clone(), any::<u32>(), any::<u32>()).prop_map(|(query, place, number)| {
                Message::Matches {
                    query,
                    place,
                    number,
                }
            }),
            query.prop_map(|query| Message::Over { query }),
            any::<bool>().prop_map(|leaves| Message::Closing { leaves }),
            any::<u32>().prop_map(|number| Message::Handover { number }),
            Just(Message::Last),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in messages()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(Message::Fragment { number, of }) = Message::decode(&bytes) {
                prop_assert!(number < of && of <= FRAGMENTS_MAX);
            }
        }
    }
}
