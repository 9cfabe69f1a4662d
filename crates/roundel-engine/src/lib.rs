//! SQL over a cluster of worker processes: DataFusion plans, datafusion-distributed places the
//! stages, and a fabric carries the rows.
//!
//! ```text
//!   Session ──sql──► distributed plan ──control, gRPC──► workers (tasks, shards of tables)
//!      ▲                                                   │  ▲
//!      └───────────────── rows of the last stage ──────────┘  └── rows, worker to worker: fabric
//! ```
//!
//! This crate must not know of queue pairs: [`channel`](self) is its seam to an exchange.

mod cluster;
mod error;
mod options;
mod session;
mod token;
pub mod tpch;
mod worker;

pub use cluster::{Cluster, WorkerStatus};
pub use error::{EngineError, Result};
pub use options::{
    ClusterOptions, Fabric, PARTITIONS_PER_TASK_MIN, WorkerOptions, partitions_per_task,
};
pub use session::{LoadProgress, Session};
pub use token::Token;
pub use tpch::single_process_context;
pub use worker::run_worker;
