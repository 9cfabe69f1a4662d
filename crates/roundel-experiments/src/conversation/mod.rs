//! Conversations of many nodes, by message passing protocols (Huang, Ghandeharizadeh 2019): which ones their figures have,
//! and what simulated hardware makes of them. It knows nothing of what the figures say.

mod sweep;

pub use sweep::{
    FIG_10A, FIG_10B, FIG_10C, FIG_11, FIG_12A, FIG_12B, FIG_12C, FIG_13, FIG_14A, FIG_14B,
    FIG_14C, FIG_15, NODES, Sweep, VALUE, Varied,
};

use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use roundel_protocols::paradigm::{Measured, Setting, simulate_steady};
use serde::{Deserialize, Serialize};

/// A conversation, and the hardware on which it is simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The hardware.
    pub fabric: FabricChoice,
    /// Who asks whom, and how.
    pub setting: Setting,
}

impl Conversation {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// [`Error::Setting`], with the reason.
    pub fn check(&self) -> Result<()> {
        let checked = self.setting.check();
        checked.map_err(|error| Error::Setting(error.to_string()))
    }
}

/// Measures a conversation once it is even. The same one measures the same.
///
/// # Errors
/// When it makes no sense, the hardware cannot carry it, or a call failed.
pub fn simulate(conversation: &Conversation) -> Result<Measured> {
    conversation.check()?;
    let Some(parameters) = conversation.fabric.hardware() else {
        return Err(Error::Setting(format!(
            "conversations of many nodes need simulated hardware, sim:NAME: {} is none",
            conversation.fabric
        )));
    };
    let mut measured = simulate_steady(
        &conversation.setting,
        &parameters,
        conversation.fabric.seed(),
    )?;
    // What all of them measured is what is told.
    measured.nodes.clear();
    Ok(measured)
}
