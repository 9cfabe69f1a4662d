//! What can go wrong between tasks: what failed, on which worker, and what to do about it.

use std::error::Error;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use roundel_verbs::one_line;
use url::Url;

/// Result of this crate's calls.
pub type Result<T, E = TransportError> = std::result::Result<T, E>;

/// What the message of [`TransportError::WorkerLost`] begins with.
pub const LOST_WORKER: &str = "lost worker ";

/// What can go wrong between tasks. Each displays as one line. A [`DataFusionError`] of a query converts to it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The caller asked for something that cannot be: an unknown fabric, more memory than there are addresses.
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
    /// The fabric asked for is not there, or cannot carry what is asked for.
    #[error("{0}")]
    NoFabric(String),
    /// A worker stopped answering while it was needed.
    #[error("{LOST_WORKER}{url}: {reason}")]
    WorkerLost {
        /// The worker's URL.
        url: String,
        /// How it was noticed.
        reason: String,
    },
    /// A worker takes no calls of this process.
    #[error("worker {url} refused this process: it is not authenticated there")]
    Refused {
        /// The worker's URL.
        url: String,
    },
    /// The network lost datagrams of the query: nothing is wrong with it, and it may be run again.
    #[error("{0}; datagrams were lost, run the query again")]
    DatagramsLost(String),
    /// A connection between two processes broke, while both live: nothing is wrong with the query,
    /// and it may be run again.
    #[error("{0}; the network between them failed, run the query again")]
    LinkBroken(String),
    /// A query needed more memory than a process may use, and could not spill it.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// The disk that a query spills to is full.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// A query failed: of its own, or because another task of it did.
    #[error("{0}")]
    Query(String),
    /// An error of the application. Wrapped in this one it keeps its own words on the way to the coordinator.
    #[error("{0}")]
    Application(Arc<dyn Error + Send + Sync>),
}

impl TransportError {
    pub(crate) fn io(action: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Io {
            action: action.into(),
            reason: reason.to_string(),
        }
    }

    /// What the worker at `url` reported, which says where that was.
    pub fn of_worker(url: &Url, error: &DataFusionError) -> Self {
        // The directory that it spills to is its own.
        match of_query(error, || "cannot spill to its TMPDIR".to_owned()) {
            Self::Query(message) => Self::Query(on_worker(url, &message)),
            Self::OutOfMemory(message) => Self::OutOfMemory(on_worker(url, &message)),
            Self::DiskFull(message) => Self::DiskFull(on_worker(url, &message)),
            other => other,
        }
    }
}

impl From<DataFusionError> for TransportError {
    /// Takes the error of this type out of `error`, if there is one inside. Else keeps the innermost message, in one line.
    fn from(error: DataFusionError) -> Self {
        let spills_to = || format!("cannot spill to {}", std::env::temp_dir().display());
        of_query(&error, spills_to)
    }
}

impl From<TransportError> for DataFusionError {
    /// datafusion-distributed's transport keeps the kind of DataFusion's own errors, and only the text of others.
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::OutOfMemory(message) => Self::ResourcesExhausted(message),
            other => Self::External(Box::new(other)),
        }
    }
}

/// A message of a worker, which says where it is from: once, through however many workers it came.
pub(crate) fn on_worker(url: &Url, message: &str) -> String {
    match message.contains("worker http") {
        true => message.to_owned(),
        false => format!("worker {url}: {message}"),
    }
}

fn of_query(error: &DataFusionError, spills_to: impl Fn() -> String) -> TransportError {
    if let Some(own) = find_own(error) {
        return own.clone();
    }
    if is_disk_full(error) {
        return TransportError::DiskFull(spills_to());
    }
    if let DataFusionError::ResourcesExhausted(told) = error.find_root() {
        // A list of the memory's largest users comes first, the refusal itself last.
        let refusal = told.rsplit("Error: ").next().unwrap_or(told);
        return TransportError::OutOfMemory(one_line(refusal));
    }
    TransportError::Query(one_line(&error.strip_backtrace()))
}

/// Whether a query could not spill because the disk is full. When its result cannot be written to a file, the error is
/// another one, which names the file.
fn is_disk_full(error: &DataFusionError) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    let mut full = false;
    while let Some(error) = next {
        if error.is::<datafusion::object_store::Error>() {
            return false;
        }
        let io = error.downcast_ref::<std::io::Error>();
        full |= io.is_some_and(|io| io.kind() == std::io::ErrorKind::StorageFull);
        next = error.source();
    }
    full
}

fn find_own<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a TransportError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<TransportError>() {
            return Some(own);
        }
        if let Some(DataFusionError::External(inner)) = error.downcast_ref::<DataFusionError>()
            && let Some(own) = inner.downcast_ref::<TransportError>()
        {
            return Some(own);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::LINE_CHARS_MAX;

    #[test]
    fn a_long_error_is_one_line() {
        let long = format!(
            "reading /data/t.json:\n{}\nunexpected end",
            "x".repeat(780_000)
        );
        let line = TransportError::from(DataFusionError::Execution(long)).to_string();
        assert_eq!(line.chars().count(), LINE_CHARS_MAX);
    }

    #[test]
    fn an_error_of_a_worker_names_it_once() {
        let url = Url::parse("http://127.0.0.1:4040").expect("a URL");
        let failed = DataFusionError::Execution("division by zero".to_owned());
        let error = TransportError::of_worker(&url, &failed);
        let text = "worker http://127.0.0.1:4040/: Execution error: division by zero";
        assert_eq!(error.to_string(), text);
        // It came through another one.
        let other = Url::parse("http://127.0.0.1:5050").expect("a URL");
        assert_eq!(
            TransportError::of_worker(&other, &error.into()).to_string(),
            text
        );
    }

    #[test]
    fn an_error_of_the_application_keeps_its_words() {
        let own = std::io::Error::other("the moon is not full");
        let error = DataFusionError::from(TransportError::Application(Arc::new(own)));
        let error = DataFusionError::Context("while looking up".to_owned(), Box::new(error));
        assert_eq!(
            TransportError::from(error).to_string(),
            "the moon is not full"
        );
    }
}
