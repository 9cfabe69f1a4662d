//! What a setting runs over: a device of this host, or simulated hardware.

use crate::error::{Error, Result};
use roundel_verbs::sim::Parameters;
use roundel_verbs::{Device, DeviceChoice};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes on the link for which each byte of a simulated message stands where only lengths are simulated: datagrams
/// are of 4096 bytes then, exactly.
const LENGTHS_ONLY_TIMES: usize = 63;

/// A device, or `sim:NAME` for hardware of a generation, where messages have lengths only, or `sim:NAME:bytes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FabricChoice {
    /// A device of this host.
    Device(DeviceChoice),
    /// Hardware of this name, in simulation.
    Simulated {
        /// One of [`Parameters::NAMES`].
        name: String,
        /// Whether messages have their bytes.
        bytes: bool,
    },
}

/// The text names neither a device nor a generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown fabric {0:?}: there are shm, rdma, rdma:DEVICE[/PORT[/GID]], tcp, tcp:ADDRESS, and sim:NAME or \
     sim:NAME:bytes with NAME one of {names}",
    names = Parameters::NAMES.join(", ")
)]
pub struct UnknownFabric(String);

impl FabricChoice {
    /// Opens the device for this process.
    ///
    /// # Errors
    /// When the host does not have it, or it cannot be used; and when it is simulated, since that is no device of
    /// a process.
    pub fn open(&self) -> Result<Device> {
        match self {
            Self::Device(choice) => Ok(choice.open()?),
            Self::Simulated { .. } => Err(Error::Setting(format!(
                "{self} is no device that a process could open"
            ))),
        }
    }

    /// The simulated hardware, if it is simulated.
    pub fn parameters(&self) -> Option<Parameters> {
        let Self::Simulated { name, bytes } = self else {
            return None;
        };
        let times = if *bytes { 1 } else { LENGTHS_ONLY_TIMES };
        Some(Parameters::named(name)?.with_payload_times(times))
    }

    /// The simulated hardware by itself, if it is simulated, for what says which lengths it simulates.
    pub fn hardware(&self) -> Option<Parameters> {
        match self {
            Self::Simulated { name, .. } => Parameters::named(name),
            Self::Device(_) => None,
        }
    }

    /// Whether it is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated { .. })
    }
}

impl Default for FabricChoice {
    fn default() -> Self {
        Self::Device(DeviceChoice::default())
    }
}

impl From<DeviceChoice> for FabricChoice {
    fn from(choice: DeviceChoice) -> Self {
        Self::Device(choice)
    }
}

impl FromStr for FabricChoice {
    type Err = UnknownFabric;

    fn from_str(text: &str) -> Result<Self, UnknownFabric> {
        let unknown = || UnknownFabric(text.to_owned());
        let Some(simulated) = text.strip_prefix("sim:") else {
            return text.parse().map(Self::Device).map_err(|_| unknown());
        };
        let (name, bytes) = match simulated.strip_suffix(":bytes") {
            Some(name) => (name, true),
            None => (simulated, false),
        };
        match Parameters::NAMES.contains(&name) {
            true => Ok(Self::Simulated {
                name: name.to_owned(),
                bytes,
            }),
            false => Err(unknown()),
        }
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(choice) => choice.fmt(f),
            Self::Simulated { name, bytes: false } => write!(f, "sim:{name}"),
            Self::Simulated { name, bytes: true } => write!(f, "sim:{name}:bytes"),
        }
    }
}

impl TryFrom<String> for FabricChoice {
    type Error = UnknownFabric;

    fn try_from(text: String) -> Result<Self, UnknownFabric> {
        text.parse()
    }
}

impl From<FabricChoice> for String {
    fn from(choice: FabricChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for text in ["shm", "tcp", "sim:edr", "sim:10gbe-tcp:bytes", "sim:fdr"] {
            let choice: FabricChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            assert_eq!(choice.parameters().is_some(), choice.is_simulated());
        }
        for text in ["sim", "sim:", "sim:hdr", "sim:edr:rows", "pigeons"] {
            let error = text.parse::<FabricChoice>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("edr"), "{error}");
        }
    }
}
