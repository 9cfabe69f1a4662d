//! What two nodes tell each other of their ends of a connection when they meet.

use super::meeting::NodeId;
use crate::designs::Design;
use crate::error::{ExchangeError, Result};
use crate::link::queue::{NOWHERE, QueueAddress};
use roundel_verbs::{QueuePairAddress, RemoteAddress};

/// Most slots that a peer may say it has.
const SLOTS_MAX: usize = 1 << 16;

/// One end of a connection, as the peer needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionAddress {
    /// How its node moves rows.
    pub design: Design,
    /// Where messages are written to, one after the other, in the designs that WRITE.
    pub slots: Vec<RemoteAddress>,
    /// Bytes of each.
    pub slot_bytes: u32,
    /// The queue of this end in which messages are told of, and in which the bell is asked for, where there is one.
    pub queue: Option<QueueAddress>,
    /// Its queue pair.
    pub queue_pair: QueuePairAddress,
}

/// Bytes of where a slot is.
const SLOT_BYTES: usize = 12;

impl ConnectionAddress {
    /// The bytes to hand to the peer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128 + self.slots.len() * SLOT_BYTES);
        let name = self.design.name();
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(self.slots.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.slot_bytes.to_le_bytes());
        let mut place = |at: RemoteAddress| {
            bytes.extend_from_slice(&at.address.to_le_bytes());
            bytes.extend_from_slice(&at.remote_key.to_le_bytes());
        };
        self.slots.iter().copied().for_each(&mut place);
        place(self.queue.map_or(NOWHERE, |queue| queue.at));
        bytes.push(u8::from(self.queue.is_some()));
        let entries = self.queue.map_or(0, |queue| queue.entries);
        bytes.extend_from_slice(&entries.to_le_bytes());
        bytes.extend_from_slice(&self.queue_pair.to_bytes());
        bytes
    }

    /// Reads what the peer `peer` handed over.
    ///
    /// # Errors
    /// When the bytes are not an address.
    pub fn from_bytes(bytes: &[u8], peer: &str) -> Result<Self> {
        let mut rest = bytes;
        let refused = "its address of a connection cannot be read";
        let read = Self::read(&mut rest);
        let read = read.ok_or_else(|| ExchangeError::protocol(peer, refused))?;
        let (design, slots, slot_bytes, queue) = read;
        Ok(Self {
            design,
            slots,
            slot_bytes,
            queue,
            queue_pair: QueuePairAddress::from_bytes(rest)?,
        })
    }

    fn read(rest: &mut &[u8]) -> Option<(Design, Vec<RemoteAddress>, u32, Option<QueueAddress>)> {
        let [length] = take(rest)?;
        let (name, others) = rest.split_at_checked(length.into())?;
        *rest = others;
        let design = std::str::from_utf8(name).ok()?.parse().ok()?;
        let count = u32::from_le_bytes(take(rest)?) as usize;
        let slot_bytes = u32::from_le_bytes(take(rest)?);
        if count > SLOTS_MAX || count * SLOT_BYTES > rest.len() {
            return None;
        }
        let slots = (0..count).map(|_| place(rest)).collect::<Option<_>>()?;
        let at = place(rest)?;
        let [has_ring] = take(rest)?;
        let entries = u32::from_le_bytes(take(rest)?);
        let queue = (has_ring != 0).then_some(QueueAddress { at, entries });
        Some((design, slots, slot_bytes, queue))
    }

    /// Whether the peer moves rows as this node does.
    pub(super) fn check_design(&self, own: Design, peer: &str, node: NodeId) -> Result<()> {
        match self.design == own {
            true => Ok(()),
            false => Err(ExchangeError::OtherDesign {
                peer: format!("{peer}, node {node},"),
                own: own.name(),
                theirs: self.design.name(),
            }),
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*first)
}

fn place(rest: &mut &[u8]) -> Option<RemoteAddress> {
    Some(RemoteAddress {
        address: u64::from_le_bytes(take(rest)?),
        remote_key: u32::from_le_bytes(take(rest)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::Notification;
    use proptest::prelude::*;
    use roundel_verbs::shm::{self, ShmOptions};

    fn address(slots: usize, queue: bool) -> ConnectionAddress {
        let device = shm::open(ShmOptions::default()).unwrap();
        let at = |address| RemoteAddress {
            address,
            remote_key: 7,
        };
        ConnectionAddress {
            design: Design::SemqWr(Notification::MessageQueue),
            slots: (0..slots as u64).map(at).collect(),
            slot_bytes: 4096,
            queue: queue.then_some(QueueAddress {
                at: at(99),
                entries: slots as u32,
            }),
            queue_pair: QueuePairAddress {
                device: device.address(),
                number: 3,
                incarnation: 5,
                queue_key: 0,
            },
        }
    }

    #[test]
    fn addresses_are_read_as_written() {
        for address in [address(0, false), address(3, true), address(16, false)] {
            let bytes = address.to_bytes();
            assert_eq!(
                ConnectionAddress::from_bytes(&bytes, "it").unwrap(),
                address
            );
            // How much of the queue pair's address there must be is the device's.
            for cut in 0..bytes.len() - address.queue_pair.to_bytes().len() {
                let error = ConnectionAddress::from_bytes(&bytes[..cut], "it");
                assert!(error.is_err(), "{cut} of {}", bytes.len());
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ConnectionAddress::from_bytes(&bytes, "it");
        }
    }

    #[test]
    fn another_design_is_an_error_that_names_both() {
        let error = address(1, true).check_design(Design::SemqRd, "worker w", NodeId(1));
        let error = error.unwrap_err().to_string();
        for part in ["worker w", "SEMQ/WR:mq", "SEMQ/RD"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
