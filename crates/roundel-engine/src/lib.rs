//! SQL over a cluster of worker processes: DataFusion plans, datafusion-distributed places the
//! stages, and a fabric carries the rows.
//!
//! ```text
//!   Session ──sql──► distributed plan ──control, gRPC──► workers (tasks, shards of tables)
//!      ▲                                                   │  ▲
//!      └───────────────── rows of the last stage ──────────┘  └── rows, worker to worker: fabric
//! ```
//!
//! | module | for |
//! |---|---|
//! | `cluster` | starting, joining and watching workers |
//! | `worker` | serving as one |
//! | `protocol` | what a coordinator and a worker say to each other besides plans and rows |
//! | `channel` | how the members of a cluster reach its workers |
//! | `fabric` | which fabric carries the rows of a cluster's queries; `roundel_datafusion` is what carries them |
//! | `ring` | joins of any predicate, on a ring of workers |
//! | `session`, `query` | SQL, and a running query |
//! | `extensions` | functions and codecs that an application adds |
//! | `planner` | from DataFusion's plan of a query to stages whose answer does not depend on their tasks |
//! | `settings` | what SET and SHOW know, and how it reaches the workers |
//! | `tables` | memory tables in shards, files |
//! | `tpch` | queries and tables of TPC-H |
//!
//! This crate must not know of queue pairs. Its public futures are boxed: the body of an `async fn` would be
//! compiled again, with all of gRPC, in each crate that awaits it.

mod channel;
mod cluster;
mod error;
mod extensions;
mod fabric;
mod functions;
mod host;
mod membership;
mod options;
mod order_only;
mod planner;
mod protocol;
mod query;
mod ring;
mod rules;
mod runtime;
mod session;
mod settings;
mod spill_dir;
mod tables;
mod time_spent;
mod token;
pub mod tpch;
mod worker;

pub use cluster::{Cluster, WorkerStatus};
pub use error::{EngineError, Result};
pub use extensions::Extensions;
pub use fabric::FabricReason;
pub use options::{ClusterOptions, PARTITIONS_PER_TASK_MIN, WorkerOptions, partitions_per_task};
pub use ring::{Calibration, calibrate_host};
pub use roundel_datafusion::engine::FabricCounters;
pub use roundel_datafusion::{
    Architecture, BuffersChoice, Design, DesignChoice, DeviceChoice, Fabric, FabricChoice, OnLoss,
    Scheduling,
};
pub use roundel_exchange::Verb;
pub use session::{LoadProgress, Session};
pub use settings::Skew;
pub use token::Token;
pub use worker::{STACK_BYTES, run_worker, runtime};
