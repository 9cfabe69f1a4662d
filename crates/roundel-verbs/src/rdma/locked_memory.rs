//! How much memory this process may lock, and so register with a device. It registers none.

use crate::error::{Result, VerbsError};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

/// The limit of locked memory, per process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LockedMemory {
    /// What applies; none is no limit.
    pub limit_bytes: Option<u64>,
    /// To what this process may raise it itself; none is no limit.
    pub hard_limit_bytes: Option<u64>,
    /// The process has the right to exceed it (`CAP_IPC_LOCK`), as root has.
    pub exempt: bool,
}

impl LockedMemory {
    /// What this process may lock.
    pub fn of_this_process() -> Self {
        let limit = getrlimit(Resource::Memlock);
        let held = capabilities(None).map(|sets| sets.effective);
        Self {
            limit_bytes: limit.current,
            hard_limit_bytes: limit.maximum,
            exempt: held.is_ok_and(|held| held.contains(CapabilitySet::IPC_LOCK)),
        }
    }

    /// Whether a process may lock so many bytes.
    pub fn allows(&self, bytes: u64) -> bool {
        self.exempt || self.limit_bytes.is_none_or(|limit| limit >= bytes)
    }

    /// The same, as an error that says what to do.
    ///
    /// # Errors
    /// [`VerbsError::MemoryLockLimit`] when the process may not lock so much.
    pub fn require(&self, bytes: usize) -> Result<()> {
        match self.limit_bytes {
            Some(limit) if !self.allows(bytes as u64) => Err(VerbsError::MemoryLockLimit {
                requested: bytes,
                limit,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_unless_the_process_is_exempt() {
        let mut memory = LockedMemory {
            limit_bytes: Some(64 << 10),
            hard_limit_bytes: Some(64 << 10),
            exempt: false,
        };
        assert!(memory.require(64 << 10).is_ok());
        let refused = memory.require((64 << 10) + 1).unwrap_err().to_string();
        assert!(refused.contains("65537"), "{refused}");
        assert!(refused.contains("65536"), "{refused}");
        memory.exempt = true;
        assert!(memory.require(usize::MAX).is_ok());
        memory.exempt = false;
        memory.limit_bytes = None;
        assert!(memory.require(usize::MAX).is_ok());
    }
}
