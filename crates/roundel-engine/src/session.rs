//! A SQL session over a cluster.

use std::path::Path;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::SessionContext;

use crate::Result;

/// Hears how far loading or generating tables has come.
pub trait LoadProgress: Send + Sync {
    /// `rows_done` of `rows_total` rows of `table` are there. The total can be an estimate until
    /// the last call, in which both are equal.
    fn advance(&self, table: &str, rows_done: u64, rows_total: u64);
}

impl LoadProgress for () {
    fn advance(&self, _table: &str, _rows_done: u64, _rows_total: u64) {}
}

/// A SQL session over a cluster, with its own tables and settings.
pub struct Session {}

impl Session {
    /// DataFusion's session context, to plan with or to register more tables in.
    pub fn context(&self) -> &SessionContext {
        unimplemented!()
    }

    /// Registers a Parquet or CSV file, or a directory of them, as a table.
    pub async fn register_file(&self, _name: &str, _path: &str) -> Result<()> {
        unimplemented!()
    }

    /// Has every worker generate its shards of the TPC-H tables, in memory.
    pub async fn load_tpch_memory(&self, _scale: f64, _progress: &dyn LoadProgress) -> Result<()> {
        unimplemented!()
    }

    /// Registers the TPC-H tables in a directory's Parquet files, which are generated first when
    /// the directory is empty or absent.
    pub async fn register_tpch_files(
        &self,
        _dir: &Path,
        _scale: f64,
        _progress: &dyn LoadProgress,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Plans and starts one SQL statement. Errors of the stream convert to
    /// [`crate::EngineError`], which names the worker that failed.
    pub async fn sql(&self, _sql: &str) -> Result<SendableRecordBatchStream> {
        unimplemented!()
    }
}
