//! Which inputs of a join can stay pinned to a ring, and what tells them from others: those that are the same rows for
//! every query that has the same plan for them.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use datafusion_proto::bytes::physical_plan_to_bytes_with_extension_codec;
use datafusion_proto::physical_plan::ComposedPhysicalExtensionCodec;
use roundel_ring::RingOptions;
use sha2::{Digest as _, Sha256};
use url::Url;
use uuid::Uuid;

use crate::Fabric;
use crate::tables::codec::MemoryShardCodec;
use crate::tables::memory_shard::MemoryShardExec;
use crate::tables::scan::ScanCodec;

/// The name of an input that can be pinned to a ring over a fabric, with such elements; `None` if it cannot be pinned.
/// Rows that depend on other rows of the query, or differ each time they are read, cannot be.
pub(crate) fn name_of_pinned(
    input: &Arc<dyn ExecutionPlan>,
    fabric: Fabric,
    options: RingOptions,
) -> Result<Option<Uuid>> {
    let mut fixed = true;
    input.apply(|node| {
        fixed &= is_scan(node);
        node.apply_expressions(&mut |expression| {
            expression.apply(|part| {
                // A filter that others have yet to fill in has an identity.
                fixed &= part.expression_id().is_none() && !part.is_volatile_node();
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(match fixed {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    if !fixed {
        return Ok(None);
    }
    // Of files it has their sizes and when they were changed. A plan that cannot be written has no name.
    let codec =
        ComposedPhysicalExtensionCodec::new(vec![Arc::new(MemoryShardCodec), Arc::new(ScanCodec)]);
    let plan = physical_plan_to_bytes_with_extension_codec(Arc::clone(input), &codec);
    let Ok(plan) = plan else {
        return Ok(None);
    };
    let how = format!("{fabric} {options:?}");
    Ok(Some(digest([plan.as_ref(), how.as_bytes()])))
}

/// The name of what such an input is on these hosts, by place.
pub(super) fn name_on(input: Uuid, hosts: &[Url]) -> Uuid {
    let hosts = hosts.iter().map(|host| host.as_str().as_bytes());
    digest(std::iter::once(input.as_bytes().as_slice()).chain(hosts))
}

fn is_scan(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        return matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_));
    }
    node.is::<DataSourceExec>()
        || node.is::<MemoryShardExec>()
        || node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<CooperativeExec>()
}

fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Uuid {
    let mut digest = Sha256::new();
    for part in parts {
        // So that no two lists of parts have the same bytes.
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&digest.finalize()[..16]);
    Uuid::from_bytes(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_parts_have_another_name() {
        let names = [
            digest([b"ab".as_slice(), b"c"]),
            digest([b"a".as_slice(), b"bc"]),
            digest([b"abc".as_slice()]),
            digest([b"abc".as_slice(), b""]),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(!names[..at].contains(one));
        }
        let host = |port: u16| Url::parse(&format!("http://h:{port}")).unwrap();
        let of = |hosts: &[Url]| name_on(names[0], hosts);
        assert_eq!(of(&[host(1), host(2)]), of(&[host(1), host(2)]));
        assert_ne!(of(&[host(1), host(2)]), of(&[host(2), host(1)]));
        assert_ne!(of(&[host(1)]), of(&[host(1), host(2)]));
    }
}
