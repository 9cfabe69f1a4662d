//! What an exchange can fail with. Every error names the peer.

use crate::frame::FrameError;
use arrow::error::ArrowError;
use roundel_verbs::{CompletionStatus, VerbsError};
use std::sync::Arc;

/// An error of an exchange. Clones share their source: one failure reaches every partition.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The verbs layer refused something.
    #[error(transparent)]
    Verbs(Arc<VerbsError>),
    /// The connection to the peer broke.
    #[error("connection to {peer} broke ({status:?}): it died or closed the exchange")]
    PeerLost {
        /// The peer, as messages name it.
        peer: String,
        /// How the work request ended.
        status: CompletionStatus,
    },
    /// The peer's side of the query failed.
    #[error("{peer}: {reason}")]
    PeerFailed {
        /// The peer, as messages name it.
        peer: String,
        /// What it said.
        reason: String,
    },
    /// Datagrams were lost.
    #[error("{peer} sent {sent} messages, of which {missing} did not arrive within {waited_ms} ms")]
    MessagesMissing {
        /// The peer, as messages name it.
        peer: String,
        /// Messages it sent.
        sent: u64,
        /// Messages that are missing.
        missing: u64,
        /// How long was waited, in milliseconds.
        waited_ms: u128,
        /// Whether the query shall run again.
        transient: bool,
    },
    /// A peer sent what this version does not understand.
    #[error("{peer} broke the protocol: {reason}")]
    Protocol {
        /// The peer, as messages name it.
        peer: String,
        /// In what way.
        reason: String,
    },
    /// The multiplexer of a peer moves rows by another design than this node's.
    #[error(
        "{peer} moves rows by {theirs}, this node by {own}: give the multiplexers of all nodes the same design"
    )]
    OtherDesign {
        /// The peer, as messages name it.
        peer: String,
        /// The design of this node.
        own: &'static str,
        /// The design of the peer.
        theirs: &'static str,
    },
    /// A frame could not be made or read.
    #[error("frame from {peer}: {source}")]
    Frame {
        /// The peer, as messages name it.
        peer: String,
        /// What is wrong with it.
        source: Arc<FrameError>,
    },
    /// Whoever uses the exchange, or what it injected, made a mistake.
    #[error("the exchange was used wrongly: {0}")]
    Usage(String),
    /// Batches could not be joined.
    #[error("joining batches: {0}")]
    Joining(Arc<ArrowError>),
    /// There is no memory for rows that wait, and no disk either.
    #[error("no memory for rows that wait for their consumer: {0}")]
    OutOfMemory(String),
    /// Reading or writing the spill file failed.
    #[error("spill file: {0}")]
    Spill(Arc<std::io::Error>),
}

impl ExchangeError {
    pub(crate) fn frame(peer: &str, error: FrameError) -> Self {
        Self::Frame {
            peer: peer.into(),
            source: Arc::new(error),
        }
    }

    pub(crate) fn lost(peer: &str, status: CompletionStatus) -> Self {
        let peer = peer.into();
        Self::PeerLost { peer, status }
    }

    pub(crate) fn protocol(peer: &str, reason: impl Into<String>) -> Self {
        Self::Protocol {
            peer: peer.into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn own(reason: String) -> Self {
        Self::Usage(reason)
    }

    pub(crate) fn joining(error: ArrowError) -> Self {
        Self::Joining(Arc::new(error))
    }

    /// Whether it is about one peer, so that what goes to others is not concerned.
    pub(crate) fn is_of_peer(&self) -> bool {
        matches!(
            self,
            Self::PeerLost { .. }
                | Self::PeerFailed { .. }
                | Self::MessagesMissing { .. }
                | Self::Protocol { .. }
                | Self::OtherDesign { .. }
        )
    }

    /// Whether the query shall run again: nothing is wrong with it or with a peer, and
    /// [`OnLoss`](crate::OnLoss) wants it.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::MessagesMissing {
                transient: true,
                ..
            }
        )
    }
}

impl From<VerbsError> for ExchangeError {
    fn from(error: VerbsError) -> Self {
        Self::Verbs(Arc::new(error))
    }
}

/// Result of the exchange.
pub type Result<T, E = ExchangeError> = std::result::Result<T, E>;
