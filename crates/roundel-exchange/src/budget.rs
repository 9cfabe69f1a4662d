//! Whom the exchange asks for memory beyond its registered buffers, and where it puts rows when
//! there is none. The engine injects its own.

use std::fs::File;

/// Memory for rows that have arrived and whose consumer is not ready for them.
pub trait MemoryBudget: Send + Sync {
    /// Takes `bytes` from the budget; false when they are not to be had.
    fn try_grow(&self, bytes: usize) -> bool;
    /// Gives `bytes` back.
    fn shrink(&self, bytes: usize);
    /// A new temporary file for rows that do not fit in memory; it vanishes when it is dropped.
    ///
    /// # Errors
    /// The message for the user when there is no memory and no disk either.
    fn spill_file(&self) -> Result<SpillFile, String>;
}

/// A temporary file, and whatever keeps it alive.
pub struct SpillFile {
    /// Open for reading and writing.
    pub file: File,
    /// Dropped after the file: removes it.
    pub guard: Box<dyn Send + Sync>,
}

/// A budget without end, for programs without an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl MemoryBudget for Unlimited {
    fn try_grow(&self, _bytes: usize) -> bool {
        true
    }

    fn shrink(&self, _bytes: usize) {}

    fn spill_file(&self) -> Result<SpillFile, String> {
        Err("an unlimited budget never spills".into())
    }
}
