//! Addresses as peers exchange them out of band: opaque bytes to everyone but the provider.

use crate::error::{Result, VerbsError};
use serde::{Deserialize, Serialize};

/// Largest encoded device address, in bytes.
pub const DEVICE_ADDRESS_BYTES_MAX: usize = 96;

/// Where a device is, in its provider's own encoding.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DeviceAddress(Box<[u8]>);

impl DeviceAddress {
    /// Wraps a provider's encoding; at most [`DEVICE_ADDRESS_BYTES_MAX`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > DEVICE_ADDRESS_BYTES_MAX {
            return Err(VerbsError::InvalidAddress(format!(
                "a device address has at most {DEVICE_ADDRESS_BYTES_MAX} bytes, this one {}",
                bytes.len()
            )));
        }
        Ok(Self(bytes.into()))
    }

    /// The provider's encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for DeviceAddress {
    // The bytes may hold a secret that lets the reader connect: they are not printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceAddress({} bytes)", self.0.len())
    }
}

/// Where a queue pair is: what a peer needs to connect to it (RC) or to make an address handle
/// for it (UD).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct QueuePairAddress {
    /// The device that owns it.
    pub device: DeviceAddress,
    /// Its number on that device.
    pub number: u32,
    /// Which incarnation of that number: a stale address is refused.
    pub incarnation: u32,
    /// The queue key that datagrams must carry; 0 on a connected transport.
    pub queue_key: u32,
}

impl QueuePairAddress {
    /// The bytes to hand to a peer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + self.device.as_bytes().len());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.incarnation.to_le_bytes());
        bytes.extend_from_slice(&self.queue_key.to_le_bytes());
        bytes.extend_from_slice(self.device.as_bytes());
        bytes
    }

    /// Reads what a peer handed over.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let word = |at: usize| {
            bytes
                .get(at..at + 4)
                .and_then(|word| word.try_into().ok())
                .map(u32::from_le_bytes)
                .ok_or_else(|| {
                    VerbsError::InvalidAddress(format!(
                        "a queue pair address has at least 12 bytes, this one {}",
                        bytes.len()
                    ))
                })
        };
        Ok(Self {
            number: word(0)?,
            incarnation: word(4)?,
            queue_key: word(8)?,
            device: DeviceAddress::new(&bytes[12..])?,
        })
    }
}

impl TryFrom<Vec<u8>> for QueuePairAddress {
    type Error = VerbsError;

    fn try_from(bytes: Vec<u8>) -> Result<Self> {
        Self::from_bytes(&bytes)
    }
}

impl From<QueuePairAddress> for Vec<u8> {
    fn from(address: QueuePairAddress) -> Self {
        address.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(number: u32, incarnation: u32, queue_key: u32, device in prop::collection::vec(any::<u8>(), 0..=DEVICE_ADDRESS_BYTES_MAX)) {
            let address = QueuePairAddress { device: DeviceAddress::new(&device).unwrap(), number, incarnation, queue_key };
            prop_assert_eq!(QueuePairAddress::from_bytes(&address.to_bytes()).unwrap(), address);
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = QueuePairAddress::from_bytes(&bytes);
        }
    }
}
