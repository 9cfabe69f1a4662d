//! How files are read and cut over tasks.
//!
//! | module | for |
//! |---|---|
//! | `handlers` | how many tasks read a table's files, and which parts each of them |
//! | `pieces` | cutting files where their format allows it |
//! | `rule` | what puts the sources of this module in place of DataFusion's |
//! | `checked` | a source around any other: unchanged files only, errors that name the file |
//! | `bounds` | what the bounds of Parquet's columns do not say |
//! | `told` | what an error of a file says |
//! | `footers` | footers of Parquet files, read once by each process |
//! | `csv` | a source of CSV |
//! | `layout` | which column of a CSV file is which of the table |
//! | `records` | reading the records of a range of a CSV file |
//! | `quotes`, `checkpoints` | where records of CSV begin, whatever is in quotes |
//! | `envelope` | the form in which scans travel to the workers |
//! | `codec` | to that form and back |
//!
//! This must not know how tables are registered.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;

mod bounds;
mod checked;
mod checkpoints;
mod codec;
pub(crate) mod csv;
mod envelope;
pub(crate) mod footers;
mod handlers;
mod layout;
mod pieces;
mod quotes;
mod records;
mod rule;
mod told;

pub(crate) use bounds::float_bounds;
pub(crate) use codec::ScanCodec;
pub(crate) use handlers::{desired_task_count, scale_up_leaf};
pub(crate) use layout::find;
pub(crate) use records::header;
pub(crate) use rule::checked_scans;
pub(crate) use told::ReadBy;

/// What a node reads, if it reads files.
pub(crate) fn file_scan(node: &Arc<dyn ExecutionPlan>) -> Option<&FileScanConfig> {
    let leaf = node.downcast_ref::<DataSourceExec>()?;
    leaf.data_source().downcast_ref::<FileScanConfig>()
}
