//! The atomics of the shared rings: the standard ones, or loom's when the rings are
//! model-checked (`RUSTFLAGS="--cfg roundel_loom"`).

#[cfg(not(roundel_loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(roundel_loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
