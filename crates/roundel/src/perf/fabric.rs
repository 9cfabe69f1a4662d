//! `--fabric`: the devices that can be measured. The one place that opens them.

use std::fmt;
use std::str::FromStr;

use roundel_verbs::Device;
use roundel_verbs::shm::{self, ShmOptions};

use crate::failure::Failure;

/// What carries the messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fabric {
    /// Shared memory of this host.
    #[default]
    Shm,
}

impl FromStr for Fabric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "shm" => Ok(Self::Shm),
            _ => Err("there is shm".to_owned()),
        }
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm => f.write_str("shm"),
        }
    }
}

/// Opens the device of this process.
pub fn open_device(fabric: &Fabric) -> Result<Device, Failure> {
    match fabric {
        Fabric::Shm => Ok(shm::open(ShmOptions::default())?),
    }
}
