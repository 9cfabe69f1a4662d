//! What a run can fail with. In a node it ends the process, which says it; whoever started the nodes
//! names the node.

use roundel_exchange::ExchangeError;
use roundel_protocols::ProtocolError;
use roundel_ring::RingError;
use roundel_verbs::VerbsError;
use roundel_verbs::sim::Stopped;

/// An error of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The exchange failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// A conversation failed.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The ring failed.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The verbs layer, or the rendezvous, failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A frame could not be made or read.
    #[error("a frame of rows: {0}")]
    Frame(#[from] roundel_exchange::frame::FrameError),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// Why it was not.
        source: std::io::Error,
    },
    /// gRPC failed.
    #[error("gRPC with {peer}: {reason}")]
    Grpc {
        /// The node, as messages name it.
        peer: String,
        /// What it said.
        reason: String,
    },
    /// MPI failed.
    #[error("MPI: {0}")]
    Mpi(String),
    /// The setting cannot be run.
    #[error("the setting cannot be run: {0}")]
    Setting(String),
    /// Other rows arrived than were sent.
    #[error("{0}")]
    Wrong(String),
    /// A node failed.
    #[error("node {node} failed: {reason}")]
    Node {
        /// Its number.
        node: usize,
        /// What it said, or how it ended.
        reason: String,
    },
    /// A command that was run failed.
    #[error("{command} failed: {reason}")]
    Command {
        /// The command.
        command: String,
        /// What it said.
        reason: String,
    },
}

impl Error {
    /// What turns the system's error into this one.
    pub(crate) fn io(action: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Self {
        Self::Wrong(match stopped {
            Stopped::NoProgress => "the simulation stands still: nothing is left to happen".into(),
            Stopped::OutOfTime => "the simulated cluster does not come to an end".into(),
        })
    }
}

/// Result of a run.
pub type Result<T, E = Error> = std::result::Result<T, E>;
