//! Rows over Roundel's exchange: control over gRPC, data through registered buffers.
//!
//! ```text
//!   consumer task                                   producer task
//!     RoundelChannel::execute_task                    ExchangeServer
//!       Receive::offer ──Execute(task, offers)──────►   Worker::execute_task → streams
//!                                                       Shuffle::accept
//!       Receive::connect ◄──Accepted(answers, schema)─  one sender per partition: Shuffle::send
//!       PartitionStream ◄══════ exchange ═════════════  or, shuffled, one task per partition of the
//!       errors, cancellation ◄──── stream's end ─────►  input for all consumers: Scatter::send
//! ```
//!
//! This module knows nothing of queue pairs or messages.

mod broadcast;
mod budget;
mod causes;
mod client;
pub(crate) mod counters;
mod designs;
mod failure;
mod key_hashes;
mod meeting;
mod multiplexers;
mod node;
mod producer;
mod protocol;
mod scatter;
mod server;
mod service;
mod setting;
mod skew;

pub(crate) use broadcast::gather_in;
pub(crate) use causes::cause;
pub(crate) use client::{OwnWorker, RoundelChannels};
pub use counters::FabricCounters;
pub(crate) use designs::{Asked, Designs};
pub(crate) use node::ExchangeNode;
pub(crate) use scatter::scatter_in;
pub(crate) use server::ExchangeServer;
pub use skew::Skew;
pub(crate) use skew::skew_of;
