//! CSV files as a source of rows: DataFusion's reader of fields, with what its source lacks.
//!
//! Columns are matched by their names, what stands for NULL is honoured, records may have line breaks in quotes
//! wherever a file is cut, and errors say which line it is.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Decoder;
use bytes::Bytes;
use datafusion::common::config::CsvOptions;
use datafusion::common::internal_datafusion_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    CsvSource, FileGroupPartitioner, FileOpenFuture, FileOpener, FileScanConfig, FileSource,
};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::object_store::{GetOptions, GetResultPayload, ObjectMeta, ObjectStore};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::{DisplayFormatType, apply_expression_roots};
use datafusion_proto::protobuf;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use super::checkpoints::Quotes;
use super::envelope::encode;
use super::layout::Layout;
use super::quotes::Marks;
use super::records::{Input, Records, format, from, header, place_of, wrong_record};
use super::told::FileError;

/// Bytes of an object that are asked for its header.
const HEADER_BYTES: usize = 1 << 20;

/// A source of CSV.
#[derive(Debug, Clone)]
pub(crate) struct RoundelCsvSource {
    options: CsvOptions,
    batch_size: usize,
    schema: TableSchema,
    projection: SplitProjection,
    metrics: ExecutionPlanMetricsSet,
}

impl RoundelCsvSource {
    /// Of files that are as `options` say; with a header, if they do not say.
    pub(crate) fn new(options: CsvOptions, schema: TableSchema) -> Self {
        Self {
            options,
            batch_size: 8192,
            projection: SplitProjection::unprojected(&schema),
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// What can be had of a source of DataFusion's: not what stands for NULL, which it does not read by.
    pub(super) fn of(source: &CsvSource) -> Result<Arc<dyn FileSource>> {
        let options = CsvOptions {
            has_header: Some(source.has_header()),
            delimiter: source.delimiter(),
            quote: source.quote(),
            terminator: source.terminator(),
            escape: source.escape(),
            comment: source.comment(),
            truncated_rows: Some(source.truncate_rows()),
            newlines_in_values: Some(source.newlines_in_values()),
            ..CsvOptions::default()
        };
        Self::new(options, source.table_schema().clone()).projecting(source.projection())
    }

    /// The same, with the columns that another source over the same schema gives.
    pub(super) fn projecting(
        self,
        projection: Option<&ProjectionExprs>,
    ) -> Result<Arc<dyn FileSource>> {
        if let Some(projection) = projection
            && let Some(projected) = self.try_pushdown_projection(projection)?
        {
            return Ok(projected);
        }
        Ok(Arc::new(self))
    }

    pub(super) fn options(&self) -> &CsvOptions {
        &self.options
    }

    fn has_header(&self) -> bool {
        self.options.has_header.unwrap_or(true)
    }

    /// A decoder of records of `layout`.
    fn decoder(&self, layout: &Layout, has_header: bool) -> Result<Decoder> {
        let mut format = format(&self.options).with_header(has_header);
        if let Some(null) = null_regex(&self.options)? {
            format = format.with_null_regex(null);
        }
        Ok(ReaderBuilder::new(Arc::clone(&layout.file))
            .with_format(format)
            .with_batch_size(self.batch_size)
            .with_projection(layout.read.clone())
            .build_decoder())
    }

    /// `None` for a file without even a header.
    fn layout(&self, header: Option<Vec<String>>) -> Result<Option<Layout>> {
        let (table, wanted) = (self.schema.file_schema(), &self.projection.file_indices);
        let layout = match header {
            None => Layout::by_position(table, wanted),
            Some(header) if header.is_empty() => return Ok(None),
            Some(header) => Layout::by_name(&header, table, wanted),
        };
        layout.map(Some).map_err(|e| FileError::new(e).into())
    }
}

/// What stands for NULL, if that is not just nothing.
fn null_regex(options: &CsvOptions) -> Result<Option<regex::Regex>> {
    let pattern = match (&options.null_regex, &options.null_value) {
        (Some(pattern), _) => pattern.clone(),
        // Nothing is NULL as well, as it is where no value is named.
        (None, Some(value)) if !value.is_empty() => format!("^(?:{})?$", regex::escape(value)),
        _ => return Ok(None),
    };
    let wrong = |e: regex::Error| {
        let reason = e.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim();
        DataFusionError::Configuration(format!("null_regex '{pattern}': {reason}"))
    };
    regex::Regex::new(&pattern).map(Some).map_err(wrong)
}

impl FileSource for RoundelCsvSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        _partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let opener = CsvFiles {
            source: Arc::new(self.clone()),
            compression: config.file_compression_type,
            store,
        };
        let file_schema = self.schema.file_schema();
        ProjectionOpener::try_new(self.projection.clone(), Arc::new(opener), file_schema)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.schema
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self {
            batch_size,
            ..self.clone()
        })
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let merged = self.projection.source.try_merge(projection)?;
        Ok(Some(Arc::new(Self {
            projection: SplitProjection::new(self.schema.file_schema(), &merged),
            ..self.clone()
        })))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        "csv"
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, ", has_header={}", self.has_header())
            }
            DisplayFormatType::TreeRender => Ok(()),
        }
    }

    fn try_to_proto(
        &self,
        scan: &FileScanConfig,
        context: &ExecutionPlanEncodeCtx<'_>,
    ) -> Result<Option<protobuf::PhysicalPlanNode>> {
        encode(scan.clone(), Some(self.options()), context).map(Some)
    }

    /// Files of this host may be cut at any byte; of others, not all that is before it can be read.
    fn repartitioned(
        &self,
        partitions: usize,
        file_min_size: usize,
        ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        let is_here = config.object_store_url.as_str().starts_with("file:");
        if config.file_compression_type.is_compressed() || !is_here {
            return Ok(None);
        }
        let groups = FileGroupPartitioner::new()
            .with_target_partitions(partitions)
            .with_repartition_file_min_size(file_min_size)
            .with_preserve_order_within_groups(ordering.is_some())
            .repartition_file_groups(&config.file_groups);
        Ok(groups.map(|groups| {
            let mut cut = config.clone();
            cut.file_groups = groups;
            cut
        }))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.projection.source.iter().map(|expr| &expr.expr), f)
    }
}

