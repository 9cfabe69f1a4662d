//! How peers meet: they exchange opaque addresses out of band, before there is a queue pair, and
//! learn of each other's death.
//!
//! [`Rendezvous`] is the seam. [`SocketRendezvous`] is the implementation over TCP, for programs
//! that start their processes themselves; an engine has its own control plane, and a simulation
//! needs none. Nothing here knows what the bytes mean: device, queue pair and memory addresses
//! are the caller's to encode, and to check.

mod link;
mod socket;
mod wire;

pub use socket::{SocketListener, SocketOptions, SocketRendezvous};

use crate::completion_queue::BoxFuture;
use crate::error::{Result, VerbsError};

/// Most peers of a group.
pub const PEERS_MAX: usize = 1024;
/// Most bytes that a peer hands over in one exchange.
pub const EXCHANGE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 64;

/// A group of peers, numbered by rank from 0, as one of them sees it.
///
/// A group is complete from the start and stays as it is: when one peer is lost, every exchange
/// of the others fails.
pub trait Rendezvous: Send {
    /// This peer's rank.
    fn rank(&self) -> usize;

    /// How many peers the group has, this one included.
    fn peers(&self) -> usize;

    /// Hands `bytes` to every peer and takes theirs: the result is indexed by rank and has this
    /// peer's own bytes too. It is complete when all peers have called it, which makes it a
    /// barrier; without bytes it is nothing else. All peers call it equally often. Dropping the
    /// future before it is ready takes this peer out of step: it cannot exchange any more.
    ///
    /// # Errors
    /// [`VerbsError::PeerDied`] when a peer is lost or too late;
    /// [`VerbsError::InvalidRequest`] for more than [`EXCHANGE_BYTES_MAX`] bytes.
    fn exchange(&mut self, bytes: Vec<u8>) -> BoxFuture<'_, Result<Vec<Vec<u8>>>>;

    /// Hands each peer bytes of its own, `bytes[rank]`, and takes what each has for this one. An
    /// [`exchange`](Self::exchange) in which peers see only what is for them.
    ///
    /// # Errors
    /// Those of an exchange; [`VerbsError::PeerDied`] when a peer did not call this.
    fn exchange_each(&mut self, bytes: Vec<Vec<u8>>) -> BoxFuture<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move {
            let (rank, peers) = (self.rank(), self.peers());
            let all = self.exchange(pack_list(&bytes)).await?;
            let mine = |(peer, bytes): (usize, &Vec<u8>)| {
                let mut list = unpack_list(bytes).filter(|list| list.len() == peers);
                let mine = list.as_mut().map(|list| list.swap_remove(rank));
                mine.ok_or_else(|| VerbsError::PeerDied {
                    peer: peer.to_string(),
                    reason: "it took part in the exchange with something else".into(),
                })
            };
            all.iter().enumerate().map(mine).collect()
        })
    }

    /// Ready when a peer is lost: it died, it left, or its host cannot be reached any more. A peer
    /// that has done its work leaves too, so the last thing a group does is an exchange, after
    /// which nobody asks. Never ready once this end has been dropped.
    fn lost(&self) -> BoxFuture<'static, LostPeer>;
}

/// Makes one run of bytes of several, each with its length.
pub fn pack_list<T: AsRef<[u8]>>(list: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in list {
        bytes.extend_from_slice(&(item.as_ref().len() as u32).to_le_bytes());
        bytes.extend_from_slice(item.as_ref());
    }
    bytes
}

/// The reverse of [`pack_list`]; none when the bytes are not such a list.
pub fn unpack_list(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (item, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        list.push(item.to_vec());
        bytes = rest;
    }
    Some(list)
}

/// A peer of a rendezvous that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPeer {
    /// Its number in the group.
    pub rank: usize,
    /// How its loss was noticed, in words.
    pub reason: String,
}

impl From<LostPeer> for VerbsError {
    fn from(lost: LostPeer) -> Self {
        Self::PeerDied {
            peer: lost.rank.to_string(),
            reason: lost.reason,
        }
    }
}

#[cfg(test)]
mod tests;
