//! The transport service of a queue pair, and the states that it goes through.

/// The transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transport {
    /// Reliable connection: one peer, in order, nothing lost.
    ReliableConnection,
    /// Unreliable connection: one peer, in order, may lose; no READ, no atomics.
    UnreliableConnection,
    /// Unreliable datagram: any peer, small messages, may lose and reorder.
    UnreliableDatagram,
}

impl Transport {
    /// Every transport service.
    pub const ALL: [Self; 3] = [
        Self::ReliableConnection,
        Self::UnreliableConnection,
        Self::UnreliableDatagram,
    ];

    /// Whether a queue pair of it is connected to one peer.
    pub fn is_connected(self) -> bool {
        self != Self::UnreliableDatagram
    }

    /// What errors call queue pairs of it.
    pub(crate) fn queue_pairs(self) -> &'static str {
        match self {
            Self::ReliableConnection => "RC queue pairs",
            Self::UnreliableConnection => "UC queue pairs",
            Self::UnreliableDatagram => "UD queue pairs",
        }
    }

    /// The name reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReliableConnection => "RC",
            Self::UnreliableConnection => "UC",
            Self::UnreliableDatagram => "UD",
        }
    }
}

/// The state machine of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePairState {
    /// Created: receives may be posted.
    Init,
    /// Ready to send (and to receive).
    ReadyToSend,
    /// Broken: everything posted is flushed.
    Error,
}
