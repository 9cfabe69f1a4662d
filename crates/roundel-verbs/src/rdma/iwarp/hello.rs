//! What the two ends of a connection tell each other while it is made: who calls whom, and where each looks for the
//! other's word. Bytes from the network: of fixed size, looked at before they are used.

use crate::address::DeviceAddress;
use crate::memory::RemoteAddress;
use crate::rdma::address::{self, Party, RdmaAddress};
use crate::rdma::link::Mailbox;

/// Begin what the caller says, and the answer. The last byte is the version.
const HELLO: [u8; 8] = *b"rw-call\x01";
const ANSWER: [u8; 8] = *b"rw-yes \x01";

/// Bytes of a mailbox, of the name of a queue pair, of a hello and of an answer.
const MAILBOX_BYTES: usize = 20;
const PARTY_BYTES: usize = 8 + address::BYTES;
pub(super) const HELLO_BYTES: usize = 8 + 8 + PARTY_BYTES + MAILBOX_BYTES;
pub(super) const ANSWER_BYTES: usize = 8 + MAILBOX_BYTES;

/// What the end that calls says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Which queue pair is called.
    pub number: u32,
    pub incarnation: u32,
    pub from: Party,
    pub mailbox: Mailbox,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO);
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.from.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.from.incarnation.to_le_bytes());
        let device = 24 + address::BYTES;
        bytes[24..device].copy_from_slice(self.from.device.encode().as_bytes());
        bytes[device..].copy_from_slice(&encode(&self.mailbox));
        bytes
    }

    /// None when it is no hello of this version. A device may add bytes behind.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HELLO_BYTES)?;
        if bytes[..8] != HELLO {
            return None;
        }
        let device = 24 + address::BYTES;
        let address = DeviceAddress::new(&bytes[24..device]).ok()?;
        Some(Self {
            number: word(bytes, 8),
            incarnation: word(bytes, 12),
            from: Party {
                device: RdmaAddress::decode(&address).ok()?,
                number: word(bytes, 16),
                incarnation: word(bytes, 20),
            },
            mailbox: decode(&bytes[device..]),
        })
    }
}

/// The answer of the end that was called.
pub(super) fn encode_answer(mailbox: &Mailbox) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..8].copy_from_slice(&ANSWER);
    bytes[8..].copy_from_slice(&encode(mailbox));
    bytes
}

/// None when it is no answer of this version.
pub(super) fn decode_answer(bytes: &[u8]) -> Option<Mailbox> {
    let bytes = bytes.get(..ANSWER_BYTES)?;
    (bytes[..8] == ANSWER).then(|| decode(&bytes[8..]))
}

fn encode(mailbox: &Mailbox) -> [u8; MAILBOX_BYTES] {
    let mut bytes = [0; MAILBOX_BYTES];
    bytes[..8].copy_from_slice(&mailbox.at.address.to_le_bytes());
    bytes[8..12].copy_from_slice(&mailbox.at.remote_key.to_le_bytes());
    bytes[12..].copy_from_slice(&mailbox.token.to_le_bytes());
    bytes
}

/// Of [`MAILBOX_BYTES`]. A peer that lies here harms itself only: it gets a WRITE where it says.
fn decode(bytes: &[u8]) -> Mailbox {
    let long = |at: usize| u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32;
    Mailbox {
        at: RemoteAddress {
            address: long(0),
            remote_key: word(bytes, 8),
        },
        token: long(12),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    fn mailbox(token: u64) -> Mailbox {
        let at = RemoteAddress {
            address: token.rotate_left(9),
            remote_key: token as u32,
        };
        Mailbox { at, token }
    }

    proptest! {
        #[test]
        fn hellos_and_answers_go_round(numbers: [u32; 4], port: u16, token: u64) {
            let device = RdmaAddress {
                link_layer: 2, mtu: 5, answered_reads: 16, lid: 0, gid: Ipv6Addr::LOCALHOST, port,
            };
            let from = Party { device, number: numbers[2], incarnation: numbers[3] };
            let hello = Hello { number: numbers[0], incarnation: numbers[1], from, mailbox: mailbox(token) };
            prop_assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            prop_assert_eq!(decode_answer(&encode_answer(&hello.mailbox)), Some(hello.mailbox));
        }

        #[test]
        fn any_bytes_are_a_hello_or_none(bytes in prop::collection::vec(any::<u8>(), 0..255), begins in 0u8..3) {
            let mut bytes = bytes;
            let magic = [&[][..], &HELLO, &ANSWER][usize::from(begins)];
            if bytes.len() >= magic.len() {
                bytes[..magic.len()].copy_from_slice(magic);
            }
            let _ = (Hello::decode(&bytes), decode_answer(&bytes));
        }
    }
}
