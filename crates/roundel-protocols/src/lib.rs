//! Message protocols over the verbs object model, and measurements of them.
//!
//! This crate knows nothing of rows, exchanges or queries, and not which provider runs below: it
//! asks [`Capabilities`](roundel_verbs::Capabilities).
//!
//! * [`perf`] measures single verbs between two ends: bandwidth, message rate and latency.

pub mod perf;
