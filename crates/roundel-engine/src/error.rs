//! The engine's errors: what failed, on which worker, and what to do about it.
//!
//! This module must not know of any transport's details; it turns them into a line for a person.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use roundel_datafusion::TransportError;
use roundel_datafusion::engine::LOST_WORKER;
use roundel_verbs::{Blame, one_line};

/// Result of the engine's calls.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

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
    /// A worker's application adds something else to DataFusion than the coordinator's.
    #[error("worker {url} has {theirs}, this process has {ours}; give all the same extensions")]
    Extensions {
        /// The worker's URL.
        url: String,
        /// The extensions of the worker, by name.
        theirs: String,
        /// The extensions of this process, by name.
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
    #[error(
        "out of memory: {0}; raise --memory-limit, use more workers, or SET \
         datafusion.optimizer.prefer_hash_join = false for joins that spill"
    )]
    OutOfMemory(String),
    /// The disk that a query spills to is full.
    #[error(
        "the disk is full: {0}; free some, set TMPDIR to another directory where the worker is \
         started, or raise --memory-limit so that less is spilled"
    )]
    DiskFull(String),
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
}

impl Blame for EngineError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

impl From<TransportError> for EngineError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Usage(message) => Self::Usage(message),
            TransportError::Io { action, reason } => Self::Io { action, reason },
            TransportError::NoFabric(message) => Self::NoFabric(message),
            TransportError::WorkerLost { url, reason } => Self::WorkerLost { url, reason },
            TransportError::Refused { url } => Self::TokenRefused { url },
            TransportError::DatagramsLost(message) => Self::DatagramsLost(message),
            TransportError::LinkBroken(message) => Self::LinkBroken(message),
            TransportError::OutOfMemory(message) => Self::OutOfMemory(message),
            TransportError::DiskFull(message) => Self::DiskFull(message),
            TransportError::Application(own) => match own.downcast_ref::<Self>() {
                Some(own) => own.clone(),
                None => Self::Query(one_line(&own.to_string())),
            },
            other => Self::Query(other.to_string()),
        }
    }
}

impl From<EngineError> for TransportError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::DatagramsLost(message) => Self::DatagramsLost(message),
            EngineError::LinkBroken(message) => Self::LinkBroken(message),
            EngineError::OutOfMemory(message) => Self::OutOfMemory(message),
            EngineError::DiskFull(message) => Self::DiskFull(message),
            other => Self::Application(Arc::new(other)),
        }
    }
}

impl From<DataFusionError> for EngineError {
    /// Takes the engine's own error out of `error`, if there is one inside. Else keeps the innermost message, in one
    /// line.
    fn from(error: DataFusionError) -> Self {
        TransportError::from(error).into()
    }
}

impl From<EngineError> for DataFusionError {
    fn from(error: EngineError) -> Self {
        TransportError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    fn url() -> Url {
        Url::parse("http://127.0.0.1:4040").expect("a URL")
    }

    fn of_worker(url: &Url, error: DataFusionError) -> EngineError {
        TransportError::of_worker(url, &error).into()
    }

    #[test]
    fn what_is_out_of_memory_says_what_to_do() {
        let told = "Additional allocation failed with top memory consumers: x.\nError: Failed to allocate 1 B";
        let failed = DataFusionError::ResourcesExhausted(told.to_owned());
        let error = of_worker(&url(), failed).to_string();
        for part in [
            "out of memory: worker http://127.0.0.1:4040/: Failed to allocate",
            "--memory-limit",
            "prefer_hash_join = false",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_full_disk_says_which() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let spilled = || {
            DataFusionError::ArrowError(
                Box::new(datafusion::arrow::error::ArrowError::IoError(
                    "x".to_owned(),
                    full(),
                )),
                None,
            )
        };
        let error = EngineError::from(spilled()).to_string();
        let directory = std::env::temp_dir().display().to_string();
        assert!(
            error.contains(&directory) && error.contains("TMPDIR"),
            "{error}"
        );
        let error = of_worker(&url(), spilled()).to_string();
        assert!(
            error.contains("worker http://127.0.0.1:4040/: cannot spill to its TMPDIR"),
            "{error}"
        );
        let written = datafusion::object_store::Error::Generic {
            store: "file",
            source: Box::new(full()),
        };
        let error = EngineError::from(DataFusionError::ObjectStore(Box::new(written)));
        assert!(matches!(error, EngineError::Query(_)), "{error}");
    }
}
