//! The first bytes of a connection: who calls, whom, and the answer. Fixed sizes, so that nobody
//! reads more than there is. Knows nothing of sockets.

use super::address::{Identity, VERSION, array};
use subtle::ConstantTimeEq;

/// Bytes of a hello, and of its answer.
pub(super) const HELLO_BYTES: usize = 88;
pub(super) const ANSWER_BYTES: usize = 40;

const HELLO_MAGIC: [u8; 8] = *b"rtcp-hi\n";
const ANSWER_MAGIC: [u8; 8] = *b"rtcp-re\n";

/// What the end that connects says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The secret of the device that is called.
    pub secret: [u8; 16],
    /// Which queue pair is called.
    pub number: u32,
    pub incarnation: u32,
    /// The queue pair that calls.
    pub from: Identity,
    /// Whether the connection is reliable (RC) or not (UC).
    pub reliable: bool,
    /// Receives that the caller has posted so far.
    pub posted: u64,
}

/// What the end that was called says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The secret of the device that called: that it was the right one who answers.
    pub secret: [u8; 16],
    pub verdict: Verdict,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the queue pairs' from now on; receives that the answerer has posted so far.
    Accepted { posted: u64 },
    /// There is no such queue pair, or it has another peer.
    Refused,
    /// Both have called: the answerer's call is the one that counts.
    Crossed,
}

/// Why a hello or an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// It is not of this protocol.
    Garbage,
    /// It is of another version.
    Version(u32),
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = u8::from(self.reliable);
        bytes[16..32].copy_from_slice(&self.secret);
        bytes[32..36].copy_from_slice(&self.number.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.from.device);
        bytes[56..60].copy_from_slice(&self.from.number.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.from.incarnation.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.posted.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Stranger> {
        let word = |at| u32::from_le_bytes(array(bytes, at));
        check(bytes, HELLO_MAGIC)?;
        Ok(Self {
            secret: array(bytes, 16),
            number: word(32),
            incarnation: word(36),
            from: Identity {
                device: array(bytes, 40),
                number: word(56),
                incarnation: word(60),
            },
            reliable: bytes[12] != 0,
            posted: u64::from_le_bytes(array(bytes, 64)),
        })
    }
}

impl Answer {
    pub(super) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..8].copy_from_slice(&ANSWER_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let (verdict, posted) = match self.verdict {
            Verdict::Accepted { posted } => (1, posted),
            Verdict::Refused => (2, 0),
            Verdict::Crossed => (3, 0),
        };
        bytes[12] = verdict;
        bytes[16..32].copy_from_slice(&self.secret);
        bytes[32..40].copy_from_slice(&posted.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ANSWER_BYTES]) -> Result<Self, Stranger> {
        check(bytes, ANSWER_MAGIC)?;
        Ok(Self {
            secret: array(bytes, 16),
            verdict: match bytes[12] {
                1 => Verdict::Accepted {
                    posted: u64::from_le_bytes(array(bytes, 32)),
                },
                2 => Verdict::Refused,
                3 => Verdict::Crossed,
                _ => return Err(Stranger::Garbage),
            },
        })
    }
}

fn check(bytes: &[u8], magic: [u8; 8]) -> Result<(), Stranger> {
    if array::<8>(bytes, 0) != magic {
        return Err(Stranger::Garbage);
    }
    match u32::from_le_bytes(array(bytes, 8)) {
        VERSION => Ok(()),
        other => Err(Stranger::Version(other)),
    }
}

/// Whether two secrets are equal, in a time that does not tell where they differ.
pub(super) fn same_secret(one: &[u8; 16], other: &[u8; 16]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hellos_go_round(secret: [u8; 16], device: [u8; 16], numbers: [u32; 4], reliable: bool, posted: u64) {
            let [number, incarnation, from, life] = numbers;
            let hello = Hello {
                secret,
                number,
                incarnation,
                from: Identity { device, number: from, incarnation: life },
                reliable,
                posted,
            };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            for verdict in [Verdict::Accepted { posted }, Verdict::Refused, Verdict::Crossed] {
                let answer = Answer { secret, verdict };
                prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
            }
        }

        #[test]
        fn any_bytes_are_a_hello_or_a_stranger(bytes in prop::collection::vec(any::<u8>(), HELLO_BYTES), head: bool) {
            let mut bytes: [u8; HELLO_BYTES] = bytes.try_into().unwrap();
            if head {
                bytes[..8].copy_from_slice(&HELLO_MAGIC);
            }
            let _ = Hello::decode(&bytes);
            if head {
                bytes[..8].copy_from_slice(&ANSWER_MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            }
            let _ = Answer::decode(&array(&bytes, 0));
        }
    }
}
