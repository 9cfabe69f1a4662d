//! What the programs of Roundel do on a terminal: values of flags, progress, results, errors in one line, and signals.
//!
//! This crate must not know what a program does.

pub mod failure;
pub mod flags;
pub mod log;
pub mod progress;
pub mod report;
pub mod signals;

pub use failure::Failure;
pub use report::{Text, write_json};
pub use signals::Signals;
