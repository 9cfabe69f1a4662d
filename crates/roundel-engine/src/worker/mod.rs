//! A worker process: serves tasks, holds shards of memory tables.

use crate::{Result, WorkerOptions};

/// Serves until it is stopped: by SIGTERM, or, with a lifeline, when standard input closes.
/// Prints `roundel worker listening on HOST:PORT` on standard output once it serves.
pub async fn run_worker(_options: WorkerOptions) -> Result<()> {
    unimplemented!()
}
