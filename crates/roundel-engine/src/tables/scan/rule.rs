//! Puts the sources of this module in place of DataFusion's, in a plan that is done otherwise.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::{CsvSource, FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::bounds::pruned_rightly;
use super::checked::CheckedSource;
use super::csv::RoundelCsvSource;
use super::footers::Footers;
use super::pieces::{is_json_array, uncut};
use super::told::ReadBy;

/// Checks every file of a plan when it is read. This must be the last rule: others know DataFusion's sources.
#[derive(Debug)]
pub(crate) struct CheckedScans {
    runtime: Arc<RuntimeEnv>,
}

impl CheckedScans {
    /// For plans that a runtime executes, or workers with runtimes like it.
    pub(crate) fn new(runtime: Arc<RuntimeEnv>) -> Self {
        Self { runtime }
    }
}

impl PhysicalOptimizerRule for CheckedScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let scan = node
                .downcast_ref::<DataSourceExec>()
                .and_then(|leaf| leaf.data_source().downcast_ref::<FileScanConfig>());
            match scan {
                Some(scan) if !scan.file_source().is::<CheckedSource>() => {
                    let checked = checked(scan.clone(), &self.runtime, None)?;
                    Ok(Transformed::yes(DataSourceExec::from_data_source(checked)))
                }
                _ => Ok(Transformed::no(node)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "CheckedScans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The same scan, by a source that checks; `by` is the worker that reads it, if one does.
pub(super) fn checked(
    mut scan: FileScanConfig,
    runtime: &RuntimeEnv,
    by: Option<Arc<ReadBy>>,
) -> Result<FileScanConfig> {
    // DataFusion cuts them, too, which their reader refuses.
    if scan.output_ordering.is_empty() && is_json_array(&scan)? {
        scan.file_groups = uncut(&scan.file_groups);
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
