//! What protocols can fail with: an end of a conversation, and a single call.

use roundel_verbs::{Blame, CompletionStatus, VerbsError};
use std::time::Duration;

/// Why an end cannot be made, connected or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A verb failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// What was asked for cannot be, or not on this device.
    #[error("{0}")]
    Unsupported(String),
    /// The operating system failed.
    #[error("{what}: {source}")]
    System {
        /// What was done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A node failed, or is gone.
    #[error("node {node}: {reason}")]
    Node {
        /// The rank of the node.
        node: usize,
        /// In its words, or what was seen.
        reason: String,
    },
    /// The peer offered something that does not fit.
    #[error("peer {peer} does not fit: {reason}")]
    Offer {
        /// The peer, as messages name it.
        peer: String,
        /// What is wrong.
        reason: String,
    },
}

impl Blame for ProtocolError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Unsupported(_))
    }
}

/// Why a call has no answer. Each call ends in its answer or in one of these, once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There was no answer within its deadline. The responder may have carried it out.
    #[error("peer {peer} did not answer within {after:?}")]
    Deadline {
        /// The peer, as messages name it.
        peer: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke, or the peer has not answered for too long. The responder may have carried it out.
    #[error("peer {peer} is gone: {reason}")]
    PeerGone {
        /// The peer, as messages name it.
        peer: String,
        /// What was seen.
        reason: String,
    },
    /// The responder refused it, and says why.
    #[error("peer {peer} refused: {reason}")]
    Refused {
        /// The peer, as messages name it.
        peer: String,
        /// In its words.
        reason: String,
    },
    /// It has more bytes than the connection carries.
    #[error("{bytes} bytes of {what} for peer {peer}: at most {most}")]
    TooLong {
        /// The peer, as messages name it.
        peer: String,
        /// A request, or a response.
        what: &'static str,
        /// Bytes that it has.
        bytes: usize,
        /// Bytes that it may have.
        most: usize,
    },
    /// As many calls are pending on the connection as there can be.
    #[error("{pending} calls are pending with peer {peer}, more cannot be")]
    NoRoom {
        /// The peer, as messages name it.
        peer: String,
        /// How many there can be.
        pending: usize,
    },
    /// This end was closed before there was an answer. The responder may have carried it out.
    #[error("the call has ended with its client: {reason}")]
    Closed {
        /// What ended the client.
        reason: String,
    },
    /// This protocol has no such call.
    #[error("{0}")]
    Unsupported(String),
}

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone(pub String);

impl Gone {
    pub(crate) fn status(what: &str, status: CompletionStatus) -> Self {
        Self(format!("a {what} ended with {status:?}"))
    }
}

/// Result of an end.
pub type Result<T, E = ProtocolError> = std::result::Result<T, E>;

/// A text that came from outside, for people: one line without control characters.
pub(crate) fn one_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 1000;
    let text: String = text.chars().take(CHARACTERS_MAX).collect();
    text.replace(char::is_control, " ")
}
