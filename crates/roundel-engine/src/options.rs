//! The options that a cluster and a worker are started with: their names, limits and defaults in one place.

use std::net::SocketAddr;
use std::path::PathBuf;

use roundel_exchange::{Architecture, BuffersChoice, DesignChoice, OnLoss, Scheduling};

use crate::{Extensions, FabricChoice, Skew, Token};

/// Fewest partitions of a task. With one, datafusion-distributed 4.0.0 returns wrong rows for
/// TPC-H queries 11 and 15.
pub const PARTITIONS_PER_TASK_MIN: usize = 2;

/// How to start, or join, a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Worker processes to start, at least 1. Ignored by [`crate::Cluster::connect`].
    pub workers: usize,
    /// Runtime threads of each worker. Tasks have at least [`PARTITIONS_PER_TASK_MIN`] partitions.
    pub threads: usize,
    /// What carries the rows.
    pub fabric: FabricChoice,
    /// Which connections exchanges use. gRPC does not read it.
    pub exchange: Architecture,
    /// The shuffle design, for all exchanges or what suits each. gRPC does not read it.
    pub design: DesignChoice,
    /// Endpoints of each side of an exchange in a node, from 1 to `threads`; those of the design
    /// when `None`. gRPC does not read it.
    pub endpoints: Option<usize>,
    /// Which registered buffers links keep. gRPC does not read it.
    pub buffers: BuffersChoice,
    /// The handling of keys that have far more rows than others; `SET roundel.skew` changes it for a session. gRPC
    /// does not read it.
    pub skew: Skew,
    /// What is done about lost datagrams. gRPC does not read it.
    pub on_loss: OnLoss,
    /// Whether multiplexers send by a schedule.
    pub schedule: Scheduling,
    /// Quota of registered memory of each worker, in bytes. gRPC does not read it.
    pub registered_memory_bytes: u64,
    /// Limit of each worker's query memory, in bytes; beyond it operators spill or fail.
    pub memory_limit_bytes: Option<u64>,
    /// What the application adds to DataFusion; workers need the same.
    pub extensions: Extensions,
    /// The executable that is run as `PROGRAM worker …` for each worker.
    pub worker_program: PathBuf,
}

impl ClusterOptions {
    /// Partitions of each task: as many as threads, but never fewer than
    /// [`PARTITIONS_PER_TASK_MIN`].
    pub fn partitions_per_task(&self) -> usize {
        partitions_per_task(self.threads)
    }
}

/// Partitions of a task whose worker has `threads` runtime threads.
pub fn partitions_per_task(threads: usize) -> usize {
    threads.max(PARTITIONS_PER_TASK_MIN)
}

/// How a worker process serves.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Runtime threads of the process; the caller builds the runtime with as many.
    pub threads: usize,
    /// The cluster's secret; requests without it are refused.
    pub token: Token,
    /// What carries the rows.
    pub fabric: FabricChoice,
    /// What is done about lost datagrams. gRPC does not read it.
    pub on_loss: OnLoss,
    /// Whether multiplexers send by a schedule.
    pub schedule: Scheduling,
    /// Quota of registered memory, in bytes. gRPC does not read it.
    pub registered_memory_bytes: u64,
    /// Limit of query memory, in bytes; beyond it operators spill or fail.
    pub memory_limit_bytes: Option<u64>,
    /// What the application adds to DataFusion, as its coordinator does.
    pub extensions: Extensions,
    /// End when standard input closes, that is, when the process that started this one is gone.
    pub lifeline: bool,
}