/// Opens files of a source.
struct CsvFiles {
    source: Arc<RoundelCsvSource>,
    compression: FileCompressionType,
    store: Arc<dyn ObjectStore>,
}

impl FileOpener for CsvFiles {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let (source, store) = (Arc::clone(&self.source), Arc::clone(&self.store));
        let compression = self.compression;
        let is_cut = file.range.is_some() && file.range() != (0, file.object_meta.size);
        if is_cut && compression.is_compressed() {
            return Err(FileError::new("a compressed file cannot be read in parts").into());
        }
        Ok(async move {
            let meta = file.object_meta.clone();
            let result = store
                .get_opts(&meta.location, GetOptions::default())
                .await?;
            let opened = match result.payload {
                GetResultPayload::File(here, _) => {
                    let here = Arc::new(here);
                    let (source, meta) = (Arc::clone(&source), meta.clone());
                    let range = file.range();
                    let local = Arc::clone(&here);
                    let open = move || open_here(&source, &local, compression, &meta, range);
                    let records = unblocked(open).await?;
                    records.map(|(records, start)| (records, start, Some(here)))
                }
                GetResultPayload::Stream(_) if is_cut => {
                    return Err(FileError::new("an object cannot be read in parts").into());
                }
                GetResultPayload::Stream(bytes) => {
                    let bytes = bytes.map_err(DataFusionError::from).boxed();
                    let bytes = compression.convert_stream(bytes)?;
                    let records = open_stream(&source, bytes).await?;
                    records.map(|records| (records, 0, None))
                }
            };
            let Some((records, start, here)) = opened else {
                return Ok(futures::stream::empty().boxed());
            };
            let reading = Reading {
                records,
                here,
                start,
                compression,
                marks: Marks::of(source.options()),
            };
            let batches = futures::stream::try_unfold(reading, |mut reading| async move {
                let batch = reading.next().await?;
                Ok(batch.map(|batch| (batch, reading)))
            });
            Ok(batches.boxed())
        }
        .boxed())
    }
}

