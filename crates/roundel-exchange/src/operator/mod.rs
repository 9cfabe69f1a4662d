//! The operators SHUFFLE and RECEIVE (Liu et al. 2019, section 4.3), over one endpoint or one per
//! thread.
//!
//! Partition `p` of a node travels over its endpoint `p mod endpoints`, on both sides: with one
//! endpoint per thread no two threads share one.

mod broadcast;
mod coalesce;
mod frames;
mod inbox;
mod incoming;
mod lane;
mod link_end;
mod local;
mod outgoing;
mod receive;
mod route;
mod scatter;
mod shared;
mod shuffle;
mod stream;
mod waiting;

pub use broadcast::Broadcast;
pub use local::LocalLinks;
pub use receive::{Receive, ReceiveLink};
pub use route::Route;
pub use scatter::{Partitioner, Scatter};
pub use shared::SharedStreams;
pub use shuffle::{Destination, Group, Shuffle};
pub use stream::PartitionStream;
