//! The engine's errors: what failed, on which worker, and what to do about it.
//!
//! This module must not know of any transport's details; it turns them into a line for a person.

use std::path::PathBuf;

use datafusion::error::DataFusionError;

/// Result of the engine's calls.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// What the message of [`EngineError::WorkerLost`] begins with.
pub(crate) const LOST_WORKER: &str = "lost worker ";

/// What can go wrong in the engine. Each displays as one line.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The caller asked for something that cannot be: a scale of 0, an unknown fabric, a bad path.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused something.
    #[error("cannot {action}: {reason}")]
    Io {
        /// What was tried, as a verb phrase.
        action: String,
        /// The system's reason.
        reason: String,
    },
    /// A worker process did not come up.
    #[error("worker {index} did not start: {reason}")]
    WorkerStart {
        /// Which of the workers, counted from 0.
        index: usize,
        /// Why, as far as it can be told.
        reason: String,
    },
    /// A worker could not be reached at all.
    #[error("cannot reach worker {url}: {reason}; is it running, and is the address right?")]
    WorkerUnreachable {
        /// The worker's URL.
        url: String,
        /// The transport's reason.
        reason: String,
    },
    /// A worker stopped answering while it was needed.
    #[error("{LOST_WORKER}{url}: {reason}")]
    WorkerLost {
        /// The worker's URL.
        url: String,
        /// How it was noticed.
        reason: String,
    },
    /// A worker holds no shard that a memory table needs.
    #[error(
        "memory table {table} has lost the shard that worker {url} held, because that worker \
         ended or was restarted; load the tables again"
    )]
    ShardLost {
        /// The table's name.
        table: String,
        /// The URL of the worker that held the shard.
        url: String,
    },
    /// A worker does not know the cluster's token.
    #[error("worker {url} refused this cluster's token; start it with the same --token-file")]
    TokenRefused {
        /// The worker's URL.
        url: String,
    },
    /// A worker is of another version.
    #[error(
        "worker {url} is Roundel {theirs}, this is Roundel {ours}; run the same version everywhere"
    )]
    Version {
        /// The worker's URL.
        url: String,
        /// The worker's version.
        theirs: String,
        /// This process's version.
        ours: String,
    },
    /// The directory for Parquet files holds something else.
    #[error("{}: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The network lost datagrams of the query: nothing is wrong with it, and it may be run again.
    #[error("{0}; datagrams were lost, run the query again or use --design MEMQ/SR")]
    DatagramsLost(String),
    /// A connection between two processes broke, while both live: nothing is wrong with the query,
    /// and it may be run again.
    #[error("{0}; the network between them failed, run the query again")]
    LinkBroken(String),
    /// The fabric asked for is not there, or does not join all workers.
    #[error("{0}")]
    NoFabric(String),
    /// A query needed more memory than a process may use, and could not spill it.
    #[error("out of memory: {0}; raise --memory-limit, or use more workers")]
    OutOfMemory(String),
    /// A query failed: bad SQL, an unknown table, a corrupt file.
    #[error("{0}")]
    Query(String),
}

impl EngineError {
    pub(crate) fn io(action: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Io {
            action: action.into(),
            reason: reason.to_string(),
        }
    }

    /// Whether running the query again can help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::DatagramsLost(_) | Self::LinkBroken(_))
    }

    /// Whether the caller's input is at fault, as opposed to something that failed on the way.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

impl From<DataFusionError> for EngineError {
    /// Finds an error of the engine's own inside, else keeps the innermost message in one line.
    fn from(error: DataFusionError) -> Self {
        if let Some(own) = find_own(&error) {
            return own.clone();
        }
        if let DataFusionError::ResourcesExhausted(told) = error.find_root() {
            // A list of the memory's largest users comes first, the refusal itself last.
            let refusal = told.rsplit("Error: ").next().unwrap_or(told);
            return Self::OutOfMemory(one_line(refusal));
        }
        Self::Query(one_line(&error.strip_backtrace()))
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

impl From<EngineError> for DataFusionError {
    fn from(error: EngineError) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

fn find_own<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a EngineError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<EngineError>() {
            return Some(own);
        }
        if let Some(DataFusionError::External(inner)) = error.downcast_ref::<DataFusionError>()
            && let Some(own) = inner.downcast_ref::<EngineError>()
        {
            return Some(own);
        }
        next = error.source();
    }
    None
}
