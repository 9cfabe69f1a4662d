//! How scans of files travel to the workers: as DataFusion writes them, with what that leaves out beside it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::CsvOptions;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{internal_datafusion_err, internal_err};
use datafusion::datasource::physical_plan::{
    ArrowSource, AvroSource, CsvSource, FileScanConfig, FileSource, JsonSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::proto::ExecutionPlanEncodeCtx;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use prost::Message as _;

use super::csv::RoundelCsvSource;
use super::file_scan;
use super::pieces::is_json_array;
use super::rule::checked;
use super::told::ReadBy;

/// Encodes and decodes scans of files that are checked.
#[derive(Debug)]
pub(crate) struct ScanCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct ScanProto {
    #[prost(enumeration = "Kind", tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    compression: String,
    #[prost(bool, tag = "3")]
    preserve_order: bool,
    /// Of all files, in their order; empty where there is none.
    #[prost(string, repeated, tag = "4")]
    e_tags: Vec<String>,
    #[prost(message, optional, tag = "5")]
    csv: Option<CsvProto>,
}

/// What a scan is, where its DataFusion form does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
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
struct CsvProto {
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

    fn options(&self) -> Result<CsvOptions> {
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
struct Envelope {
    scan: ScanProto,
    inner: Arc<dyn ExecutionPlan>,
}

/// Writes a scan, which is by a source that does not check.
pub(super) fn encode(
    mut scan: FileScanConfig,
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
    if let Some(csv) = source.downcast_ref::<RoundelCsvSource>() {
        proto.set_kind(Kind::Csv);
        proto.csv = Some(CsvProto::of(csv.options()));
        scan.file_source = as_csv(csv)?;
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

/// The scan that was written.
fn decode(
    proto: &ScanProto,
    inner: &Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(scan) = file_scan(inner) else {
        return internal_err!("a scan of files came as {}", inner.name());
    };
    let mut scan = scan.clone();
    let source = Arc::clone(scan.file_source());
    let schema = source.table_schema().clone();
    let projecting = |other: Arc<dyn FileSource>| match source.projection() {
        Some(projection) => {
            let projected = other.try_pushdown_projection(projection)?;
            Ok::<_, DataFusionError>(projected.unwrap_or(other))
        }
        None => Ok(other),
    };
    scan.file_source = match proto.kind() {
        Kind::AsIs => Arc::clone(&source),
        Kind::ArrowStream => projecting(Arc::new(ArrowSource::new_stream_file_source(schema)))?,
        Kind::JsonArray => {
            let json = JsonSource::new(schema).with_newline_delimited(false);
            projecting(Arc::new(json))?
        }
        Kind::Avro => projecting(Arc::new(AvroSource::new(schema)))?,
        Kind::Csv => {
            let Some(csv) = &proto.csv else {
                return internal_err!("a scan of CSV came without its options");
            };
            RoundelCsvSource::new(csv.options()?, schema).projecting(source.projection())?
        }
    };
    let compression: CompressionTypeVariant = proto.compression.parse()?;
    scan.file_compression_type = compression.into();
    scan.preserve_order = proto.preserve_order;
    if !proto.e_tags.is_empty() {
        let mut tags = proto.e_tags.iter();
        for group in &mut scan.file_groups {
            for file in 0..group.len() {
                let tag = tags.next().filter(|tag| !tag.is_empty());
                group[file].object_meta.e_tag = tag.cloned();
            }
        }
    }
    let by = context.session_config().get_extension::<ReadBy>();
    let scan = checked(scan, context.runtime_env().as_ref(), by)?;
    Ok(DataSourceExec::from_data_source(scan))
}

impl PhysicalExtensionCodec for ScanCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let proto = ScanProto::decode(bytes)
            .map_err(|e| internal_datafusion_err!("cannot decode a scan of files: {e}"))?;
        match inputs {
            [inner] => decode(&proto, inner, context),
            _ => internal_err!("a scan of files came without what it is"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(envelope) = node.downcast_ref::<Envelope>() else {
            return internal_err!("no codec for {}", node.name());
        };
        let encoded = envelope.scan.encode(bytes);
        encoded.map_err(|e| internal_datafusion_err!("cannot encode a scan of files: {e}"))
    }
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
