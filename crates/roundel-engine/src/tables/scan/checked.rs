//! A source around any other: it reads only files that are as they were when the query was planned, its errors name
//! the file, and a reader that panics is an error.
//!
//! It is put around a source once the plan is complete, and knows nothing of formats.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpener, FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::sort_pushdown::SortOrderPushdownResult;
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use datafusion_proto::protobuf;
use futures::StreamExt as _;
use futures::stream::BoxStream;

use super::csv::RoundelCsvSource;
use super::envelope::encode;
use super::footers::Footers;
use super::told::{ReadBy, Told, name_of};

/// A source that is checked.
#[derive(Clone)]
pub(super) struct CheckedSource {
    inner: Arc<dyn FileSource>,
    footers: Footers,
    by: Option<Arc<ReadBy>>,
}

impl CheckedSource {
    /// Files are read by `by`, if that is a worker.
    pub(super) fn new(
        inner: Arc<dyn FileSource>,
        footers: Footers,
        by: Option<Arc<ReadBy>>,
    ) -> Self {
        Self { inner, footers, by }
    }

    pub(super) fn inner(&self) -> &Arc<dyn FileSource> {
        &self.inner
    }

    /// The footers of Parquet files that this process keeps.
    pub(super) fn footers(&self) -> &Footers {
        &self.footers
    }

    fn around(&self, inner: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self::new(inner, self.footers.clone(), self.by.clone()))
    }

    /// The scan without this source.
    pub(super) fn unchecked(&self, scan: &FileScanConfig) -> FileScanConfig {
        let mut scan = scan.clone();
        scan.file_source = Arc::clone(&self.inner);
        scan
    }
}

impl FileSource for CheckedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        scan: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        // Not called: DataFusion asks for the morselizer.
        let scan = self.unchecked(scan);
        self.inner.create_file_opener(store, &scan, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        scan: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let unchecked = self.unchecked(scan);
        let inner = Arc::clone(&store);
        Ok(Box::new(Checks {
            inner: Arc::from(self.inner.create_morselizer(inner, &unchecked, partition)?),
            store,
            url: scan.object_store_url.clone(),
            by: self.by.clone(),
        }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        self.around(self.inner.with_batch_size(batch_size))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_extra(format, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn repartitioned(
        &self,
        partitions: usize,
        file_min_size: usize,
        ordering: Option<LexOrdering>,
        scan: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        let unchecked = self.unchecked(scan);
        let cut = self
            .inner
            .repartitioned(partitions, file_min_size, ordering, &unchecked)?;
        Ok(cut.map(|mut cut| {
            cut.file_source = self.around(cut.file_source);
            cut
        }))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let pushed = self.inner.try_pushdown_filters(filters, config)?;
        Ok(FilterPushdownPropagation {
            filters: pushed.filters,
            updated_node: pushed.updated_node.map(|inner| self.around(inner)),
        })
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        let pushed = self.inner.try_pushdown_sort(order, properties)?;
        Ok(match pushed {
            SortOrderPushdownResult::Exact { inner } => SortOrderPushdownResult::Exact {
                inner: self.around(inner),
            },
            SortOrderPushdownResult::Inexact { inner } => SortOrderPushdownResult::Inexact {
                inner: self.around(inner),
            },
            SortOrderPushdownResult::Unsupported => SortOrderPushdownResult::Unsupported,
        })
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let pushed = self.inner.try_pushdown_projection(projection)?;
        Ok(pushed.map(|inner| self.around(inner)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn try_to_proto(
        &self,
        scan: &FileScanConfig,
        context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<protobuf::PhysicalPlanNode>> {
        let csv = self.inner.downcast_ref::<RoundelCsvSource>();
        let options = csv.map(RoundelCsvSource::options);
        encode(self.unchecked(scan), options, context).map(Some)
    }
}

/// Checks files before they are read.
struct Checks {
    inner: Arc<dyn Morselizer>,
    store: Arc<dyn ObjectStore>,
    url: ObjectStoreUrl,
    by: Option<Arc<ReadBy>>,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checks({:?})", self.inner)
    }
}

impl Morselizer for Checks {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let told = Told {
            name: name_of(&self.url, &file).into(),
            range: file.range.as_ref().map(|range| (range.start, range.end)),
            by: self.by.clone(),
        };
        let told = Planned {
            told,
            meta: file.object_meta.clone(),
            store: Arc::clone(&self.store),
        };
        Ok(Box::new(Unchecked {
            inner: Arc::clone(&self.inner),
            file: Box::new(file),
            told,
        }))
    }
}

/// A file as it was planned, and what errors say of it.
#[derive(Clone)]
struct Planned {
    told: Told,
    meta: ObjectMeta,
    store: Arc<dyn ObjectStore>,
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told.name)
    }
}

impl Planned {
    /// Whether the file is as it was planned.
    async fn check(&self) -> Result<()> {
        let now = self.store.head(&self.meta.location).await;
        let now = now.map_err(|e| self.told.of(e.into()))?;
        // Copies of a file on several hosts have one time, but other inodes, of which tags are made.
        let is_of_host = self.told.name.starts_with('/');
        let is_same_tag = match (&self.meta.e_tag, &now.e_tag) {
            (Some(planned), Some(now)) => is_of_host || planned == now,
            _ => true,
        };
        let is_same = now.size == self.meta.size && now.last_modified == self.meta.last_modified;
        match is_same && is_same_tag {
            true => Ok(()),
            false => Err(self.told.changed()),
        }
    }

    /// What a reader does, its errors and panics naming the file.
    fn guard<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => done.map_err(|e| self.told.of(e)),
            Err(panic) => Err(self.told.of_panic(panic.as_ref())),
        }
    }

    /// An error of a file that was changed meanwhile is that it was.
    async fn explain(&self, error: DataFusionError) -> DataFusionError {
        match self.check().await {
            Ok(()) => error,
            Err(changed) => changed,
        }
    }

    async fn guarded<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        let done =
            std::future::poll_fn(
                |context| match self.guard(|| Ok(work.as_mut().poll(context))) {
                    Ok(Poll::Ready(done)) => Poll::Ready(done.map_err(|e| self.told.of(e))),
                    Ok(Poll::Pending) => Poll::Pending,
                    Err(panic) => Poll::Ready(Err(panic)),
                },
            )
            .await;
        match done {
            Ok(done) => Ok(done),
            Err(error) => Err(self.explain(error).await),
        }
    }
}

