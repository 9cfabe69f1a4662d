//! Joins of any predicate on a ring of workers (`roundel-ring`), as an operator of distributed plans.
//!
//! ```text
//!   NestedLoopJoinExec ──rule──► CycloJoinExec, one task on each worker
//!                                   its inputs: what this task has of either side, from anywhere
//!                                   meeting:    neighbours find each other, over gRPC
//!                                   cyclo-join: one side spins, over the exchange's devices
//! ```
//!
//! * [`condition`] reads what a join's filter says about the distance of two columns.
//! * [`rule`] puts joins on rings, by what [`choice`] estimates of them with the [`rates`] of this host, and as the
//!   [settings](crate::settings) of the session have it.
//! * [`pinnable`] says what can stay pinned to a ring, and [`pins`] has what does.
//! * [`exec`] is the operator, and [`task`] what a task of it does.
//! * [`predicate`] tests pairs by a join's filter.
//!
//! This module knows nothing of queue pairs.

use roundel_ring::RingHost;

mod choice;
mod codec;
mod condition;
mod exec;
mod meeting;
mod pinnable;
mod pins;
mod predicate;
mod rates;
mod rule;
mod task;

pub(crate) use codec::CycloJoinCodec;
pub(crate) use exec::{CycloJoinExec, is_on_ring};
pub(crate) use meeting::{Meetings, RingServer, RingWorker};
pub(crate) use pins::Pins;
pub(crate) use rates::measure_once;
pub use rates::{Calibration, calibrate_host};
pub(crate) use rule::CycloJoins;

/// What a ring runs on: a device of the exchange.
fn host_on(fabric: &roundel_exchange::Fabric) -> RingHost {
    RingHost {
        device: fabric.device.clone(),
        arena: fabric.arena.clone(),
        channel: fabric.channel.clone(),
        context: fabric.context.clone(),
    }
}
