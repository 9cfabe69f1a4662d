//! Puts the sources of this module in place of DataFusion's, in a plan that is done otherwise.

use std::sync::Arc;

use datafusion::datasource::physical_plan::{CsvSource, FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::bounds::pruned_rightly;
use super::checked::CheckedSource;
use super::csv::RoundelCsvSource;
use super::file_scan;
use super::footers::Footers;
use super::pieces::{is_json_array, uncut};
use super::told::ReadBy;
use crate::rules::{Rule, node_rule};

/// Checks every file of a plan when it is read, in plans that `runtime` executes, or workers with runtimes like it. This must
/// be the last rule: others know DataFusion's sources.
pub(crate) fn checked_scans(runtime: Arc<RuntimeEnv>) -> Rule {
    node_rule("checked_scans", move |node| {
        Ok(match file_scan(node) {
            Some(scan) if !scan.file_source().is::<CheckedSource>() => {
                let checked = checked(scan.clone(), &runtime, None)?;
                Some(DataSourceExec::from_data_source(checked))
            }
            _ => None,
        })
    })
}

/// The same scan, by a source that checks; `by` is the worker that reads it, if one does.
pub(super) fn checked(
    mut scan: FileScanConfig,
    runtime: &RuntimeEnv,
    by: Option<Arc<ReadBy>>,
) -> Result<FileScanConfig> {
    // DataFusion cuts them, too, which their reader refuses.
    if is_json_array(&scan)? {
        scan.file_groups = uncut(&scan);
    }
    let footers = Footers::new(runtime.cache_manager.get_file_metadata_cache());
    let source = scan.file_source();
    let inner: Arc<dyn FileSource> = if let Some(csv) = source.downcast_ref::<CsvSource>() {
        RoundelCsvSource::of(csv)?
    } else if let Some(parquet) = source.downcast_ref::<ParquetSource>() {
        let readers = footers.readers(runtime.object_store(&scan.object_store_url)?);
        Arc::new(pruned_rightly(parquet)?.with_parquet_file_reader_factory(readers))
    } else {
        Arc::clone(source)
    };
    // A worker that takes files from another partition would not keep the order that was declared.
    scan.preserve_order |= !scan.output_ordering.is_empty();
    scan.file_source = Arc::new(CheckedSource::new(inner, footers, by));
    Ok(scan)
}
