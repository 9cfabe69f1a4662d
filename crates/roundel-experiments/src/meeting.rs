//! Where the nodes of a run meet, with the process that started them: peer 0 of the rendezvous is that
//! process, node `n` is peer `n + 1`. It goes along with every exchange of the nodes until all of them
//! have reported.

use crate::error::{Error, Result};
use roundel_verbs::completion_queue::BoxFuture;
use roundel_verbs::rendezvous::{LostPeer, pack_list, unpack_list};
use roundel_verbs::{Rendezvous, SocketOptions, SocketRendezvous};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// First byte of what a node hands over between its start and its report.
const STEP: u8 = 0;
/// First byte of a node's report.
const REPORT: u8 = 1;

/// A node's end.
pub struct Meeting {
    rendezvous: SocketRendezvous,
    address: IpAddr,
}

impl Meeting {
    /// Joins as node `node` of `nodes`.
    pub async fn join(at: SocketAddr, node: usize, nodes: usize, token: &str) -> Result<Self> {
        let options = SocketOptions::new(token);
        let rendezvous = SocketRendezvous::join(at, node + 1, nodes + 1, &options).await?;
        let address = towards(at).map_err(Error::io("find this host's address"))?;
        Ok(Self {
            rendezvous,
            address,
        })
    }

    /// An address of this host at which other nodes reach it: that of the interface by which it reaches the meeting.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// This node.
    pub fn node(&self) -> usize {
        self.rendezvous.rank() - 1
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.rendezvous.peers() - 1
    }

    /// Hands each node bytes of its own and takes what each has for this one.
    pub async fn each(&mut self, bytes: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let (node, nodes) = (self.node(), self.nodes());
        let mut all = self.exchange(STEP, pack_list(&bytes)).await?;
        let mine = |(from, packed): (usize, &mut Vec<u8>)| {
            let list = unpack_list(packed).filter(|list| list.len() == nodes);
            let mine = list.map(|mut list| list.swap_remove(node));
            mine.ok_or_else(|| Error::Wrong(format!("node {from} is out of step")))
        };
        all.iter_mut().enumerate().map(mine).collect()
    }

    /// Hands the same bytes to all.
    pub async fn all(&mut self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.exchange(STEP, bytes).await
    }

    /// Waits until all nodes have come here.
    pub async fn barrier(&mut self) -> Result<()> {
        self.exchange(STEP, Vec::new()).await.map(drop)
    }

    /// Says what was measured: the last that a node does.
    pub async fn report(&mut self, measured: &impl Serialize) -> Result<()> {
        let json = serde_json::to_vec(measured).expect("plain data is JSON");
        self.exchange(REPORT, json).await.map(drop)
    }

    /// Ready when another process of the run is gone.
    pub fn lost(&self) -> BoxFuture<'static, LostPeer> {
        self.rendezvous.lost()
    }

    async fn exchange(&mut self, kind: u8, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let mut said = vec![kind];
        said.extend(bytes);
        let all = self.rendezvous.exchange(said).await?;
        // Peer 0 is none of the nodes.
        Ok(all
            .into_iter()
            .skip(1)
            .map(|one| one.get(1..).unwrap_or_default().to_vec())
            .collect())
    }
}

/// The address of this host from which it reaches another. Nothing is sent for it.
fn towards(other: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

/// Goes along with the nodes until they have reported.
///
/// # Errors
/// Whom the rendezvous lost, or whose report cannot be read.
pub async fn attend<T: DeserializeOwned>(rendezvous: &mut SocketRendezvous) -> Result<Vec<T>> {
    loop {
        let all = rendezvous.exchange(Vec::new()).await?;
        let nodes = &all[1..];
        if nodes.iter().any(|said| said.first() != Some(&REPORT)) {
            continue;
        }
        let read = |(node, said): (usize, &Vec<u8>)| {
            serde_json::from_slice(&said[1..]).map_err(|error| Error::Node {
                node,
                reason: format!("its report cannot be read: {error}"),
            })
        };
        return nodes.iter().enumerate().map(read).collect();
    }
}
