//! The TPC-H tables in plain, single-process DataFusion: what a cluster's answers and times are
//! compared with. It shares no code with the distributed path but the generator.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::TpchTables;
use super::files;
use super::generate::{Table, check_scale, generate};
use crate::{EngineError, LoadProgress, Result, partitions_per_task};

/// A context of plain, single-process DataFusion with the very same tables, to verify against and
/// to compare times with. It has as many partitions as a task of a worker with `threads` threads.
pub async fn single_process_context(
    threads: usize,
    tables: &TpchTables,
    progress: &dyn LoadProgress,
) -> Result<SessionContext> {
    let partitions = partitions_per_task(threads);
    let config = SessionConfig::new().with_target_partitions(partitions);
    let context = SessionContext::new_with_config(config);
    match tables {
        TpchTables::Memory { scale } => memory(&context, *scale, partitions, progress).await?,
        TpchTables::Files { dir, scale } => {
            files::provide(dir, *scale, progress).await?;
            files::register(&context, dir).await?;
        }
    }
    Ok(context)
}

async fn memory(
    context: &SessionContext,
    scale: f64,
    partitions: usize,
    progress: &dyn LoadProgress,
) -> Result<()> {
    check_scale(scale)?;
    for table in Table::ALL {
        let chunks: Vec<usize> = (0..table.chunks(scale)).collect();
        let generated = move || generate(table, scale, &chunks, available_threads(), &|_| true);
        let batches = tokio::task::spawn_blocking(generated)
            .await
            .map_err(|e| EngineError::Query(e.to_string()))??;
        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        progress.advance(table.name(), rows, rows);
        let mut dealt = vec![Vec::new(); partitions];
        for (index, batch) in batches.into_iter().enumerate() {
            dealt[index % partitions].push(batch);
        }
        let provider = MemTable::try_new(table.schema(), dealt)?;
        context.register_table(table.name(), Arc::new(provider))?;
    }
    Ok(())
}

/// Threads that generate: as many as the machine runs at once.
pub(super) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get())
}
