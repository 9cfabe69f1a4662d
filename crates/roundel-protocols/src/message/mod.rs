//! Messages between a thread and its peers: there they are put into frames and posted, here they are found, by a
//! completion or in memory, checked and copied out.
//!
//! ```text
//!   Port ── owns ──► queue pairs, one for each connection (RC, UC) or one for all (UD), and one completion queue
//!     ├─ outgoing:  frame ──► inline, or a buffer ──► one post for each queue pair
//!     └─ incoming:  receives, and slots in exposed memory that peers write to
//! ```
//!
//! It must not know what is a request and what a response, nor when to send again.

pub(crate) mod frame;
pub(crate) mod offer;
mod port;
mod sweeps;

pub(crate) use port::{Arrival, Arrivals, Port};
pub(crate) use sweeps::Sweeps;
