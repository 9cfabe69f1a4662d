//! Turns a failure into the form that its next reader needs: an error of this process's exchange into one of the query,
//! an error of a producer into what its consumer is told, and what a consumer was told back into an error.

use crate::error::{TransportError, on_worker};
use crate::protocol::{Failed, FailureKind};
use datafusion::error::DataFusionError;
use futures::FutureExt as _;
use roundel_exchange::ExchangeError;
use std::panic::AssertUnwindSafe;
use url::Url;

/// Turns the `error` that a producer failed with into the message for its consumer.
pub(super) fn failed(error: DataFusionError) -> Failed {
    let (message, kind) = match TransportError::from(error) {
        TransportError::OutOfMemory(message) => (message, FailureKind::Memory),
        TransportError::DatagramsLost(message) => (message, FailureKind::Datagrams),
        TransportError::LinkBroken(message) => (message, FailureKind::Link),
        TransportError::DiskFull(message) => (message, FailureKind::Disk),
        other => (other.to_string(), FailureKind::Query),
    };
    Failed {
        message,
        kind: kind.into(),
    }
}

/// The failure of a query that cannot go on, with the reason as `message`.
pub(super) fn failed_with(message: String) -> Failed {
    Failed {
        message,
        kind: FailureKind::Query.into(),
    }
}

/// The failure of a task whose consumers have left.
pub(super) fn orphaned(message: &str) -> Failed {
    Failed {
        message: message.to_owned(),
        kind: FailureKind::Orphaned.into(),
    }
}

/// The result of a task of this process. A panic becomes a failure that has the message of the panic.
pub(super) async fn or_panicked<T>(
    task: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    // Nobody looks at what it left behind.
    let ended = AssertUnwindSafe(task).catch_unwind().await;
    ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        Err(failed_with(format!("a task panicked: {text}")))
    })
}

/// The error of a consumer whose producer, on the worker at `url`, `told` it of a failure.
pub(super) fn task_error(url: &Url, told: &Failed) -> DataFusionError {
    let message = on_worker(url, &told.message);
    match told.kind() {
        FailureKind::Memory => TransportError::OutOfMemory(message).into(),
        FailureKind::Datagrams => TransportError::DatagramsLost(message).into(),
        FailureKind::Link => TransportError::LinkBroken(message).into(),
        FailureKind::Disk => TransportError::DiskFull(message).into(),
        FailureKind::Query | FailureKind::Orphaned => TransportError::Query(message).into(),
    }
}

/// What an error of the exchange in this process, which errors call `own`, means for a query.
pub(super) fn exchange_error(own: &str, error: ExchangeError) -> DataFusionError {
    match error {
        // The peer may be dead. The task that watches over the query finds that out.
        ExchangeError::PeerLost { .. } => {
            TransportError::LinkBroken(format!("{}: {error}", own)).into()
        }
        ExchangeError::PeerFailed { reason, .. } => TransportError::Query(reason).into(),
        ExchangeError::Verbs(verbs)
            if matches!(*verbs, roundel_verbs::VerbsError::PeerUnreachable { .. }) =>
        {
            TransportError::LinkBroken(format!("{}: {verbs}", own)).into()
        }
        error if error.is_transient() => TransportError::DatagramsLost(error.to_string()).into(),
        ExchangeError::OutOfMemory(_) => DataFusionError::ResourcesExhausted(error.to_string()),
        other => TransportError::Query(other.to_string()).into(),
    }
}
