//! Multicast groups: one datagram, sent once, reaches every queue pair that has joined.

use crate::error::{Result, VerbsError};

/// The address of a multicast group, which its members agree on out of band.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MulticastGroup {
    /// Which group: an IPv6 address, or an IPv4 address mapped into one.
    gid: [u8; 16],
    /// The queue key that datagrams to it carry, and that its members have.
    pub queue_key: u32,
}

/// Bytes of an encoded group.
const ENCODED_BYTES: usize = 20;

impl MulticastGroup {
    /// A group whose address is drawn from `random`, among the IPv4 groups of administrative
    /// scope (239.0.0.0/8, RFC 2365). Two exchanges that draw the same one hear each other's
    /// datagrams; the queue key and the exchange's number keep them apart.
    pub fn new(random: u64, queue_key: u32) -> Self {
        let mut gid = [0; 16];
        gid[10] = 0xff;
        gid[11] = 0xff;
        gid[12] = 239;
        gid[13..].copy_from_slice(&random.to_le_bytes()[..3]);
        // 239.0.0.x and 239.128.0.x share link-layer addresses with well-known groups.
        gid[14] |= 1;
        Self { gid, queue_key }
    }

    /// The address as devices take it.
    pub fn gid(&self) -> [u8; 16] {
        self.gid
    }

    /// The bytes to hand to a peer.
    pub fn to_bytes(&self) -> [u8; ENCODED_BYTES] {
        let mut bytes = [0; ENCODED_BYTES];
        bytes[..16].copy_from_slice(&self.gid);
        bytes[16..].copy_from_slice(&self.queue_key.to_le_bytes());
        bytes
    }

    /// Reads what a peer handed over; anything but a multicast address is an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let invalid = || VerbsError::InvalidAddress("not the address of a multicast group".into());
        let (gid, key) = bytes.split_at_checked(16).ok_or_else(invalid)?;
        let gid: [u8; 16] = gid.try_into().map_err(|_| invalid())?;
        let address = std::net::Ipv6Addr::from(gid);
        let is_multicast = match address.to_ipv4_mapped() {
            Some(address) => address.is_multicast(),
            None => address.is_multicast(),
        };
        if !is_multicast {
            return Err(invalid());
        }
        Ok(Self {
            gid,
            queue_key: u32::from_le_bytes(key.try_into().map_err(|_| invalid())?),
        })
    }
}

impl std::fmt::Debug for MulticastGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The queue key is a secret of the exchange.
        write!(
            f,
            "MulticastGroup({})",
            std::net::Ipv6Addr::from(self.gid).to_canonical()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::MulticastGroup;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(random: u64, queue_key: u32) {
            let group = MulticastGroup::new(random, queue_key);
            prop_assert_eq!(MulticastGroup::from_bytes(&group.to_bytes()).unwrap(), group);
        }

        #[test]
        fn any_bytes_are_a_group_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(group) = MulticastGroup::from_bytes(&bytes) {
                prop_assert_eq!(bytes.as_slice(), group.to_bytes());
            }
        }
    }
}
