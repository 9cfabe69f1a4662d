//! How a process takes part in exchanges: names, limits and defaults in one place.

use std::net::IpAddr;

use roundel_exchange::{Architecture, Design, DesignChoice, OnLoss, Scheduling};

use crate::error::{Result, TransportError};
use crate::fabric::FabricChoice;
use crate::settings::Setting;

/// Quota of registered memory of a process that is not told one, in bytes.
pub const REGISTERED_MEMORY_BYTES: u64 = 256 << 20;

/// How a process takes part in exchanges.
#[derive(Clone, Debug)]
pub struct ExchangeOptions {
    /// What carries the rows.
    pub fabric: FabricChoice,
    /// The address of this host at which the other processes reach it, which `tcp` uses. Without one it is that from
    /// which this host reaches other networks, or loopback if it reaches none.
    pub address: Option<IpAddr>,
    /// What errors call this process. Without a name it is called by its number.
    pub name: Option<String>,
    /// Which connections exchanges use.
    pub architecture: Architecture,
    /// One shuffle design for all exchanges, or the one that suits each. A stage without a decision has the default one.
    pub design: DesignChoice,
    /// Endpoints of each side of an exchange in a process, at least 1.
    pub endpoints: usize,
    /// What is done about lost datagrams.
    pub on_loss: OnLoss,
    /// Whether multiplexers send by a schedule.
    pub scheduling: Scheduling,
    /// Quota of registered memory, in bytes.
    pub registered_memory_bytes: u64,
}

impl Default for ExchangeOptions {
    fn default() -> Self {
        Self {
            fabric: FabricChoice::default(),
            address: None,
            name: None,
            architecture: Architecture::default(),
            design: DesignChoice::default(),
            endpoints: 1,
            on_loss: OnLoss::default(),
            scheduling: Scheduling::default(),
            registered_memory_bytes: REGISTERED_MEMORY_BYTES,
        }
    }
}

impl ExchangeOptions {
    /// How the rows of a stage are exchanged for which nothing was decided.
    pub(crate) fn setting(&self) -> Setting {
        Setting {
            architecture: self.architecture,
            design: match (self.design, self.architecture) {
                (DesignChoice::Of(design), _) => design,
                (DesignChoice::Auto, Architecture::Multiplexer) => Design::SemqSr,
                (DesignChoice::Auto, _) => Design::default(),
            },
            endpoints: self.endpoints,
            ..Setting::default()
        }
    }

    /// The quota of registered memory.
    pub(crate) fn registered_bytes_max(&self) -> Result<usize> {
        usize::try_from(self.registered_memory_bytes)
            .map_err(|_| TransportError::Usage("more registered memory than addresses".to_owned()))
    }
}
