//! Message protocols over the verbs object model: who asks and who answers, over which verbs, and how fast that is
//! (Huang, Ghandeharizadeh 2019).
//!
//! ```text
//!   Requester ── requests ──► Responder     a thread's end each, over several connections
//!       ▲                         │         R calls pending on each; a Protocol says which verbs carry them
//!       └─────── responses ◄──────┘
//! ```
//!
//! This crate knows nothing of rows, exchanges or queries, and not which provider runs below: it
//! asks [`Capabilities`](roundel_verbs::Capabilities).
//!
//! * [`protocol`] names the protocols.
//! * [`requester`] and [`responder`] are the two ends, in steps that never block.
//! * [`advise`] says which protocol to use.
//! * [`rpc`] makes a client and a server of them: calls with a deadline, and a handler.
//! * [`paradigm`] measures conversations of many nodes.
//! * [`perf`] measures single verbs between two ends: bandwidth, message rate and latency.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))] // See clippy.toml.

pub mod advise;
pub mod drive;
pub mod end;
pub mod error;
#[cfg(test)]
mod hostile_tests;
mod message;
pub mod paradigm;
pub mod perf;
pub mod protocol;
pub mod requester;
pub mod responder;
pub mod rpc;
mod tcp;

pub use end::{EndOptions, Fabric};
pub use error::{CallError, ProtocolError};
pub use protocol::Protocol;
pub use requester::{Ended, Requester};
pub use responder::{Handler, Responder, Values};
