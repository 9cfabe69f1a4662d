//! Plain, single-process DataFusion with the TPC-H tables: what a cluster's answers and times are
//! compared with. It shares no code with the distributed path but the generator.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::BoxFuture;

use super::TpchTables;
use super::files;
use super::generate::{Table, available_threads, check_scale, generate};
use super::outermost::{sort_columns, without_limit};
use crate::{EngineError, LoadProgress, Result, partitions_per_task};

/// DataFusion in this process alone, on the runtime of the caller.
#[derive(Clone)]
pub struct SingleProcess {
    pub(super) context: SessionContext,
}

/// All rows of a query, before its outermost OFFSET and LIMIT.
pub struct Uncut {
    /// The rows, in the query's order.
    pub rows: SendableRecordBatchStream,
    /// Indices of the columns that the query orders by, most significant first; empty if the query
    /// does not order its rows.
    pub sort_columns: Vec<usize>,
    /// Rows that the outermost OFFSET skips.
    pub skip: usize,
    /// The outermost LIMIT.
    pub fetch: Option<usize>,
}

impl SingleProcess {
    /// With the very same tables as a cluster's, and as many partitions as a task of a worker with
    /// `threads` threads.
    pub fn load<'a>(
        threads: usize,
        tables: &'a TpchTables,
        progress: &'a dyn LoadProgress,
    ) -> BoxFuture<'a, Result<Self>> {
        Box::pin(async move {
            let partitions = partitions_per_task(threads);
            let config = SessionConfig::new().with_target_partitions(partitions);
            let context = SessionContext::new_with_config(config);
            match tables {
                TpchTables::Memory { scale } => {
                    memory(&context, *scale, partitions, progress).await?;
                }
                TpchTables::Files { dir, scale } => {
                    files::provide(dir, *scale, progress).await?;
                    files::register(&context, dir).await?;
                }
            }
            Ok(Self { context })
        })
    }

    /// Runs a query.
    pub fn query<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<SendableRecordBatchStream>> {
        Box::pin(async move {
            let plan = self.context.state().create_logical_plan(sql).await?;
            self.start(plan).await
        })
    }

    /// Runs a query without its outermost OFFSET and LIMIT, so that every row that the cut could
    /// have let through is known.
    ///
    /// # Errors
    /// Also when they are not numbers.
    pub fn query_uncut<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<Uncut>> {
        Box::pin(async move {
            let plan = self.context.state().create_logical_plan(sql).await?;
            let (plan, skip, fetch) = without_limit(plan)?;
            let sort_columns = sort_columns(&plan);
            Ok(Uncut {
                rows: self.start(plan).await?,
                sort_columns,
                skip,
                fetch,
            })
        })
    }

    async fn start(&self, plan: LogicalPlan) -> Result<SendableRecordBatchStream> {
        let plan = self.context.state().create_physical_plan(&plan).await?;
        Ok(execute_stream(plan, self.context.task_ctx())?)
    }
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
