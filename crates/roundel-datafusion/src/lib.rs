//! Roundel's exchange as the transport of any datafusion-distributed application: control over gRPC, rows through
//! registered buffers over RDMA devices, shared memory or sockets.
//!
#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! ```text
//!   consumer task                                   producer task
//!     RoundelChannel::execute_task                    ExchangeService
//!       Receive::offer ──Execute(task, offers)──────►   Worker::execute_task → streams
//!                                                       Shuffle::accept
//!       Receive::connect ◄──Accepted(answers, schema)─  one sender per partition: Shuffle::send
//!       PartitionStream ◄══════ exchange ═════════════  or, shuffled, one task per partition of the
//!       errors, cancellation ◄──── stream's end ─────►  input for all consumers: Scatter::send
//! ```
//!
//! | module | for |
//! |---|---|
//! | `exchange`, `options` | what an application has: one object for each process |
//! | `settings`, `designs` | what a coordinator decides for one query, and how it is told to the workers |
//! | `client`, `producer` | the consumer's side |
//! | `server`, `service`, `scatter`, `broadcast` | the producer's side |
//! | `skew` | joins with heavy keys |
//! | `measures` | what `EXPLAIN ANALYZE` shows of exchanges |
//! | `node`, `devices`, `multiplexers`, `meeting` | the devices of a process, and what runs on them |
//! | `calls`, `protocol` | what processes say to each other besides plans and rows: `proto/exchange.proto` |
//! | `causes`, `failure`, `error` | what failed, and what that means |
//!
//! This crate knows nothing of clusters, tables or secrets, nor of queue pairs and messages.

mod broadcast;
mod budget;
mod calls;
mod causes;
mod client;
mod counters;
mod designs;
mod devices;
mod error;
mod exchange;
mod fabric;
mod failure;
mod forget;
mod key_hashes;
mod measures;
mod meeting;
mod multiplexers;
mod node;
mod options;
mod own_address;
mod producer;
mod protocol;
mod scatter;
mod server;
mod service;
mod settings;
mod skew;

pub use calls::{Channels, ConnectWorkers};
pub use error::{Result, TransportError};
pub use exchange::{RoundelExchange, WorkerSessions};
pub use fabric::{Fabric, FabricChoice};
pub use options::{ExchangeOptions, REGISTERED_MEMORY_BYTES};
pub use protocol::ExchangeServer;
pub use server::ExchangeService;
pub use settings::{QuerySettings, Setting};

pub use roundel_exchange::{
    Architecture, BuffersChoice, Design, DesignChoice, OnLoss, Scheduling, Spending, Spent,
};
pub use roundel_verbs::DeviceChoice;

/// What an engine with workers of its own builds on.
pub mod engine {
    pub use crate::calls::status_error;
    pub use crate::causes::cause;
    pub use crate::counters::{FabricCounters, collect};
    pub use crate::designs::{Asked, Designs};
    pub use crate::devices::{Devices, Offer};
    pub use crate::error::LOST_WORKER;
    pub use crate::measures::{COORDINATOR, Ends, LinkSpent, links_spent};
    pub use crate::node::ExchangeNode;
    pub use crate::own_address::{own_address, reachable_at};
}
