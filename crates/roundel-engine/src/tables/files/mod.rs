//! Tables of files: `--table name=path`, CREATE EXTERNAL TABLE and `FROM 'path'`, which take the same things.
//!
//! | module | for |
//! |---|---|
//! | `location` | which files a path, a directory or a pattern names |
//! | `format` | what a file holds, by its name and first bytes |
//! | `compression` | how a file is compressed, and reading through it |
//! | `survey` | which files are the table's: those of one format |
//! | `csv` | dialect, header and types of CSV, guessed |
//! | `json` | whether JSON is lines or an array, and the columns of an array |
//! | `parquet` | footers that would make a reader panic |
//! | `hive` | columns in the names of directories |
//! | `schema` | one schema for all files of a table |
//! | `options` | OPTIONS by the names of DataFusion and DuckDB |
//! | `reader` | how files are read, and the schema of each |
//! | `describe` | all of that together |
//! | `table` | the table: its files at the time of a query, and their scan |
//! | `factory`, `statement`, `by_path` | the ways to ask for one in SQL |
//! | `notices` | what was guessed |
//!
//! This must not know of workers: they read the same absolute paths.

mod by_path;
mod compression;
mod csv;
mod describe;
mod factory;
mod format;
mod hive;
mod json;
mod location;
mod notices;
mod options;
mod parquet;
mod reader;
mod schema;
mod statement;
mod survey;
mod table;

use std::fmt::Display;
use std::sync::Arc;

use datafusion::prelude::SessionContext;

use self::by_path::CatalogsWithPaths;
use self::describe::{Request, describe};
use self::factory::FileTables;
pub(crate) use self::hive::with_default_partition;
pub(crate) use self::notices::Notices;
pub(crate) use self::statement::with_format;
use crate::{EngineError, Result};

/// An error of what a user gave: `path: reason`.
fn wrong(path: &str, reason: impl Display) -> EngineError {
    EngineError::Usage(format!("{path}: {reason}"))
}

/// Has a session's SQL make tables of files.
pub(crate) fn install(context: &SessionContext) {
    let state = context.state_ref();
    state
        .write()
        .table_factories_mut()
        .extend(FileTables::by_format());
    context.register_catalog_list(Arc::new(CatalogsWithPaths::new(context)));
}

/// Registers a file, a directory of files of one format, or the files that a pattern matches, as a table.
pub(crate) async fn register(context: &SessionContext, name: &str, path: &str) -> Result<()> {
    let request = Request {
        name: name.to_owned(),
        paths: vec![path.to_owned()],
        ..Request::default()
    };
    let table = describe(&context.state(), request).await;
    let table = table.map_err(|e| match e {
        EngineError::Usage(reason) => EngineError::Usage(format!("table {name}: {reason}")),
        EngineError::Query(reason) => EngineError::Query(format!("table {name}: {reason}")),
        other => other,
    })?;
    context.deregister_table(name)?;
    context.register_table(name, Arc::new(table))?;
    Ok(())
}
