//! How cyclo-joins travel from the coordinator to the workers.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::{JoinSide, JoinType, internal_datafusion_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion_proto::physical_plan::{
    DefaultPhysicalExtensionCodec, PhysicalExtensionCodec, PhysicalPlanDecodeContext,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use prost::Message as _;
use url::Url;
use uuid::Uuid;

use super::exec::{CycloJoinExec, Keys};

/// Encodes and decodes [`CycloJoinExec`].
#[derive(Debug)]
pub(crate) struct CycloJoinCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct CycloJoinProto {
    /// What tells the ring from others, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    ring: Vec<u8>,
    /// The workers, by place.
    #[prost(string, repeated, tag = "2")]
    hosts: Vec<String>,
    #[prost(enumeration = "protobuf::JoinType", tag = "3")]
    join_type: i32,
    #[prost(message, optional, tag = "4")]
    filter: Option<FilterProto>,
    /// Whether the right side spins, instead of the left one.
    #[prost(bool, tag = "5")]
    right_spins: bool,
    /// Columns that are equal, in pairs.
    #[prost(uint32, repeated, tag = "6")]
    left_keys: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    right_keys: Vec<u32>,
    #[prost(bool, tag = "8")]
    nulls_equal: bool,
    /// The name of what spins, 16 bytes, where it stays pinned.
    #[prost(bytes = "vec", optional, tag = "9")]
    pinned: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FilterProto {
    #[prost(message, optional, tag = "1")]
    expression: Option<protobuf::PhysicalExprNode>,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
    /// Its columns: of which side, and which of that.
    #[prost(bool, repeated, tag = "3")]
    of_right: Vec<bool>,
    #[prost(uint32, repeated, tag = "4")]
    columns: Vec<u32>,
}

impl PhysicalExtensionCodec for CycloJoinCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [left, right] = inputs else {
            return internal_err!("a CycloJoinExec has two inputs");
        };
        let proto = CycloJoinProto::decode(bytes)
            .map_err(|error| internal_datafusion_err!("cannot decode a CycloJoinExec: {error}"))?;
        let join_type = protobuf::JoinType::try_from(proto.join_type)
            .map_err(|_| internal_datafusion_err!("a CycloJoinExec of an unknown type"))?;
        let filter = proto.filter.as_ref();
        let filter = filter.map(|filter| filter.decode(context, converter));
        let fields = [left, right].map(|side| side.schema().fields().len());
        let columns = proto.left_keys.iter().zip(&proto.right_keys);
        let keys = Keys {
            columns: columns
                .map(|(left, right)| [*left as usize, *right as usize])
                .collect(),
            nulls_equal: proto.nulls_equal,
        };
        let are_there = |key: &[usize; 2]| key[0] < fields[0] && key[1] < fields[1];
        if proto.left_keys.len() != proto.right_keys.len() || !keys.columns.iter().all(are_there) {
            return internal_err!("a CycloJoinExec came with impossible keys");
        }
        let hosts = proto.hosts.iter().map(|host| Url::parse(host));
        let hosts = hosts.collect::<Result<Arc<[Url]>, _>>();
        let spins = if proto.right_spins {
            JoinSide::Right
        } else {
            JoinSide::Left
        };
        let id = |bytes: &[u8]| {
            Uuid::from_slice(bytes)
                .map_err(|error| internal_datafusion_err!("a ring's id: {error}"))
        };
        let join = CycloJoinExec::try_new(
            [Arc::clone(left), Arc::clone(right)],
            keys,
            filter.transpose()?,
            JoinType::from(join_type),
            spins,
            hosts.map_err(|error| internal_datafusion_err!("a worker of a ring: {error}"))?,
            id(&proto.ring)?,
        )?;
        let pinned = proto.pinned.as_deref().map(id).transpose()?;
        Ok(Arc::new(join.with_pinned(pinned)))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(join) = node.downcast_ref::<CycloJoinExec>() else {
            return internal_err!("no codec for {}", node.name());
        };
        let filter = join
            .filter
            .as_ref()
            .map(|filter| FilterProto::encode(filter, converter));
        let proto = CycloJoinProto {
            ring: join.ring.as_bytes().to_vec(),
            hosts: join.hosts().iter().map(Url::to_string).collect(),
            join_type: protobuf::JoinType::from(join.join_type).into(),
            filter: filter.transpose()?,
            right_spins: join.spins == JoinSide::Right,
            left_keys: join.keys.columns.iter().map(|key| key[0] as u32).collect(),
            right_keys: join.keys.columns.iter().map(|key| key[1] as u32).collect(),
            nulls_equal: join.keys.nulls_equal,
            pinned: join.pinned.map(|relation| relation.as_bytes().to_vec()),
        };
        proto
            .encode(bytes)
            .map_err(|error| internal_datafusion_err!("cannot encode a CycloJoinExec: {error}"))
    }
}

impl FilterProto {
    fn encode(
        filter: &JoinFilter,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Self> {
        let codec = DefaultPhysicalExtensionCodec {};
        let columns = filter.column_indices().iter();
        Ok(Self {
            expression: Some(converter.physical_expr_to_proto(filter.expression(), &codec)?),
            schema: Some(filter.schema().as_ref().try_into()?),
            of_right: columns
                .clone()
                .map(|column| column.side == JoinSide::Right)
                .collect(),
            columns: columns.map(|column| column.index as u32).collect(),
        })
    }

    fn decode(
        &self,
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<JoinFilter> {
        let missing =
            || internal_datafusion_err!("a CycloJoinExec's filter came without its parts");
        let schema: Schema = self.schema.as_ref().ok_or_else(missing)?.try_into()?;
        let expression = self.expression.as_ref().ok_or_else(missing)?;
        let codec = DefaultPhysicalExtensionCodec {};
        let decoding = PhysicalPlanDecodeContext::new(context, &codec);
        let expression = converter.proto_to_physical_expr(expression, &schema, &decoding)?;
        if self.columns.len() != schema.fields().len() || self.of_right.len() != self.columns.len()
        {
            return Err(missing());
        }
        let columns = self.columns.iter().zip(&self.of_right);
        let columns = columns.map(|(index, of_right)| ColumnIndex {
            index: *index as usize,
            side: if *of_right {
                JoinSide::Right
            } else {
                JoinSide::Left
            },
        });
        Ok(JoinFilter::new(
            expression,
            columns.collect(),
            Arc::new(schema),
        ))
    }
}