/// Runs what may take long elsewhere.
async fn unblocked<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| internal_datafusion_err!("{e}"))?
}

fn open_here(
    source: &RoundelCsvSource,
    file: &File,
    compression: FileCompressionType,
    meta: &ObjectMeta,
    (start, end): (u64, u64),
) -> Result<Option<(Records, u64)>> {
    let options = source.options();
    let header = match source.has_header() {
        true => Some(header(options, begin(file, compression)?)?),
        false => None,
    };
    let Some(layout) = source.layout(header)? else {
        return Ok(None);
    };
    let marks = Marks::of(options);
    let start = match start {
        0 => Some(0),
        // Comments or empty lines may come before a header, and a part may begin among them.
        _ if source.has_header() => match place_of(begin(file, compression)?, marks, 0, 2)? {
            Some(first) => Quotes::of(meta, marks).first_record(file, start.max(first.byte))?,
            None => None,
        },
        _ => Quotes::of(meta, marks).first_record(file, start)?,
    };
    let Some(start) = start else {
        return Ok(None);
    };
    let decoder = source.decoder(&layout, source.has_header() && start == 0)?;
    let input: Box<dyn Read + Send> = match start {
        0 => begin(file, compression)?,
        _ => Box::new(from(file, start)?.try_clone()?),
    };
    let end = (end < meta.size).then_some(end);
    let records = Records::new(Input::Read(input), layout, decoder, marks, start, end);
    Ok(Some((records, start)))
}

/// A file's text from its beginning. Clones of a file share the place where they read.
fn begin(file: &File, compression: FileCompressionType) -> Result<Box<dyn Read + Send>> {
    compression.convert_read(from(file, 0)?.try_clone()?)
}

async fn open_stream(
    source: &RoundelCsvSource,
    mut bytes: futures::stream::BoxStream<'static, Result<Bytes>>,
) -> Result<Option<Records>> {
    let options = source.options();
    let mut begin = Vec::new();
    while begin.len() < HEADER_BYTES
        && let Some(bytes) = bytes.try_next().await?
    {
        begin.extend_from_slice(&bytes);
    }
    let header = match source.has_header() {
        true => Some(header(options, begin.as_slice())?),
        false => None,
    };
    let Some(layout) = source.layout(header)? else {
        return Ok(None);
    };
    let decoder = source.decoder(&layout, source.has_header())?;
    let begin = futures::stream::iter([Ok(Bytes::from(begin))]);
    let input = Input::Stream(begin.chain(bytes).boxed());
    let marks = Marks::of(options);
    Ok(Some(Records::new(input, layout, decoder, marks, 0, None)))
}

/// Records, and what it takes to say where a wrong one is.
struct Reading {
    records: Records,
    here: Option<Arc<File>>,
    start: u64,
    compression: FileCompressionType,
    marks: Marks,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<arrow::array::RecordBatch>> {
        let error = match self.records.next().await {
            Ok(batch) => return Ok(batch),
            Err(error) => error,
        };
        let Some((number, what)) = wrong_record(&error, self.records.layout()) else {
            return Err(error);
        };
        let place = match self.here.clone() {
            Some(file) => {
                let (compression, marks, start) = (self.compression, self.marks, self.start);
                let find = move || {
                    let text = begin(&file, compression)?;
                    Ok(place_of(text, marks, start, number)?)
                };
                unblocked(find).await.ok().flatten()
            }
            None => None,
        };
        let error = match place {
            Some(place) if self.compression.is_compressed() => {
                FileError::new(format!("line {}: {what}", place.line))
            }
            Some(place) => {
                FileError::new(format!("line {} (byte {}): {what}", place.line, place.byte))
            }
            None => FileError::new(format!("record {number}: {what}")),
        };
        Err(error.into())
    }
}

#[cfg(test)]
mod tests;
