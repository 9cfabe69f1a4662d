//! `--fabric`: the devices that can be measured. The one place that opens them.

use std::fmt;
use std::str::FromStr;

use roundel_verbs::Device;
use roundel_verbs::rdma::{self, RdmaOptions};
use roundel_verbs::shm::{self, ShmOptions};

use crate::failure::Failure;

/// What carries the messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fabric {
    /// Shared memory of this host.
    #[default]
    Shm,
    /// An RDMA device.
    Rdma(RdmaOptions),
}

impl FromStr for Fabric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rdma = |options: &str| options.parse().map(Self::Rdma).ok();
        let fabric = match text.split_once(':') {
            None if text == "shm" => Some(Self::Shm),
            None if text == "rdma" => Some(Self::Rdma(RdmaOptions::default())),
            Some(("rdma", options)) => rdma(options),
            _ => None,
        };
        fabric.ok_or_else(|| "there are shm, rdma and rdma:DEVICE[/PORT[/GID]]".to_owned())
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm => f.write_str("shm"),
            Self::Rdma(options) if *options == RdmaOptions::default() => f.write_str("rdma"),
            Self::Rdma(options) => write!(f, "rdma:{options}"),
        }
    }
}

/// Opens the device of this process.
pub fn open_device(fabric: &Fabric) -> Result<Device, Failure> {
    match fabric {
        Fabric::Shm => Ok(shm::open(ShmOptions::default())?),
        Fabric::Rdma(options) => Ok(rdma::open(options)?),
    }
}