/// A file that was not looked at yet.
struct Unchecked {
    inner: Arc<dyn Morselizer>,
    file: Box<PartitionedFile>,
    told: Planned,
}

impl fmt::Debug for Unchecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unchecked({:?})", self.told)
    }
}

impl MorselPlanner for Unchecked {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { inner, file, told } = *self;
        let check = async move {
            told.check().await?;
            let planner = told.guard(|| inner.plan_file(*file))?;
            let planner: Box<dyn MorselPlanner> = Box::new(CheckedPlanner {
                inner: planner,
                told,
            });
            Ok(planner)
        };
        Ok(Some(MorselPlan::new().with_pending_planner(check)))
    }
}

#[derive(Debug)]
struct CheckedPlanner {
    inner: Box<dyn MorselPlanner>,
    told: Planned,
}

impl MorselPlanner for CheckedPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { inner, told } = *self;
        let Some(mut plan) = told.guard(|| inner.plan())? else {
            return Ok(None);
        };
        let morsels = plan.take_morsels().into_iter().map(|inner| {
            let told = told.clone();
            Box::new(CheckedMorsel { inner, told }) as Box<dyn Morsel>
        });
        let planners = plan.take_ready_planners().into_iter().map(|inner| {
            let told = told.clone();
            Box::new(Self { inner, told }) as Box<dyn MorselPlanner>
        });
        let checked = MorselPlan::new()
            .with_morsels(morsels.collect())
            .with_planners(planners.collect());
        let Some(pending) = plan.take_pending_planner() else {
            return Ok(Some(checked));
        };
        let pending = async move {
            let inner = told.guarded(pending).await?;
            Ok(Box::new(Self { inner, told }) as Box<dyn MorselPlanner>)
        };
        Ok(Some(checked.with_pending_planner(pending)))
    }
}

#[derive(Debug)]
struct CheckedMorsel {
    inner: Box<dyn Morsel>,
    told: Planned,
}

impl Morsel for CheckedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { inner, told } = *self;
        let batches = match told.guard(|| Ok(inner.into_stream())) {
            Ok(batches) => batches,
            Err(error) => return futures::stream::iter([Err(error)]).boxed(),
        };
        let batches = futures::stream::try_unfold(Some((batches, told)), |reading| async move {
            let Some((mut batches, told)) = reading else {
                return Ok(None);
            };
            let next = async { batches.next().await.transpose() };
            match told.guarded(next).await? {
                Some(batch) => Ok(Some((batch, Some((batches, told))))),
                None => {
                    // Rows may lack when it was cut short while it was read.
                    told.check().await?;
                    Ok(None)
                }
            }
        });
        batches.boxed()
    }
}
