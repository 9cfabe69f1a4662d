//! Encodes the envelope of a scan of files, and decodes it to a scan that checks its files.

use std::sync::Arc;

use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::{internal_datafusion_err, internal_err};
use datafusion::datasource::physical_plan::{ArrowSource, AvroSource, FileSource, JsonSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use prost::Message as _;

use super::csv::RoundelCsvSource;
use super::envelope::{Envelope, Kind, ScanProto};
use super::file_scan;
use super::rule::checked;
use super::told::ReadBy;

/// Encodes and decodes scans of files that are checked.
#[derive(Debug)]
pub(crate) struct ScanCodec;

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
