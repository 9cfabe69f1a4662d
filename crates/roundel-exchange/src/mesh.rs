//! Joins the nodes of an exchange, all with all, through a rendezvous: for programs that have no
//! control plane of their own.

use crate::endpoint::{Fabric, LinkAddress};
use crate::error::{ExchangeError, Result};
use crate::operator::{Destination, Group, PartitionStream, Receive, ReceiveLink, Shuffle};
use arrow::datatypes::SchemaRef;
use futures::future::try_join_all;
use roundel_verbs::Rendezvous;
use roundel_verbs::rendezvous::{pack_list, unpack_list};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// What joins a node with all nodes, itself included; both by rank.
pub struct Mesh {
    /// Where it sends.
    pub destinations: Vec<Destination>,
    /// By partition: the transmission group of the one node that it belongs to.
    pub groups: Vec<Group>,
    /// The partitions of this node.
    pub partitions: Range<u32>,
    /// Where it receives from.
    pub sources: Vec<ReceiveLink>,
}

impl Mesh {
    /// Joins this node with the others of the rendezvous, all of which call this with the same
    /// options and numbers. Each node has `partitions_per_node`, in the order of ranks: at least
    /// one per endpoint, since an endpoint is served by whoever reads its partitions. When the
    /// rendezvous loses a node, what is to be received from it and sent to it fails.
    pub async fn join(
        rendezvous: &mut dyn Rendezvous,
        fabric: &Fabric,
        shuffle: &Arc<Shuffle>,
        receive: &Receive,
        partitions_per_node: u32,
    ) -> Result<Self> {
        let first = rendezvous.rank() as u32 * partitions_per_node;
        let mut mesh = Self {
            destinations: Vec::new(),
            groups: Vec::new(),
            partitions: first..first + partitions_per_node,
            sources: Vec::new(),
        };
        let mut offers = Vec::new();
        for source in 0..rendezvous.peers() {
            let (link, offer) = receive.offer(&name(source), None, mesh.partitions.clone())?;
            if offer.len() > mesh.partitions.len() {
                return Err(ExchangeError::own(format!(
                    "{} endpoints for {partitions_per_node} partitions: some would never be served",
                    offer.len()
                )));
            }
            mesh.sources.push(link);
            offers.push(to_bytes(&offer));
        }
        let mut answers = Vec::new();
        for (target, offer) in rendezvous.exchange_each(offers).await?.iter().enumerate() {
            let peer = name(target);
            let (destination, answer) = shuffle.accept(&from_bytes(offer, &peer)?, &peer)?;
            let group = shuffle.group(std::slice::from_ref(&destination))?;
            let groups = std::iter::repeat_n(group, partitions_per_node as usize);
            mesh.groups.extend(groups);
            mesh.destinations.push(destination);
            answers.push(to_bytes(&answer));
        }
        let answers = rendezvous.exchange_each(answers).await?;
        for (source, (link, answer)) in mesh.sources.iter().zip(&answers).enumerate() {
            receive.connect(link, &from_bytes(answer, &name(source))?)?;
        }
        let watch = mesh.watch(rendezvous, Arc::downgrade(shuffle));
        fabric.context.spawn(Box::pin(watch));
        Ok(mesh)
    }

    /// Datagrams do not tell of a peer's death; the rendezvous does.
    fn watch(
        &self,
        rendezvous: &dyn Rendezvous,
        shuffle: Weak<Shuffle>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let lost = rendezvous.lost();
        let destinations = self.destinations.clone();
        let sources: Vec<_> = self.sources.iter().map(ReceiveLink::aborter).collect();
        async move {
            let lost = lost.await;
            let error = ExchangeError::PeerFailed {
                peer: name(lost.rank),
                reason: lost.reason,
            };
            sources[lost.rank](&error);
            if let Some(shuffle) = shuffle.upgrade() {
                shuffle.close(&destinations[lost.rank], Some(error));
            }
        }
    }

    /// The rows of a partition of this node's, a stream for each source.
    pub fn streams(
        &self,
        receive: &Receive,
        partition: u32,
        schema: &SchemaRef,
    ) -> Result<Vec<PartitionStream>> {
        let sources = self.sources.iter();
        sources
            .map(|source| receive.stream(source, partition, schema))
            .collect()
    }

    /// Tells every node that no more rows come from this one, and waits until they have
    /// everything. They may read in any order meanwhile.
    pub async fn finish(&self, shuffle: &Shuffle) -> Result<()> {
        let all = self.destinations.iter().map(|to| shuffle.finish(to));
        try_join_all(all).await.map(|_| ())
    }
}

fn name(rank: usize) -> String {
    format!("node {rank}")
}

fn to_bytes(addresses: &[LinkAddress]) -> Vec<u8> {
    let lanes: Vec<_> = addresses.iter().map(LinkAddress::to_bytes).collect();
    pack_list(&lanes)
}

fn from_bytes(bytes: &[u8], peer: &str) -> Result<Vec<LinkAddress>> {
    let lanes = unpack_list(bytes)
        .ok_or_else(|| ExchangeError::protocol(peer, "its link addresses are no list"))?;
    let lanes = lanes.iter();
    lanes
        .map(|lane| LinkAddress::from_bytes(lane, peer))
        .collect()
}
