//! How many tasks read the files of a table, and which of them reads what: asked by datafusion-distributed.
//!
//! Its own answer cuts every file at any byte. This one asks the file's format, and a plan that relies on the
//! groups of its files keeps them.

use std::sync::Arc;

use datafusion::common::plan_datafusion_err;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedConfig, DistributedLeafExec,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};

use super::checked::CheckedSource;
use super::file_scan;
use super::pieces::{Cut, deal, most_parts};

fn cut_of(source: &dyn FileSource) -> Cut<'_> {
    match source.downcast_ref::<CheckedSource>() {
        Some(checked) if checked.inner().is::<ParquetSource>() => Cut::RowGroups(checked.footers()),
        _ => Cut::Source,
    }
}

/// As many tasks as there are bytes for, if the files can be cut into as many parts.
pub(crate) fn desired_task_count(
    event: DesiredTaskCountEvent<'_>,
) -> Option<Result<DesiredTaskCountEventResponse>> {
    Some(desired(file_scan(event.plan)?, event.session_config))
}

fn desired(scan: &FileScanConfig, config: &SessionConfig) -> Result<DesiredTaskCountEventResponse> {
    // Which file is in which group is relied on above, which another stage cannot know of.
    if scan.output_partitioning.is_some() {
        return Ok(DesiredTaskCountEventResponse::maximum(1));
    }
    let distributed = (config.options().extensions.get::<DistributedConfig>())
        .ok_or_else(|| plan_datafusion_err!("this session plans no distributed queries"))?;
    let files = scan.file_groups.iter().flat_map(|group| group.iter());
    let bytes: u64 = files.map(|file| file.effective_size()).sum();
    let bytes_per_partition = distributed.file_scan_config_bytes_per_partition.max(1);
    let tasks = usize::try_from(bytes)
        .unwrap_or(usize::MAX)
        .div_ceil(bytes_per_partition)
        .div_ceil(config.target_partitions().max(1));
    let most = most_parts(scan, &cut_of(scan.file_source().as_ref()))?;
    let tasks = tasks.min(most.unwrap_or(usize::MAX)).max(1);
    Ok(DesiredTaskCountEventResponse::desired(tasks))
}

/// Deals the files, or parts of them, to the partitions of all tasks.
pub(crate) fn scale_up_leaf(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = file_scan(event.plan)?;
    let plan = match event.task_count {
        // As DataFusion planned it.
        0 | 1 => Ok(Arc::clone(event.plan)),
        tasks => scaled_up(event.plan, scan, tasks),
    };
    Some(plan.map(ScaleUpLeafNodeEventResponse::new))
}

fn scaled_up(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &FileScanConfig,
    tasks: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = plan.output_partitioning().partition_count().max(1);
    let groups = match scan.output_partitioning.is_some() {
        // The stage has more tasks than were asked for: all of it is in the first one.
        true => {
            let mut groups = scan.file_groups.clone();
            groups.resize_with(partitions * tasks, Default::default);
            let deal = (0..partitions * tasks).map(|i| (i % tasks) * partitions + i / tasks);
            deal.map(|i| std::mem::take(&mut groups[i])).collect()
        }
        false => {
            let cut = cut_of(scan.file_source().as_ref());
            deal(scan, &cut, partitions * tasks)?
        }
    };
    // All tasks have as many partitions, some of which may be empty.
    let each = groups.len().div_ceil(tasks);
    let mut scans = vec![scan.clone(); tasks];
    for scan in &mut scans {
        scan.file_groups.clear();
    }
    for (i, group) in groups.into_iter().enumerate() {
        scans[i % tasks].file_groups.push(group);
    }
    let variants = scans.into_iter().map(|mut scan| {
        scan.file_groups.resize_with(each, Default::default);
        DataSourceExec::from_data_source(scan) as Arc<dyn ExecutionPlan>
    });
    let leaf = DistributedLeafExec::try_new(Arc::clone(plan), variants)?;
    Ok(Arc::new(leaf))
}
