//! The form in which a scan of files travels to the workers: as DataFusion writes it, with what that leaves out beside it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::CsvOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{internal_datafusion_err, internal_err};
use datafusion::datasource::physical_plan::{AvroSource, CsvSource, FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use datafusion_proto::protobuf;

use super::pieces::is_json_array;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ScanProto {
    #[prost(enumeration = "Kind", tag = "1")]
    pub(super) kind: i32,
    #[prost(string, tag = "2")]
    pub(super) compression: String,
    #[prost(bool, tag = "3")]
    pub(super) preserve_order: bool,
    /// Of all files, in their order; empty where there is none.
    #[prost(string, repeated, tag = "4")]
    pub(super) e_tags: Vec<String>,
    #[prost(message, optional, tag = "5")]
    pub(super) csv: Option<CsvProto>,
}

/// The kind of a scan, as far as its DataFusion form leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    /// As DataFusion says.
    AsIs = 0,
    ArrowStream = 1,
    JsonArray = 2,
    /// DataFusion says CSV.
    Avro = 3,
    /// DataFusion says CSV, but not all of it.
    Csv = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CsvProto {
    #[prost(bool, tag = "1")]
    has_header: bool,
    #[prost(uint32, tag = "2")]
    delimiter: u32,
    #[prost(uint32, tag = "3")]
    quote: u32,
    #[prost(uint32, optional, tag = "4")]
    terminator: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    escape: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    comment: Option<u32>,
    #[prost(bool, tag = "7")]
    truncated_rows: bool,
    #[prost(string, optional, tag = "8")]
    null_value: Option<String>,
    #[prost(string, optional, tag = "9")]
    null_regex: Option<String>,
}

impl CsvProto {
    fn of(options: &CsvOptions) -> Self {
        Self {
            has_header: options.has_header.unwrap_or(true),
            delimiter: options.delimiter.into(),
            quote: options.quote.into(),
            terminator: options.terminator.map(u32::from),
            escape: options.escape.map(u32::from),
            comment: options.comment.map(u32::from),
            truncated_rows: options.truncated_rows.unwrap_or(false),
            null_value: options.null_value.clone(),
            null_regex: options.null_regex.clone(),
        }
    }

    pub(super) fn options(&self) -> Result<CsvOptions> {
        let byte = |value: u32| {
            u8::try_from(value).map_err(|_| internal_datafusion_err!("{value} is no byte"))
        };
        Ok(CsvOptions {
            has_header: Some(self.has_header),
            delimiter: byte(self.delimiter)?,
            quote: byte(self.quote)?,
            terminator: self.terminator.map(byte).transpose()?,
            escape: self.escape.map(byte).transpose()?,
            comment: self.comment.map(byte).transpose()?,
            truncated_rows: Some(self.truncated_rows),
            null_value: self.null_value.clone(),
            null_regex: self.null_regex.clone(),
            ..CsvOptions::default()
        })
    }
}

/// A scan as it travels: above the form that DataFusion can write.
pub(super) struct Envelope {
    pub(super) scan: ScanProto,
    inner: Arc<dyn ExecutionPlan>,
}

/// Writes a scan, which is by a source that does not check. Where that is [`RoundelCsvSource`](super::csv::RoundelCsvSource),
/// `csv` has to be its options: they would be lost.
///
/// # Errors
/// When DataFusion cannot write the scan.
pub(super) fn encode(
    mut scan: FileScanConfig,
    csv: Option<&CsvOptions>,
    context: &ExecutionPlanEncodeCtx<'_>,
) -> Result<protobuf::PhysicalPlanNode> {
    let mut proto = ScanProto {
        kind: Kind::AsIs.into(),
        compression: scan.file_compression_type.get_variant().to_string(),
        preserve_order: scan.preserve_order,
        e_tags: Vec::new(),
        csv: None,
    };
    let files = scan.file_groups.iter().flat_map(|group| group.iter());
    let tags: Vec<_> = files.map(|file| file.object_meta.e_tag.clone()).collect();
    if tags.iter().any(Option::is_some) {
        proto.e_tags = tags.into_iter().map(Option::unwrap_or_default).collect();
    }
    let source = Arc::clone(scan.file_source());
    if let Some(options) = csv {
        proto.set_kind(Kind::Csv);
        proto.csv = Some(CsvProto::of(options));
        scan.file_source = as_csv(source.as_ref())?;
    } else if source.is::<AvroSource>() {
        proto.set_kind(Kind::Avro);
        scan.file_source = as_csv(source.as_ref())?;
    } else if is_json_array(&scan)? {
        proto.set_kind(Kind::JsonArray);
    } else if source.file_type() == "arrow_stream" {
        proto.set_kind(Kind::ArrowStream);
    }
    let envelope: Arc<dyn ExecutionPlan> = Arc::new(Envelope {
        scan: proto,
        inner: DataSourceExec::from_data_source(scan),
    });
    context.encode_child(&envelope)
}

/// A source that DataFusion can write, of the same schema and columns.
fn as_csv(source: &dyn FileSource) -> Result<Arc<dyn FileSource>> {
    let csv = CsvSource::new(source.table_schema().clone());
    let projected = match source.projection() {
        Some(projection) => csv.try_pushdown_projection(projection)?,
        None => None,
    };
    Ok(projected.unwrap_or_else(|| Arc::new(csv)))
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envelope({:?})", self.inner)
    }
}

impl DisplayAs for Envelope {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Envelope")
    }
}

impl ExecutionPlan for Envelope {
    fn name(&self) -> &str {
        "Envelope"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.inner]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([inner]) => Ok(Arc::new(Self {
                scan: self.scan.clone(),
                inner,
            })),
            Err(_) => internal_err!("an envelope has one child"),
        }
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("an envelope is for travelling only")
    }
}
