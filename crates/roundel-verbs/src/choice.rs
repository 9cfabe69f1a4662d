//! Devices by the names that command lines have for them, where one device is asked for: to be measured.

use crate::device::Device;
use crate::error::VerbsError;
use crate::rdma::{self, RdmaOptions};
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
    /// Sockets, on this address of the host.
    Tcp(IpAddr),
}

/// What `tcp` alone means: both ends on this host.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The text names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown device {0:?}: there are shm, rdma, rdma:DEVICE[/PORT[/GID]], tcp and tcp:ADDRESS")]
pub struct UnknownDevice(String);

impl DeviceChoice {
    /// Opens it for this process.
    ///
    /// # Errors
    /// When the host does not have it, or it cannot be used.
    pub fn open(&self) -> Result<Device, VerbsError> {
        match self {
            Self::Shm => shm::open(ShmOptions::default()),
            Self::Rdma(options) => rdma::open(options),
            Self::Tcp(address) => tcp::open(TcpOptions { address: *address }),
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
            None if text == "tcp" => Some(Self::Tcp(LOOPBACK)),
            Some(("tcp", address)) => address.parse().map(Self::Tcp).ok(),
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
            Self::Tcp(LOOPBACK) => f.write_str("tcp"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
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
    use super::DeviceChoice;

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
}
