//! Exchanges on virtual time, drawn from seeds, with faults: whether every row arrives exactly once at the right
//! node, or a typed error comes in time.
//!
//! ```text
//!   seed ──draw──► Plan ──run──► Ended
//!                   ▲              │ broken?
//!                   └────shrink────┘
//! ```
//!
//! A [`Plan`] says all: the same plan has the same events, whose hash is in [`Ended`]. It must not know of
//! commands and terminals.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))] // See clippy.toml.

mod cluster;
mod join;
mod nodes;
mod plan;
mod rows;
mod seeds;
mod shrink;

pub use cluster::{Broken, Ended, run};
pub use join::Join;
pub use plan::{Multiplexed, Pattern, Plan};
pub use seeds::{Found, Search, search};
pub use shrink::shrink;
