//! The names of nodes, and the addresses that two nodes exchange when they meet: each tells its end of their connection.

use crate::designs::Design;
use crate::error::{ExchangeError, Result};
use crate::link::queue::{NOWHERE, QueueAddress};
use roundel_verbs::{Context, QueuePairAddress, RemoteAddress};
use std::fmt;

/// A node, as long as its process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    pub(super) fn random(context: &dyn Context) -> Self {
        Self(context.random())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One end of a connection, as the peer needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionAddress {
    /// How its node moves rows.
    pub design: Design,
    /// The queues that the other end writes to, where the design has them: what is said to this end as a receiver, and as a
    /// source.
    pub valid: Option<QueueAddress>,
    /// See `valid`.
    pub free: Option<QueueAddress>,
    /// Its queue pair.
    pub queue_pair: QueuePairAddress,
}

impl ConnectionAddress {
    /// The bytes to hand to the peer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        let name = self.design.name();
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        for queue in [self.valid, self.free] {
            let at = queue.map_or(NOWHERE, |queue| queue.at);
            bytes.push(u8::from(queue.is_some()));
            bytes.extend_from_slice(&at.address.to_le_bytes());
            bytes.extend_from_slice(&at.remote_key.to_le_bytes());
            let entries = queue.map_or(0, |queue| queue.entries);
            bytes.extend_from_slice(&entries.to_le_bytes());
        }
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
        let (design, valid, free) = read;
        Ok(Self {
            design,
            valid,
            free,
            queue_pair: QueuePairAddress::from_bytes(rest)?,
        })
    }

    fn read(rest: &mut &[u8]) -> Option<(Design, Option<QueueAddress>, Option<QueueAddress>)> {
        let [length] = take(rest)?;
        let (name, others) = rest.split_at_checked(length.into())?;
        *rest = others;
        let design = std::str::from_utf8(name).ok()?.parse().ok()?;
        Some((design, queue(rest)?, queue(rest)?))
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

/// A queue, which there may be none of.
fn queue(rest: &mut &[u8]) -> Option<Option<QueueAddress>> {
    let [is_there] = take(rest)?;
    let at = RemoteAddress {
        address: u64::from_le_bytes(take(rest)?),
        remote_key: u32::from_le_bytes(take(rest)?),
    };
    let entries = u32::from_le_bytes(take(rest)?);
    Some((is_there != 0).then_some(QueueAddress { at, entries }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::Notification;
    use proptest::prelude::*;
    use roundel_verbs::shm::{self, ShmOptions};

    fn address(valid: Option<u32>, free: Option<u32>) -> ConnectionAddress {
        let device = shm::open(ShmOptions::default()).unwrap();
        let queue = |entries| QueueAddress {
            at: RemoteAddress {
                address: 99,
                remote_key: 7,
            },
            entries,
        };
        ConnectionAddress {
            design: Design::SemqWr(Notification::MessageQueue),
            valid: valid.map(queue),
            free: free.map(queue),
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
        for address in [
            address(None, None),
            address(Some(0), Some(3)),
            address(None, Some(16)),
        ] {
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
        let error = address(Some(1), Some(1)).check_design(Design::SemqRd, "worker w", NodeId(1));
        let error = error.unwrap_err().to_string();
        for part in ["worker w", "SEMQ/WR:mq", "SEMQ/RD"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
