//! How the leaves of memory tables travel from the coordinator to the workers.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::{Statistics, internal_datafusion_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use prost::Message as _;

use super::memory_shard::{MemoryShardExec, Placement, Scan};

/// Most partitions that a received leaf may declare.
const PARTITIONS_MAX: u32 = 1 << 16;

/// Encodes and decodes [`MemoryShardExec`].
#[derive(Debug)]
pub(crate) struct MemoryShardCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct MemoryShardProto {
    #[prost(string, tag = "1")]
    table_set: String,
    #[prost(string, tag = "2")]
    table: String,
    #[prost(message, optional, tag = "3")]
    schema: Option<protobuf::Schema>,
    #[prost(uint32, repeated, tag = "4")]
    columns: Vec<u32>,
    #[prost(uint32, tag = "5")]
    partitions: u32,
    /// Number of shards; 0 for a replicated table.
    #[prost(uint32, tag = "6")]
    shards: u32,
    /// The column whose hash says where a row is.
    #[prost(uint32, optional, tag = "7")]
    key: Option<u32>,
}

impl PhysicalExtensionCodec for MemoryShardCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !inputs.is_empty() {
            return internal_err!("MemoryShardExec is a leaf");
        }
        let proto = MemoryShardProto::decode(bytes)
            .map_err(|e| internal_datafusion_err!("cannot decode a MemoryShardExec: {e}"))?;
        let schema = proto.schema.as_ref();
        let schema: Schema = schema
            .ok_or_else(|| internal_datafusion_err!("a MemoryShardExec came without a schema"))?
            .try_into()?;
        if proto.columns.len() != schema.fields().len()
            || !(1..=PARTITIONS_MAX).contains(&proto.partitions)
        {
            return internal_err!("a MemoryShardExec came with an impossible shape");
        }
        let scan = Scan {
            table_set: proto.table_set,
            table: proto.table,
            statistics: Statistics::new_unknown(&schema),
            schema: Arc::new(schema),
            columns: proto.columns.into_iter().map(|c| c as usize).collect(),
            partitions: proto.partitions as usize,
            key: proto.key.map(|column| column as usize),
        };
        let placement = match proto.shards {
            0 => Placement::Replicated,
            shards => Placement::Sharded {
                shards: shards as usize,
                workers: Arc::new([]),
            },
        };
        Ok(Arc::new(MemoryShardExec::new(scan, placement)))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(leaf) = node.downcast_ref::<MemoryShardExec>() else {
            return internal_err!("no codec for {}", node.name());
        };
        let scan = &leaf.scan;
        let proto = MemoryShardProto {
            table_set: scan.table_set.clone(),
            table: scan.table.clone(),
            schema: Some(scan.schema.as_ref().try_into()?),
            columns: scan.columns.iter().map(|c| *c as u32).collect(),
            partitions: scan.partitions as u32,
            key: scan.key.map(|column| column as u32),
            shards: match &leaf.placement {
                Placement::Replicated => 0,
                Placement::Sharded { shards, .. } => *shards as u32,
            },
        };
        proto
            .encode(bytes)
            .map_err(|e| internal_datafusion_err!("cannot encode a MemoryShardExec: {e}"))
    }
}
