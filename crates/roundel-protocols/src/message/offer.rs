//! What an end tells its peer so that both can connect. It comes from outside: whoever reads it checks what it
//! says.

use crate::end::EndOptions;
use crate::error::{ProtocolError, Result};
use crate::protocol::Protocol;
use roundel_verbs::{QueuePairAddress, RemoteAddress};
use serde::{Deserialize, Serialize};

/// Version of offers, of frames, and of what ends do with them.
const VERSION: u32 = 2;

/// One connection, as one of its ends has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub version: u32,
    pub protocol: Protocol,
    /// Whether this is the end that asks.
    pub asks: bool,
    /// Messages under way in each direction.
    pub slots: usize,
    /// Most bytes of a request and of a response.
    pub bytes: (usize, usize),
    /// This end's number of the connection.
    pub connection: u32,
    /// A peer that knows it may write to this end.
    pub nonce: u64,
    /// Its queue pair of this connection, and the one for all of them, where the protocol has such.
    pub connected: Option<QueuePairAddress>,
    pub datagram: Option<QueuePairAddress>,
    /// Its slots, or the memory that can be read.
    pub memory: Option<RemoteAddress>,
    /// Bytes of the memory that can be read, where the protocol reads.
    pub readable: u64,
}

impl Offer {
    pub(crate) fn new(options: &EndOptions, asks: bool) -> Self {
        Self {
            version: VERSION,
            protocol: options.protocol,
            asks,
            slots: options.pending,
            bytes: (options.request_bytes, options.response_bytes),
            connection: 0,
            nonce: 0,
            connected: None,
            datagram: None,
            memory: None,
            readable: 0,
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an offer is plain data")
    }

    /// Reads what a peer offers to an end that has this offer.
    pub(crate) fn parse(bytes: &[u8], own: &Self, peer: &str) -> Result<Self> {
        let wrong = |reason: String| ProtocolError::Offer {
            peer: peer.to_owned(),
            reason,
        };
        let theirs: Self = serde_json::from_slice(bytes)
            .map_err(|error| wrong(format!("its offer cannot be read: {error}")))?;
        let differs = if theirs.version != VERSION {
            format!("it speaks version {}, this side {VERSION}", theirs.version)
        } else if theirs.protocol != own.protocol {
            format!("it speaks {}, this side {}", theirs.protocol, own.protocol)
        } else if theirs.asks == own.asks {
            let does = if own.asks { "asks" } else { "answers" };
            format!("it {does}, as this side does")
        } else if (theirs.slots, theirs.bytes) != (own.slots, own.bytes) {
            format!(
                "it has {} calls pending of {:?} bytes, this side {} of {:?}",
                theirs.slots, theirs.bytes, own.slots, own.bytes
            )
        } else {
            return Ok(theirs);
        };
        Err(wrong(differs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Offer {
        Offer::new(&EndOptions::new(Protocol::WriteWrite), true)
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let peer = Offer {
            asks: false,
            ..own()
        };
        assert_eq!(Offer::parse(&peer.to_bytes(), &own(), "p").unwrap(), peer);
        let wrong = [
            (
                Offer {
                    version: 9,
                    ..peer.clone()
                },
                "version 9",
            ),
            (
                Offer {
                    protocol: Protocol::Read,
                    ..peer.clone()
                },
                "READ",
            ),
            (own(), "as this side does"),
            (
                Offer {
                    slots: 17,
                    ..peer.clone()
                },
                "17 calls",
            ),
            (
                Offer {
                    bytes: (1, 2),
                    ..peer
                },
                "(1, 2)",
            ),
        ];
        for (offer, told) in wrong {
            let error = Offer::parse(&offer.to_bytes(), &own(), "p").unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        let mut offer = serde_json::to_value(own()).unwrap();
        for bytes in [0, 11, 109, 10_000] {
            offer["connected"] = vec![1u8; bytes].into();
            let error = Offer::parse(offer.to_string().as_bytes(), &own(), "p").unwrap_err();
            let told = error.to_string();
            assert!(
                told.contains('p') && told.contains("cannot be read"),
                "{told}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Offer::parse(&bytes, &own(), "p");
        }
    }
}
