//! Nodes of which one has a slow core.

use super::Hybrid;
use crate::fabric::FabricChoice;
use roundel_exchange::Architecture;

/// Cores of a node.
pub(crate) const CORES: usize = 4;

/// Nodes of four cores, whose consumers have more to do than the network.
pub(crate) fn straggler(fabric: FabricChoice, architecture: Architecture, slow: u32) -> Hybrid {
    Hybrid {
        threads: CORES,
        slow,
        work_cycles: 400_000,
        messages: 100,
        ..Hybrid::new(fabric, architecture, 4)
    }
}

/// How much longer it takes at the least when one core of a node is so many times as slow: what it does not do, the others
/// do.
pub(crate) fn ideal(slow: u32) -> f64 {
    let cores = CORES as f64;
    cores / (cores - 1.0 + 1.0 / f64::from(slow))
}
