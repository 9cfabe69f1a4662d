//! Heavy keys of joins whose inputs are both shuffled. [`roundel_exchange::skew`] says which keys are heavy, and where their
//! rows go. This module says for which joins that is right, and how the tasks of a query agree on it.
//!
//! ```text
//!   coordinator      which joins, and which of their inputs may be spread      joins
//!   tasks of both    read first batches, count hashes of keys ──Agree──┐       sampling
//!   one worker       waits for all samples, decides once ◄─────────────┘       agreements
//!   tasks of both    scatter: a heavy key's rows in turn, or to all            scatter/by_hash
//! ```
//!
//! One worker decides for all tasks of a join, and decides once: whatever becomes of a sample, all do the same. Without
//! heavy keys rows are scattered as they would be without all this.

mod agreements;
mod joins;
mod sampling;

pub(super) use agreements::Agreements;
pub(super) use joins::{SkewedJoins, find};
pub(super) use sampling::Sampling;
