//! Data Roundabout and cyclo-join (Frey, Goncalves, Kersten, Teubner, "A Spinning Join That Does Not Get Dizzy",
//! ICDCS 2010): hosts form a ring on which one relation spins past the other, which stays where it is, so that joins of
//! any predicate run in the memory of all of them.
//!
//! ```text
//!            ┌──────► host 0 ──────► host 1 ──────┐        on each host:
//!            │        S0 stays       S1 stays     ▼
//!   elements of R                               host 2       receiver ─► join entity ─► transmitter
//!            ▲        host 4 ◄────── host 3 ◄─────┘                      against S
//!            └───────────┘
//! ```
//!
//! * [`roundabout`] moves elements, which are runs of bytes, around the ring; knows no rows.
//! * [`join`] joins rows on one host; knows no ring.
//! * [`cyclo`] puts the two together.
//! * [`pinned`] keeps a relation spinning, for all queries that join it.
//! * [`spin`] makes elements of rows, and rows of elements.
//! * [`cost`] says beforehand how long a join takes.
//!
//! This crate knows nothing of DataFusion, nor which provider runs below. An engine injects what this crate needs from it:
//! [`PairPredicate`] and [`JoinThreads`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods))] // See clippy.toml.

pub mod cost;
pub mod cyclo;
pub mod error;
pub mod join;
pub mod pinned;
pub mod roundabout;
pub mod spin;
pub mod threads;

pub use cyclo::{Cyclo, Demand, Output, Phases};
pub use error::RingError;
pub use join::{Algorithm, JoinSpec, JoinType, Limits, PairPredicate, Window};
pub use pinned::{Pinned, QueryId};
pub use roundabout::{Place, RingHost, RingOptions, Roundabout};
pub use threads::{JoinThreads, TokioThreads};
