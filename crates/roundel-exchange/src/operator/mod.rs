//! The operators SHUFFLE and RECEIVE (Liu et al. 2019, section 4.3), over one endpoint or one per
//! thread.
//!
//! Partition `p` of a node travels over its endpoint `p mod endpoints`, on both sides: with one
//! endpoint per thread no two threads share one.

/// Does the same with an endpoint and with what is a multiplexer's.
macro_rules! either {
    ($self:ident, $either:ident => $does:expr) => {
        match $self {
            Self::Endpoint($either) => $does,
            Self::Multiplexer($either) => $does,
        }
    };
}

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
