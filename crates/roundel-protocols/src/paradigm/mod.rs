//! Who asks whom: many-to-one, one-to-many and many-to-many conversations of threads on nodes, and what they measure
//! (Huang, Ghandeharizadeh 2019, section 4).
//!
//! ```text
//!   Setting ──► links: requester thread ──► responder thread     on every node the same
//!      node: Hand (its ends) ── offers ──► other nodes' ── connect ──► workers ──► Report
//! ```
//!
//! A requester thread owns its queue pairs, and so does a responder thread. It must not
//! print anything.

mod asking;
mod ends;
mod group;
mod hand;
mod links;
mod processors;
mod report;
mod setting;
mod simulation;
mod steady;

pub use asking::{Asking, Begin};
pub use group::{Group, GroupPlace};
pub use hand::{Answering, Hand, Worker};
pub use links::{Link, Place};
pub use report::{Measured, NodeReport};
pub use setting::{Load, Paradigm, Setting};
pub use simulation::simulate;
pub use steady::simulate_steady;
