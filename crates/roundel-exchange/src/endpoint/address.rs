//! What the two ends of a link tell each other out of band.

use crate::error::{ExchangeError, Result};
use roundel_verbs::QueuePairAddress;

/// One end of a link, as its peer needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The exchange; chosen by the sender, 0 in the receiver's offer.
    pub exchange: u64,
    /// Index of the source in the exchange; 0 in the receiver's offer.
    pub source: u32,
    /// Index of the destination at the sender, which the receiver's control messages carry in
    /// place of a partition; 0 in the receiver's offer.
    pub destination: u32,
    /// In the receiver's offer over datagrams: the credit that the source begins with. 0 over
    /// Reliable Connection, where nothing may be sent before the receiver is connected, and in
    /// the sender's answer.
    pub credit: u32,
    /// The queue pair of this end.
    pub queue_pair: QueuePairAddress,
}

impl LinkAddress {
    /// The bytes to hand to the peer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        bytes.extend_from_slice(&self.exchange.to_le_bytes());
        bytes.extend_from_slice(&self.source.to_le_bytes());
        bytes.extend_from_slice(&self.destination.to_le_bytes());
        bytes.extend_from_slice(&self.credit.to_le_bytes());
        bytes.extend_from_slice(&self.queue_pair.to_bytes());
        bytes
    }

    /// Reads what the peer `peer` handed over.
    pub fn from_bytes(bytes: &[u8], peer: &str) -> Result<Self> {
        let Some((exchange, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(short(peer));
        };
        let Some((source, rest)) = rest.split_first_chunk::<4>() else {
            return Err(short(peer));
        };
        let Some((destination, rest)) = rest.split_first_chunk::<4>() else {
            return Err(short(peer));
        };
        let Some((credit, rest)) = rest.split_first_chunk::<4>() else {
            return Err(short(peer));
        };
        Ok(Self {
            credit: u32::from_le_bytes(*credit),
            destination: u32::from_le_bytes(*destination),
            exchange: u64::from_le_bytes(*exchange),
            source: u32::from_le_bytes(*source),
            queue_pair: QueuePairAddress::from_bytes(rest)?,
        })
    }
}

fn short(peer: &str) -> ExchangeError {
    ExchangeError::Protocol {
        peer: peer.into(),
        reason: "its link address is too short".into(),
    }
}
