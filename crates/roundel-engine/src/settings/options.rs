//! The settings that are Roundel's own: `roundel.…`, which a session has.
//!
//! It knows nothing of how they travel.

use datafusion::common::extensions_options;
use datafusion::config::{ConfigExtension, ConfigOptions};
use datafusion::error::Result;
use strum::{Display, EnumString};

use crate::{EngineError, Fabric};

extensions_options! {
    /// How a session's rows are carried.
    pub(crate) struct ExchangeConfig {
        /// What carries the rows; the cluster's, so it cannot be set
        pub fabric: String, default = Fabric::Grpc.to_string()
        /// What is done about keys with far more rows than others: auto or off
        pub skew: String, default = Skew::default().to_string()
        /// How joins of rows on several workers are done: auto, cyclo, repartition or broadcast
        pub join: String, default = "auto".to_owned()
        /// Which side of a join spins on a ring: the smaller or the larger one
        pub spin: String, default = "smaller".to_owned()
        /// Buffers of a worker that elements of a ring come into
        pub ring_elements: usize, default = 8
        /// Bytes of an element of a ring: at least those of the longest row that spins
        pub ring_element_bytes: usize, default = 1 << 20
        /// Seconds for which a relation that spins stays in the workers' memory after the last query that joined it; 0 for not at all
        pub pin_seconds: u64, default = 0
    }
}

impl ConfigExtension for ExchangeConfig {
    const PREFIX: &'static str = "roundel";
}

impl ExchangeConfig {
    pub(crate) fn new(fabric: Fabric, skew: Skew) -> Self {
        Self {
            fabric: fabric.to_string(),
            skew: skew.to_string(),
            ..Self::default()
        }
    }
}

/// How joins of two shuffled inputs treat keys that have far more rows than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = EngineError, parse_err_fn = unknown)]
pub enum Skew {
    /// Their rows go where their hash says, as all others do.
    Off,
    /// They are found while rows are shuffled. Their rows are spread on one side and sent to all on the other.
    #[default]
    Auto,
}

fn unknown(skew: &str) -> EngineError {
    EngineError::Usage(format!("unknown skew {skew:?}: use off or auto"))
}

/// The value of the setting in a session.
///
/// # Errors
/// When the setting has no such value.
pub(crate) fn skew_of(config: &ConfigOptions) -> Result<Skew, EngineError> {
    let set = config.extensions.get::<ExchangeConfig>();
    set.map_or(Ok(Skew::default()), |set| set.skew.parse())
}

/// The fabric of a query that a coordinator sent.
///
/// # Errors
/// When there is no such fabric.
pub(crate) fn fabric_of(config: &ConfigOptions) -> Result<Fabric, EngineError> {
    let set = config.extensions.get::<ExchangeConfig>();
    set.map_or(Ok(Fabric::Grpc), |set| Ok(set.fabric.parse()?))
}
