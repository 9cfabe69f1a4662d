//! TPC-H: the queries, and the tables, in one process.

use std::path::PathBuf;

use datafusion::prelude::SessionContext;

use crate::{LoadProgress, Result};

/// Number of TPC-H queries; they are numbered from 1.
pub const QUERY_COUNT: usize = 22;

/// Where TPC-H tables come from.
#[derive(Debug, Clone, PartialEq)]
pub enum TpchTables {
    /// Generated into memory.
    Memory {
        /// The scale factor; 1 is about 1 GB.
        scale: f64,
    },
    /// Parquet files of a directory, generated first when it is empty.
    Files {
        /// The directory.
        dir: PathBuf,
        /// The scale factor; 1 is about 1 GB.
        scale: f64,
    },
}

/// The text of query `number`, 1 to 22, with the standard's default parameters: one statement.
pub fn query(_number: usize) -> Option<&'static str> {
    None
}

/// A context of plain, single-process DataFusion with the very same tables, to verify against and
/// to compare times with. It has as many partitions as a task of a worker with `threads` threads.
pub async fn single_process_context(
    _threads: usize,
    _tables: &TpchTables,
    _progress: &dyn LoadProgress,
) -> Result<SessionContext> {
    unimplemented!()
}
