//! Joins the nodes of an exchange, all with all, through a rendezvous: for programs that have no
//! control plane of their own.

use crate::endpoint::LinkAddress;
use crate::error::{ExchangeError, Result};
use crate::operator::{Destination, Group, PartitionStream, Receive, ReceiveLink, Shuffle};
use arrow::datatypes::SchemaRef;
use futures::future::try_join_all;
use roundel_verbs::Rendezvous;
use roundel_verbs::rendezvous::{pack_list, unpack_list};
use std::ops::Range;

/// What joins a node with all nodes, itself included; both by rank.
pub struct Mesh {
    /// Where it sends.
    pub destinations: Vec<Destination>,
    /// A transmission group of each destination alone: scattered over them, partition `p` goes to
    /// node `p`.
    pub groups: Vec<Group>,
    /// Where it receives from.
    pub sources: Vec<ReceiveLink>,
}

impl Mesh {
    /// Joins this node with the others of the rendezvous, all of which call this with the same
    /// options of the exchange. It receives `partitions` from each.
    pub async fn join(
        rendezvous: &mut dyn Rendezvous,
        shuffle: &Shuffle,
        receive: &Receive,
        partitions: Range<u32>,
    ) -> Result<Self> {
        let mut mesh = Self {
            destinations: Vec::new(),
            groups: Vec::new(),
            sources: Vec::new(),
        };
        let mut offers = Vec::new();
        for source in 0..rendezvous.peers() {
            let (link, offer) = receive.offer(&name(source), partitions.clone())?;
            mesh.sources.push(link);
            offers.push(to_bytes(&offer));
        }
        let mut answers = Vec::new();
        for (target, offer) in rendezvous.exchange_each(offers).await?.iter().enumerate() {
            let peer = name(target);
            let (destination, answer) = shuffle.accept(&from_bytes(offer, &peer)?, &peer)?;
            mesh.groups
                .push(shuffle.group(std::slice::from_ref(&destination))?);
            mesh.destinations.push(destination);
            answers.push(to_bytes(&answer));
        }
        let answers = rendezvous.exchange_each(answers).await?;
        for (source, (link, answer)) in mesh.sources.iter().zip(&answers).enumerate() {
            receive.connect(link, &from_bytes(answer, &name(source))?)?;
        }
        Ok(mesh)
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
    let lanes = unpack_list(bytes).ok_or_else(|| ExchangeError::Protocol {
        peer: peer.into(),
        reason: "its link addresses are no list".into(),
    })?;
    let lanes = lanes.iter();
    lanes
        .map(|lane| LinkAddress::from_bytes(lane, peer))
        .collect()
}
