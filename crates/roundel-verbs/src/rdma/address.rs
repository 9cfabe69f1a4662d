//! Where an RDMA device is, for its peers: link layer, GID, LID, and what both ends must agree on.

use crate::address::DeviceAddress;
use crate::error::{Result, VerbsError};
use std::net::Ipv6Addr;

/// Begins every address of this provider.
const TAG: u8 = b'R';
/// Version of the encoding.
const VERSION: u8 = 1;
/// Bytes of the encoding.
const BYTES: usize = 24;

/// What a peer must know of a device and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RdmaAddress {
    /// `IBV_LINK_LAYER_*`.
    pub link_layer: u8,
    /// Active MTU of the port, as the header's enumeration has it: 256 bytes is 1, 4096 is 5.
    pub mtu: u8,
    /// READs and atomics that a queue pair answers at a time.
    pub answered_reads: u8,
    /// Local identifier on InfiniBand, else 0.
    pub lid: u16,
    pub gid: Ipv6Addr,
}

impl RdmaAddress {
    pub(super) fn encode(&self) -> DeviceAddress {
        let mut bytes = [0; BYTES];
        bytes[..5].copy_from_slice(&[TAG, VERSION, self.link_layer, self.mtu, self.answered_reads]);
        bytes[6..8].copy_from_slice(&self.lid.to_le_bytes());
        bytes[8..].copy_from_slice(&self.gid.octets());
        DeviceAddress::new(&bytes).expect("shorter than the longest address")
    }

    pub(super) fn decode(address: &DeviceAddress) -> Result<Self> {
        let invalid = || VerbsError::InvalidAddress("not the address of an RDMA device".to_owned());
        let bytes: &[u8; BYTES] = address.as_bytes().try_into().map_err(|_| invalid())?;
        let [tag, version, link_layer, mtu, answered_reads, ..] = *bytes;
        if tag != TAG || !(1..=5).contains(&mtu) {
            return Err(invalid());
        }
        if version != VERSION {
            return Err(VerbsError::VersionMismatch {
                peer: "an RDMA device".to_owned(),
                protocol: "device address",
                theirs: version.into(),
                ours: VERSION.into(),
            });
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[8..]);
        Ok(Self {
            link_layer,
            mtu,
            answered_reads,
            lid: u16::from_le_bytes([bytes[6], bytes[7]]),
            gid: gid.into(),
        })
    }

    /// How errors name the peer.
    pub(super) fn name(&self) -> String {
        if self.lid != 0 {
            format!("RDMA device with LID {}", self.lid)
        } else {
            format!("RDMA device {}", self.gid.to_canonical())
        }
    }
}

/// Bytes of an MTU given as the header's enumeration.
pub(super) fn mtu_bytes(mtu: u32) -> usize {
    128 << mtu.min(5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(link_layer: u8, mtu in 1u8..=5, answered_reads: u8, lid: u16, gid: [u8; 16]) {
            let address = RdmaAddress { link_layer, mtu, answered_reads, lid, gid: gid.into() };
            prop_assert_eq!(RdmaAddress::decode(&address.encode()).unwrap(), address);
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = RdmaAddress::decode(&DeviceAddress::new(&bytes).unwrap());
        }
    }

    #[test]
    fn mtus_are_powers_of_two() {
        assert_eq!(mtu_bytes(1), 256);
        assert_eq!(mtu_bytes(5), 4096);
    }
}
