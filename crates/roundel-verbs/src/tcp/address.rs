//! The address of a device in its own encoding: where its listener is, and the secret that lets a
//! peer in. Knows nothing of queue pairs.

use crate::address::DeviceAddress;
use crate::error::{Result, VerbsError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first bytes of addresses and hellos.
const MAGIC: [u8; 4] = *b"rtcp";
/// Version of the protocol between devices: of addresses, hellos, frames and datagrams.
pub(super) const VERSION: u32 = 1;
/// Bytes of an encoded address.
const BYTES: usize = 60;

/// Where a device is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpAddress {
    /// Where its listener is reached, by peers.
    pub listener: SocketAddr,
    /// Random: which device it is, also among those of an address that was used before.
    pub id: [u8; 16],
    /// A peer that knows it may connect.
    pub secret: [u8; 16],
}

impl TcpAddress {
    pub(super) fn encode(&self) -> DeviceAddress {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        let (family, octets) = match self.listener.ip() {
            IpAddr::V4(ip) => (4, ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => (6, ip.octets()),
        };
        bytes[8] = family;
        bytes[10..12].copy_from_slice(&self.listener.port().to_le_bytes());
        bytes[12..28].copy_from_slice(&octets);
        bytes[28..44].copy_from_slice(&self.id);
        bytes[44..60].copy_from_slice(&self.secret);
        DeviceAddress::new(&bytes).expect("shorter than the longest address")
    }

    pub(super) fn decode(address: &DeviceAddress) -> Result<Self> {
        let refused = |what: &str| VerbsError::InvalidAddress(format!("a TCP device: {what}"));
        let bytes: &[u8; BYTES] = address
            .as_bytes()
            .try_into()
            .map_err(|_| refused("of another length than this provider's"))?;
        if bytes[..4] != MAGIC {
            return Err(refused("not an address of this provider"));
        }
        let listener_port = u16::from_le_bytes([bytes[10], bytes[11]]);
        let octets: [u8; 16] = array(bytes, 12);
        let ip = match bytes[8] {
            4 => IpAddr::V4(Ipv4Addr::new(
                octets[12], octets[13], octets[14], octets[15],
            )),
            6 => IpAddr::V6(Ipv6Addr::from(octets)),
            _ => return Err(refused("of an unknown family")),
        };
        let listener = SocketAddr::new(ip, listener_port);
        let theirs = u32::from_le_bytes(array(bytes, 4));
        if theirs != VERSION {
            return Err(VerbsError::VersionMismatch {
                peer: listener.to_string(),
                protocol: "TCP provider",
                theirs,
                ours: VERSION,
            });
        }
        Ok(Self {
            listener,
            id: array(bytes, 28),
            secret: array(bytes, 44),
        })
    }
}

/// The `N` bytes at `at`, which are there.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// One end of a connection: a queue pair, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub device: [u8; 16],
    pub number: u32,
    pub incarnation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(ip: IpAddr, port: u16, id: [u8; 16], secret: [u8; 16]) {
            let address = TcpAddress { listener: SocketAddr::new(ip, port), id, secret };
            prop_assert!(TcpAddress::decode(&address.encode()).unwrap() == address);
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..90), head: bool) {
            let mut bytes = bytes;
            if head && bytes.len() >= 8 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
            }
            let _ = TcpAddress::decode(&DeviceAddress::new(&bytes).unwrap());
        }
    }
}
