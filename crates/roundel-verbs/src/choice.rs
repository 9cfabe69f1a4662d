//! Devices by the names that command lines have for them. What is above the verbs asks for a device here, and does
//! not use the module of a provider.

use crate::device::Device;
use crate::error::VerbsError;
use crate::rdma::{self, LockedMemory, RdmaOptions};
use crate::shm::{self, ShmOptions};
use crate::tcp::{self, TcpOptions};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// A device: `shm`, `rdma`, `rdma:DEVICE[/PORT[/GID]]`, `tcp` or `tcp:ADDRESS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// Shared memory of this host.
    #[default]
    Shm,
    /// An RDMA device.
    Rdma(RdmaOptions),
    /// Sockets, on this address of the host, or on that of the [`DeviceOptions`].
    Tcp(Option<IpAddr>),
}

/// What a process wants of a device, besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Bytes that the process is going to register at most. Shared memory has no room for more; for RDMA the process must be
    /// allowed to lock so many. Without a number, shared memory has room for 16 GiB, and locked memory is not looked at.
    pub registered_bytes_max: Option<usize>,
    /// Where other processes reach this one, for a device that is told no address.
    pub address: IpAddr,
}

impl Default for DeviceOptions {
    /// Memory as it is needed, and both ends on this host.
    fn default() -> Self {
        Self {
            registered_bytes_max: None,
            address: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// The text names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown device {0:?}: there are shm, rdma, rdma:DEVICE[/PORT[/GID]], tcp and tcp:ADDRESS")]
pub struct UnknownDevice(String);

impl DeviceChoice {
    /// Opens it for this process, with the default [`DeviceOptions`].
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub fn open(&self) -> Result<Device, VerbsError> {
        self.open_with(&DeviceOptions::default())
    }

    /// Opens it for this process.
    ///
    /// # Errors
    /// When the host does not have it, or it cannot be used; and [`VerbsError::MemoryLockLimit`] when the process may not
    /// lock the memory that it is going to register.
    pub fn open_with(&self, wanted: &DeviceOptions) -> Result<Device, VerbsError> {
        match self {
            Self::Shm => {
                let mut options = ShmOptions::default();
                if let Some(most) = wanted.registered_bytes_max {
                    options.registered_bytes_max = most;
                }
                shm::open(options)
            }
            Self::Rdma(options) => {
                let device = rdma::open(options)?;
                if let Some(most) = wanted.registered_bytes_max {
                    LockedMemory::of_this_process().require(most)?;
                }
                Ok(device)
            }
            Self::Tcp(address) => tcp::open(TcpOptions {
                address: address.unwrap_or(wanted.address),
            }),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        let choice = match text.split_once(':') {
            None if text == "shm" => Some(Self::Shm),
            None if text == "rdma" => Some(Self::Rdma(RdmaOptions::default())),
            Some(("rdma", options)) => options.parse().map(Self::Rdma).ok(),
            None if text == "tcp" => Some(Self::Tcp(None)),
            Some(("tcp", address)) => address.parse().ok().map(|one| Self::Tcp(Some(one))),
            _ => None,
        };
        choice.ok_or_else(|| UnknownDevice(text.to_owned()))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm => f.write_str("shm"),
            Self::Rdma(options) if *options == RdmaOptions::default() => f.write_str("rdma"),
            Self::Rdma(options) => write!(f, "rdma:{options}"),
            Self::Tcp(None) => f.write_str("tcp"),
            Self::Tcp(Some(address)) => write!(f, "tcp:{address}"),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = UnknownDevice;

    fn try_from(text: String) -> Result<Self, UnknownDevice> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArenaOptions, DeviceAddress};

    #[test]
    fn names_are_read_as_written() {
        for good in [
            "shm",
            "tcp",
            "tcp:10.0.0.1",
            "tcp:::1",
            "rdma",
            "rdma:mlx5_0/1/3",
        ] {
            let choice: DeviceChoice = good.parse().unwrap();
            assert_eq!(choice.to_string(), good);
        }
        for wrong in ["", "shm:", "shm:1", "tcp:host", "rdma:", "ether"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_device_is_opened_as_it_is_wanted() {
        let bytes = 1 << 20;
        let wanted = DeviceOptions {
            registered_bytes_max: Some(bytes),
            address: "127.0.0.9".parse().unwrap(),
        };
        let device = DeviceChoice::Shm.open_with(&wanted).unwrap();
        let arena = device.arena(ArenaOptions {
            registered_bytes_max: 4 * bytes,
            segment_bytes: bytes,
        });
        assert!(arena.allocate(bytes / 2).is_ok());
        assert!(arena.allocate(2 * bytes).is_err());

        let at = |choice: DeviceChoice| choice.open_with(&wanted).unwrap().address();
        let reached = |address: DeviceAddress, ip: [u8; 4]| {
            let mut windows = address.as_bytes().windows(4);
            windows.any(|bytes| bytes == ip)
        };
        assert!(reached(at(DeviceChoice::Tcp(None)), [127, 0, 0, 9]));
        let own = DeviceChoice::Tcp(Some(Ipv4Addr::LOCALHOST.into()));
        assert!(reached(at(own), [127, 0, 0, 1]));
    }
}
