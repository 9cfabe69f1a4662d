//! What a measurement can fail with.

use roundel_verbs::{Blame, CompletionStatus, VerbsError};

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// A verb or the rendezvous failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// What was asked for cannot be measured, or not on these devices.
    #[error("{0}")]
    Unsupported(String),
    /// The peer ended or cannot be reached any more.
    #[error("peer {peer} is gone: {reason}")]
    PeerLost {
        /// The peer, as messages name it.
        peer: String,
        /// What was seen.
        reason: String,
    },
    /// The peer failed and said why.
    #[error("peer {peer} gave up: {reason}")]
    PeerFailed {
        /// The peer, as messages name it.
        peer: String,
        /// Its own words.
        reason: String,
    },
    /// The peer said something that this step does not have.
    #[error("peer {peer} broke the perf protocol: {reason}")]
    Protocol {
        /// The peer, as messages name it.
        peer: String,
        /// What was wrong.
        reason: String,
    },
    /// A work request to or from the peer failed.
    #[error("{what} to or from peer {peer} failed: {status:?}")]
    Completion {
        /// What it was.
        what: &'static str,
        /// The peer, as messages name it.
        peer: String,
        /// How it ended.
        status: CompletionStatus,
    },
    /// What arrived is not what was sent.
    #[error(
        "wrong data from peer {peer}: {what}, message {message} of {bytes} bytes, differs at byte {at}"
    )]
    WrongBytes {
        /// The peer, as messages name it.
        peer: String,
        /// Which verb moved them.
        what: &'static str,
        /// Number of the message.
        message: u64,
        /// Its size.
        bytes: usize,
        /// The first byte that is wrong.
        at: usize,
    },
    /// A message, or a count of them, that cannot be.
    #[error("{what}: {expected} expected, {found} found, with peer {peer}")]
    Miscounted {
        /// What was counted.
        what: String,
        /// How many there should be.
        expected: u64,
        /// How many there are.
        found: u64,
        /// The peer, as messages name it.
        peer: String,
    },
    /// Whoever asked for the measurement does not want it any more.
    #[error("the measurement was stopped")]
    Stopped,
}

impl Blame for PerfError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Unsupported(_))
    }
}

/// Result of a measurement.
pub type Result<T, E = PerfError> = std::result::Result<T, E>;
