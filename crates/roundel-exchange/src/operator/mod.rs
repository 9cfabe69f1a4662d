//! The operators SHUFFLE and RECEIVE (Liu et al. 2019, section 4.3), over one endpoint or one per
//! thread.
//!
//! Partition `p` of a node travels over its endpoint `p mod endpoints`, on both sides: with one
//! endpoint per thread no two threads share one.

mod coalesce;
#[cfg(target_arch = "x86_64")]
mod compress;
mod inbox;
mod local;
mod receive;
mod rows_by_partition;
mod scatter;
mod shuffle;

pub use local::LocalLinks;
pub use receive::{PartitionStream, Receive, ReceiveLink};
pub use rows_by_partition::RowsByPartition;
pub use scatter::{Partitioner, Scatter};
pub use shuffle::{Destination, Group, Shuffle};
