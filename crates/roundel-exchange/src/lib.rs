//! The exchange of a parallel query engine over RDMA verbs: communication endpoints, transmission
//! groups, and the operators SHUFFLE and RECEIVE (Liu, Yin, Blanas, TODS 2019).
//!
//! ```text
//!   RecordBatch ─► Shuffle ─► frame ─► messages ─► SendEndpoint ══SEND══► ReceiveEndpoint
//!                                                                              │
//!   RecordBatch ◄─ PartitionStream ◄─ frame ◄─ fragments by offset ◄───────────┘
//! ```
//!
//! * [`designs`]: the eight designs, and how each carries messages over one link.
//! * `link`: the small parts of a link: credit, queues, sequence, window, silence, repair.
//! * [`endpoint`]: messages to groups, end-of-stream; knows no rows.
//! * [`selection`]: which rows of a batch go where; knows no columns.
//! * [`frame`]: a batch as one run of bytes and back; knows no messages.
//! * [`wire`]: the header of a message.
//! * [`operator`]: puts the three together.
//! * [`multiplexer`]: carries the links of all exchanges of a node over one connection to each other node.
//! * [`skew`]: which keys of a join are heavy, and where their rows go.
//! * [`account`]: what tasks spend their time on.
//! * [`mesh`]: joins nodes all with all, for programs without an engine.
//!
//! This crate knows nothing of DataFusion, nor which provider runs below. What it needs from an
//! engine is injected: [`Partitioner`] and [`MemoryBudget`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods))] // See clippy.toml.

pub mod account;
pub mod architecture;
pub mod budget;
pub mod buffers;
pub mod choice;
pub mod designs;
pub mod endpoint;
pub mod error;
pub mod fabric;
pub mod frame;
mod link;
pub mod loss;
pub mod mesh;
pub mod multiplexer;
pub mod operator;
pub mod options;
pub mod report;
pub mod selection;
pub mod skew;
pub mod wire;

pub use account::{Account, Spending, Spent};
pub use architecture::{Architecture, UnknownArchitecture};
pub use budget::{MemoryBudget, SpillFile, Unlimited};
pub use buffers::{Buffers, BuffersChoice, UnknownBuffers, Window};
pub use choice::{Choice, Circumstances, DesignChoice, choose};
pub use designs::{Design, NotMultiplexed, Notification, UnknownDesign, Verb};
pub use endpoint::LinkAddress;
pub use error::ExchangeError;
pub use fabric::Fabric;
pub use loss::{OnLoss, UnknownOnLoss};
pub use mesh::Mesh;
pub use multiplexer::{
    ConnectionAddress, Multiplexer, MultiplexerOptions, MultiplexerReport, NodeId, ScheduleReport,
    Scheduling, UnknownScheduling,
};
pub use operator::{
    Destination, PartitionStream, Partitioner, Receive, ReceiveLink, Route, Scatter, Shuffle,
};
pub use options::{CreditBy, ExchangeOptions};
pub use report::{DestinationReport, EndpointReport};
pub use selection::{RowsByPartition, Selection};
