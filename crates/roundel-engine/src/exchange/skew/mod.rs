//! Heavy keys of joins whose inputs are both shuffled. [`roundel_exchange::skew`] says which keys are heavy, and where their
//! rows go. This module says for which joins that is right, and how the tasks of a query agree on it.
//!
//! ```text
//!   coordinator      which joins, and which of their inputs may be spread      joins, role
//!   tasks of both    read first batches, count hashes of keys ──Agree──┐       sampling
//!   one worker       waits for all samples, decides once ◄─────────────┘       agreements
//!   tasks of both    scatter: a heavy key's rows in turn, or to all            scatter/by_hash
//! ```
//!
//! One worker decides for all tasks of a join, and decides once: whatever becomes of a sample, all do the same. Without
//! heavy keys rows are scattered as they would be without all this.

mod agreements;
mod joins;
mod role;
mod sampling;

pub(super) use agreements::Agreements;
pub(super) use joins::{SkewedJoins, find};
pub(super) use role::role_of;
pub(super) use sampling::Sampling;

use crate::settings::ExchangeConfig;
use crate::{EngineError, Result};
use datafusion::config::ConfigOptions;
use strum::{Display, EnumString};

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
pub(crate) fn skew_of(config: &ConfigOptions) -> Result<Skew> {
    let set = config.extensions.get::<ExchangeConfig>();
    set.map_or(Ok(Skew::default()), |set| set.skew.parse())
}
