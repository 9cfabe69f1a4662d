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
//! | `codec` | how scans travel to the workers |
//!
//! This must not know how tables are registered.

mod bounds;
mod checked;
mod checkpoints;
mod codec;
pub(crate) mod csv;
mod footers;
mod handlers;
mod layout;
mod pieces;
mod quotes;
mod records;
mod rule;
mod told;

pub(crate) use bounds::FloatBounds;
pub(crate) use codec::ScanCodec;
pub(crate) use handlers::{desired_task_count, scale_up_leaf};
pub(crate) use rule::CheckedScans;
pub(crate) use told::ReadBy;
