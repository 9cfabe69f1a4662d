//! The memory and the disk that queries of one process may use.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

use crate::Result;
use crate::spill_dir::SpillDir;

/// How many of the largest consumers an out-of-memory error names.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// A runtime that spills to `spill_dir` when a query needs more than `memory_limit_bytes`.
pub(crate) fn runtime_env(
    memory_limit_bytes: Option<u64>,
    spill_dir: &SpillDir,
) -> Result<Arc<RuntimeEnv>> {
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![
        spill_dir.path().to_owned(),
    ]));
    // Directories are listed again for each query: files may have come, gone or changed.
    let mut builder = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(disk)
        .with_object_list_cache_limit(0);
    if let Some(limit) = memory_limit_bytes {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let pool = TrackConsumersPool::new(FairSpillPool::new(limit), NAMED_CONSUMERS);
        builder = builder.with_memory_pool(Arc::new(pool));
    }
    Ok(builder.build_arc()?)
}
