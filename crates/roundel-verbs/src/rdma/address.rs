//! Where an RDMA device is, for its peers: link layer, GID, LID, and what both ends must agree on.

use crate::address::{DeviceAddress, QueuePairAddress};
use crate::error::{Result, VerbsError};
use std::net::{Ipv6Addr, SocketAddr};

/// Begins every address of this provider.
const TAG: u8 = b'R';
/// Version of the encoding.
const VERSION: u8 = 2;
/// Bytes of the encoding.
pub(super) const BYTES: usize = 26;

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
    /// On iWARP the IP address, mapped if it is of version 4.
    pub gid: Ipv6Addr,
    /// On iWARP where connections are asked for, else 0.
    pub port: u16,
}

impl RdmaAddress {
    pub(super) fn encode(&self) -> DeviceAddress {
        let mut bytes = [0; BYTES];
        bytes[..5].copy_from_slice(&[TAG, VERSION, self.link_layer, self.mtu, self.answered_reads]);
        bytes[6..8].copy_from_slice(&self.lid.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.gid.octets());
        bytes[24..].copy_from_slice(&self.port.to_le_bytes());
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
        gid.copy_from_slice(&bytes[8..24]);
        Ok(Self {
            link_layer,
            mtu,
            answered_reads,
            lid: u16::from_le_bytes([bytes[6], bytes[7]]),
            gid: gid.into(),
            port: u16::from_le_bytes([bytes[24], bytes[25]]),
        })
    }

    /// Whether it is an iWARP device.
    pub(super) fn is_iwarp(&self) -> bool {
        self.port != 0
    }

    /// On iWARP, where connections are asked for.
    pub(super) fn listener(&self) -> SocketAddr {
        SocketAddr::new(self.gid.to_canonical(), self.port)
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

/// A queue pair on iWARP, as both ends of a connection name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Party {
    pub device: RdmaAddress,
    pub number: u32,
    pub incarnation: u32,
}

impl Party {
    pub(super) fn of(address: &QueuePairAddress) -> Result<Self> {
        Ok(Self {
            device: RdmaAddress::decode(&address.device)?,
            number: address.number,
            incarnation: address.incarnation,
        })
    }

    /// Whether it asks the other for the connection: of two, one does.
    pub(super) fn calls(&self, other: &Self) -> bool {
        let key = |party: &Self| {
            let device = &party.device;
            (device.gid, device.port, party.number, party.incarnation)
        };
        key(self) < key(other)
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
        fn round_trip(link_layer: u8, mtu in 1u8..=5, answered_reads: u8, lid: u16, gid: [u8; 16], port: u16) {
            let address = RdmaAddress { link_layer, mtu, answered_reads, lid, gid: gid.into(), port };
            prop_assert_eq!(RdmaAddress::decode(&address.encode()).unwrap(), address);
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = RdmaAddress::decode(&DeviceAddress::new(&bytes).unwrap());
        }
    }

    #[test]
    fn of_two_parties_one_calls() {
        let device = |port| RdmaAddress {
            link_layer: 2,
            mtu: 5,
            answered_reads: 16,
            lid: 0,
            gid: Ipv6Addr::LOCALHOST,
            port,
        };
        let party = |port, number| Party {
            device: device(port),
            number,
            incarnation: 7,
        };
        for (one, other) in [(party(1, 2), party(2, 1)), (party(1, 1), party(1, 2))] {
            assert!(one.calls(&other) && !other.calls(&one));
        }
        assert!(!party(1, 1).calls(&party(1, 1)));
    }

    #[test]
    fn mtus_are_powers_of_two() {
        assert_eq!(mtu_bytes(1), 256);
        assert_eq!(mtu_bytes(5), 4096);
    }
}
