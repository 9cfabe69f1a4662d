//! Joins of any predicate on a ring of workers (`roundel-ring`), as an operator of distributed plans.
//!
//! ```text
//!   NestedLoopJoinExec ──planner──► CycloJoinExec, one task on each worker
//!                                   its inputs: what this task has of either side, from anywhere
//!                                   meeting:    neighbours find each other, over gRPC
//!                                   cyclo-join: one side spins, over the exchange's devices
//! ```
//!
//! * [`condition`] reads what a join's filter says about the distance of two columns.
//! * [`rates`] are those of this host, by which the planner (`planner::cyclo_joins`) estimates which joins to put on rings.
//! * [`pinnable`] says what can stay pinned to a ring, and [`pins`] has what does.
//! * [`exec`] is the operator, and [`task`] what a task of it does.
//! * [`predicate`] tests pairs by a join's filter.
//!
//! This module knows nothing of queue pairs.

use roundel_ring::RingHost;

mod codec;
mod condition;
mod exec;
mod meeting;
mod pinnable;
mod pins;
mod predicate;
mod rates;
mod task;

pub(crate) use codec::CycloJoinCodec;
pub(crate) use exec::{CycloJoinExec, Keys, is_on_ring};
pub(crate) use meeting::{Meetings, RingService, RingWorker};
pub(crate) use pinnable::name_of_pinned;
pub(crate) use pins::Pins;
pub use rates::{Calibration, calibrate_host};
pub(crate) use rates::{known_rates, measure_once};

/// What a ring runs on: a device of the exchange.
fn host_on(fabric: &roundel_exchange::Fabric) -> RingHost {
    RingHost {
        device: fabric.device.clone(),
        arena: fabric.arena.clone(),
        channel: fabric.channel.clone(),
        context: fabric.context.clone(),
    }
}
