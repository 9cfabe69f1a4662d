//! What the two ends of a link tell each other out of band.

use crate::error::{ExchangeError, Result};
use crate::link::queue::{NOWHERE, QueueAddress};
use roundel_verbs::{QueuePairAddress, RemoteAddress};

/// One end of a link, as its peer needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The exchange; chosen by the sender, 0 in the receiver's offer.
    pub exchange: u64,
    /// Index of the source in the exchange; 0 in the receiver's offer.
    pub source: u32,
    /// Index of the destination at the sender, which the receiver's control messages carry in
    /// place of a partition; 0 in the receiver's offer.
    pub destination: u32,
    /// In the receiver's offer over datagrams: the credit that the source begins with. 0 over
    /// Reliable Connection, where nothing may be sent before the receiver is connected, and in
    /// the sender's answer.
    pub credit: u32,
    /// In an offer, a number by which a source in the same process knows it; in an answer the same
    /// number, if it was one that did. 0 where links within a process are links like others.
    pub local: u64,
    /// The queue of this end that the other one writes to, in the designs that have one.
    pub queue: Option<QueueAddress>,
    /// The queue pair of this end.
    pub queue_pair: QueuePairAddress,
}

/// Bytes before the queue pair's address.
const FIXED_BYTES: usize = 48;

impl LinkAddress {
    /// The bytes to hand to the peer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&self.exchange.to_le_bytes());
        bytes.extend_from_slice(&self.source.to_le_bytes());
        bytes.extend_from_slice(&self.destination.to_le_bytes());
        bytes.extend_from_slice(&self.credit.to_le_bytes());
        let (at, entries) = match self.queue {
            Some(QueueAddress { at, entries }) => (at, entries),
            None => (NOWHERE, 0),
        };
        bytes.extend_from_slice(&u32::from(self.queue.is_some()).to_le_bytes());
        bytes.extend_from_slice(&at.address.to_le_bytes());
        bytes.extend_from_slice(&at.remote_key.to_le_bytes());
        bytes.extend_from_slice(&entries.to_le_bytes());
        bytes.extend_from_slice(&self.local.to_le_bytes());
        bytes.extend_from_slice(&self.queue_pair.to_bytes());
        bytes
    }

    /// Reads what the peer `peer` handed over.
    pub fn from_bytes(bytes: &[u8], peer: &str) -> Result<Self> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(ExchangeError::protocol(
                peer,
                "its link address is too short",
            ));
        };
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&fixed[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let queue = QueueAddress {
            at: RemoteAddress {
                address: long(24),
                remote_key: word(32),
            },
            entries: word(36),
        };
        Ok(Self {
            exchange: long(0),
            source: word(8),
            destination: word(12),
            credit: word(16),
            queue: (word(20) != 0).then_some(queue),
            local: long(40),
            queue_pair: QueuePairAddress::from_bytes(rest)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roundel_verbs::DeviceAddress;

    proptest! {
        #[test]
        fn addresses_are_read_as_written(
            (exchange, local, at) in any::<(u64, u64, u64)>(),
            (source, destination, credit) in any::<(u32, u32, u32)>(),
            (number, incarnation, queue_key) in any::<(u32, u32, u32)>(),
            (has_queue, remote_key, entries) in any::<(bool, u32, u32)>(),
            device in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let address = LinkAddress {
                exchange,
                source,
                destination,
                credit,
                local,
                queue: has_queue.then_some(QueueAddress {
                    at: RemoteAddress { address: at, remote_key },
                    entries,
                }),
                queue_pair: QueuePairAddress {
                    device: DeviceAddress::new(&device).unwrap(),
                    number,
                    incarnation,
                    queue_key,
                },
            };
            let bytes = address.to_bytes();
            prop_assert_eq!(&LinkAddress::from_bytes(&bytes, "it").unwrap(), &address);
            // How much of the device's address there must be only the device knows.
            for cut in 0..bytes.len() - device.len() {
                prop_assert!(LinkAddress::from_bytes(&bytes[..cut], "it").is_err());
            }
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = LinkAddress::from_bytes(&bytes, "it");
        }
    }
}
