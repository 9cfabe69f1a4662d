//! What a query must return, and how long it takes, in single-process DataFusion. It knows nothing of clusters.

use std::time::Instant;

use futures::TryStreamExt;
use roundel_engine::Result;
use roundel_engine::tpch::{SingleProcess, TpchTables};
use tokio::runtime::Runtime;

use crate::cli::{Tables, TpchArgs};
use crate::progress::LoadBars;
use crate::verify::Expected;
use roundel_terminal::Failure;

/// DataFusion alone, on a runtime with as many threads as all workers have together.
pub struct Reference {
    process: SingleProcess,
    /// `Option` only so that it can be shut down from within another runtime.
    runtime: Option<Runtime>,
}

impl Reference {
    pub async fn load(args: &TpchArgs, workers: usize) -> Result<Self, Failure> {
        let threads = workers * usize::from(args.cluster.node.threads);
        let scale = args.scale;
        let tables = match &args.tables {
            Tables::Memory(_) => TpchTables::Memory { scale },
            Tables::Directory(directory) => TpchTables::Files {
                dir: directory.clone(),
                scale,
            },
        };
        let bars = LoadBars::new("reference:");
        Ok(Self {
            process: SingleProcess::load(threads, &tables, &bars).await?,
            runtime: Some(crate::runtime(Some(threads))?),
        })
    }

    /// What the query must return.
    pub async fn expected(&self, query: usize, sql: &'static str) -> Result<Expected, Failure> {
        let process = self.process.clone();
        let work = async move {
            let all = process.query_uncut(sql).await?;
            Ok(Expected {
                schema: all.rows.schema(),
                batches: all.rows.try_collect().await?,
                sort_columns: all.sort_columns,
                skip: all.skip,
                fetch: all.fetch,
            })
        };
        self.spawn(work, query).await
    }

    /// Seconds that the query takes to its last row.
    pub async fn time(&self, query: usize, sql: &'static str) -> Result<f64, Failure> {
        let process = self.process.clone();
        let start = Instant::now();
        let work = async move {
            let rows = process.query(sql).await?;
            rows.try_for_each(|_| async { Ok(()) }).await?;
            Ok(())
        };
        self.spawn(work, query).await?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Runs work on the runtime of its own.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        query: usize,
    ) -> Result<T, Failure> {
        let runtime = self.runtime.as_ref().expect("it is there until drop");
        let failed = |error: &dyn std::fmt::Display| {
            Failure::Run(format!(
                "query {query}: the reference run in single-process DataFusion failed: {error}"
            ))
        };
        match runtime.spawn(work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
