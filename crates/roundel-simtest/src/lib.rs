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
//!
//! Experiments on simulated clusters use its parts, too: [`linking`], [`keyed`] rows, [`zipf`], and [`Agreeing`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods))] // See clippy.toml.

mod agreeing;
pub mod as_text;
mod join;
pub mod keyed;
pub mod linking;
mod nodes;
mod plan;
mod rows;
mod run;
mod seeds;
mod shrink;
pub mod zipf;

pub use agreeing::Agreeing;
pub use plan::{Join, Multiplexed, Pattern, Plan};
pub use run::{Broken, Ended, run};
pub use seeds::{Found, Search, search};
pub use shrink::shrink;
