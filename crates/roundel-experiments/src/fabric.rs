//! What a setting runs over: a device of this host, or simulated hardware.

use crate::error::{Error, Result};
use roundel_verbs::sim::{Mechanism, Parameters};
use roundel_verbs::{Device, DeviceChoice, DeviceOptions};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use strum::VariantNames as _;

/// Bytes on the link for which each byte of a simulated message stands where only lengths are simulated: datagrams
/// are of 4096 bytes then, exactly.
const LENGTHS_ONLY_TIMES: usize = 63;

/// A device, or simulated hardware: `sim:NAME`, and behind it, each after a colon, `seed=N`, `without=MECHANISM+…`, and
/// `bytes` where messages have not only lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FabricChoice {
    /// A device of this host.
    Device(DeviceChoice),
    /// Hardware, in simulation.
    Simulated(Simulated),
}

/// Simulated hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// One of [`Parameters::NAMES`].
    pub name: String,
    /// Of everything that is drawn.
    pub seed: u64,
    /// What does not hold it up.
    pub without: Vec<Mechanism>,
    /// Whether messages have their bytes.
    pub bytes: bool,
}

/// The seed, where none is named, and the highest.
const SEED: u64 = 1;
const SEEDS_MAX: u64 = 1 << 31;

/// The text names neither a device nor a generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown fabric {0:?}: there are shm, rdma, rdma:DEVICE[/PORT[/GID]], tcp, tcp:ADDRESS, and \
     sim:NAME[:seed=N][:without=MECHANISM+…][:bytes] with NAME one of {names}, and MECHANISM one of {mechanisms}",
    names = Parameters::NAMES.join(", "),
    mechanisms = Mechanism::VARIANTS.join(", ")
)]
pub struct UnknownFabric(String);

impl FabricChoice {
    /// Opens the device for this process, which others reach at an address of its host.
    ///
    /// # Errors
    /// When the host does not have it, or it cannot be used; and when it is simulated, since that is no device of
    /// a process.
    pub fn open(&self, address: IpAddr) -> Result<Device> {
        match self {
            Self::Device(choice) => Ok(choice.open_with(&DeviceOptions {
                address,
                ..DeviceOptions::default()
            })?),
            Self::Simulated(_) => Err(Error::Setting(format!(
                "{self} is no device that a process could open"
            ))),
        }
    }

    /// The simulated hardware, if it is simulated.
    pub fn parameters(&self) -> Option<Parameters> {
        let Self::Simulated(simulated) = self else {
            return None;
        };
        let times = if simulated.bytes {
            1
        } else {
            LENGTHS_ONLY_TIMES
        };
        Some(self.hardware()?.with_payload_times(times))
    }

    /// The simulated hardware by itself, if it is simulated, for what says which lengths it simulates.
    pub fn hardware(&self) -> Option<Parameters> {
        let Self::Simulated(simulated) = self else {
            return None;
        };
        let all = Parameters::named(&simulated.name)?;
        let without = simulated.without.iter();
        Some(without.fold(all, |hardware, mechanism| hardware.without(*mechanism)))
    }

    /// The seed of what is drawn in simulation.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Simulated(simulated) => simulated.seed,
            Self::Device(_) => SEED,
        }
    }

    /// The seed of one who draws, by its number. Those of the first seed are their numbers.
    pub(crate) fn seed_of(&self, number: usize) -> u64 {
        (self.seed() - SEED) << 32 | number as u64
    }

    /// Whether it is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }
}

impl Simulated {
    /// Hardware of this name, one of [`Parameters::NAMES`], where messages have lengths only.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            seed: SEED,
            without: Vec::new(),
            bytes: false,
        }
    }

    /// Reads what stands behind a colon.
    fn set(&mut self, option: &str) -> Option<()> {
        match option.split_once('=') {
            Some(("seed", seed)) => {
                let seed = seed.parse().ok()?;
                self.seed = Some(seed).filter(|seed| (SEED..=SEEDS_MAX).contains(seed))?;
            }
            Some(("without", all)) => {
                let all = all.split('+').map(str::parse);
                self.without = all.collect::<Result<_, _>>().ok()?;
            }
            None if option == "bytes" => self.bytes = true,
            _ => return None,
        }
        Some(())
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
        let (name, options) = match simulated.split_once(':') {
            Some((name, options)) => (name, Some(options)),
            None => (simulated, None),
        };
        let mut simulated = Simulated::new(name);
        let options = options.into_iter().flat_map(|all| all.split(':'));
        let known = Parameters::NAMES.contains(&name)
            && options.into_iter().all(|one| simulated.set(one).is_some());
        known
            .then_some(Self::Simulated(simulated))
            .ok_or_else(unknown)
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulated = match self {
            Self::Device(choice) => return choice.fmt(f),
            Self::Simulated(simulated) => simulated,
        };
        write!(f, "sim:{}", simulated.name)?;
        if simulated.seed != SEED {
            write!(f, ":seed={}", simulated.seed)?;
        }
        if !simulated.without.is_empty() {
            let without = simulated.without.iter().map(Mechanism::to_string);
            write!(f, ":without={}", without.collect::<Vec<_>>().join("+"))?;
        }
        match simulated.bytes {
            true => f.write_str(":bytes"),
            false => Ok(()),
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
        for text in [
            "shm",
            "tcp",
            "sim:edr",
            "sim:10gbe-tcp:bytes",
            "sim:fdr:seed=7:without=contexts+switch:bytes",
        ] {
            let choice: FabricChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            assert_eq!(choice.parameters().is_some(), choice.is_simulated());
        }
        for text in [
            "sim",
            "sim:",
            "sim:hdr",
            "sim:edr:rows",
            "sim:edr:seed=",
            "sim:edr:seed=0",
            "sim:edr:without=",
            "sim:edr:without=luck",
            "pigeons",
        ] {
            let error = text.parse::<FabricChoice>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("edr"), "{error}");
        }
    }

    #[test]
    fn mechanisms_are_left_out() {
        let choice: FabricChoice = "sim:fdr:without=translations+split".parse().unwrap();
        let (all, some) = (Parameters::fdr(), choice.hardware().unwrap());
        assert!(some.nic.translations > all.nic.translations);
        assert!(some.nic.split < all.nic.split);
        assert_eq!(some.nic.contexts, all.nic.contexts);
    }
}
