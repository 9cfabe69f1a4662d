//! Bandwidth, message rate and latency of single verbs between two ends, on any provider.
//!
//! ```text
//!   initiator: meet ── initiate(tests) ─┐   for each test, over the rendezvous:
//!                                       ├──   test → queue pairs connect → every verb's bytes are
//!   responder: meet ── respond ─────────┘     verified → warm-up → timed runs → counts compared
//! ```
//!
//! The initiator says what is measured. Each end measures in one thread of its own, which talks to
//! its peer over the rendezvous only between the runs (`link`); what a run does is a `Work`
//! whose steps never block, so that polling and sleeping are one policy in one place (`drive`).
//! It must not know what it is measured for, nor print anything.

mod bandwidth;
mod drive;
mod end;
mod error;
mod latency;
mod link;
mod message;
mod payload;
mod report;
mod session;
mod test;
mod verify;

pub use error::{PerfError, Result};
pub(crate) use report::cpu_time;

pub use message::{DeviceFacts, EndFacts};
pub use report::{CpuSeconds, LatencyMicroseconds, Measurement, Run};
pub use session::{Measuring, Session, meet};
pub use test::{
    Length, Measure, Polling, Test, Verb, message_bytes_max, transport_name, transport_named,
};

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod tests;
