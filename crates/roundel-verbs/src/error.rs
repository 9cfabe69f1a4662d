//! The errors of the verbs layer. A failure that a peer can cause is one of these; a broken
//! invariant of ours is an assertion.

use crate::transport::{QueuePairState, Transport};

/// What a verb can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The quota of registered memory does not allow this allocation now.
    #[error(
        "out of registered memory: {requested} bytes asked for, {registered} of {limit} bytes in use; \
         raise the registered-memory quota or use fewer or smaller buffers"
    )]
    OutOfRegisteredMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes registered now.
        registered: usize,
        /// The quota in bytes.
        limit: usize,
    },
    /// A limit of the device does not allow this object.
    #[error("device limit: {what} is at most {limit}, {requested} asked for")]
    DeviceLimit {
        /// The name of the limit.
        what: &'static str,
        /// The value asked for.
        requested: usize,
        /// The device's limit.
        limit: usize,
    },
    /// The queue pair's state does not allow this verb.
    #[error("{verb} is not allowed on a queue pair in state {state:?}")]
    InvalidState {
        /// The verb that was called.
        verb: &'static str,
        /// The state the queue pair is in.
        state: QueuePairState,
    },
    /// The transport does not support this operation.
    #[error("{operation} is not supported on {}", .transport.name())]
    UnsupportedOnTransport {
        /// The operation.
        operation: &'static str,
        /// The transport service of the queue pair.
        transport: Transport,
    },
    /// The device, or its provider, does not have this.
    #[error("the {provider} provider has no {what}")]
    Unsupported {
        /// The name of the provider.
        provider: &'static str,
        /// What it does not have.
        what: &'static str,
    },
    /// The library that opens devices is not there.
    #[error(
        "{library} cannot be loaded ({reason}); install it, on Debian and Ubuntu with \
         `apt-get install libibverbs1 librdmacm1 ibverbs-providers`"
    )]
    NoLibrary {
        /// Its file name.
        library: &'static str,
        /// What the loader says.
        reason: String,
    },
    /// There is no device to open, or not the one asked for.
    #[error("{0}")]
    NoDevice(String),
    /// The operating system does not let this process pin as much memory.
    #[error(
        "cannot pin {requested} bytes for the device: this process may lock {limit} bytes; raise it \
         with `ulimit -l unlimited`, or for good with `* - memlock unlimited` in \
         /etc/security/limits.d/rdma.conf and a new login"
    )]
    MemoryLockLimit {
        /// Bytes that were to be registered.
        requested: usize,
        /// The limit of locked memory, in bytes.
        limit: u64,
    },
    /// A work request breaks a rule that the caller can know.
    #[error("invalid work request: {0}")]
    InvalidRequest(String),
    /// An address is not one of this provider, or is damaged.
    #[error("invalid address: {0}")]
    InvalidAddress(String),
    /// The peer's device cannot be reached.
    #[error("cannot reach peer {peer}: {reason}")]
    PeerUnreachable {
        /// The peer, as messages name it.
        peer: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Peers disagree on the version of the protocol.
    #[error("peer {peer} speaks version {theirs} of the {protocol} protocol, this side {ours}")]
    VersionMismatch {
        /// The peer, as messages name it.
        peer: String,
        /// The name of the protocol.
        protocol: &'static str,
        /// The peer's version.
        theirs: u32,
        /// Our version.
        ours: u32,
    },
    /// A peer of a rendezvous went away.
    #[error("peer {peer} is gone: {reason}")]
    PeerDied {
        /// The peer, as messages name it.
        peer: String,
        /// What was seen.
        reason: String,
    },
    /// The operating system refused a call.
    #[error("{call} failed: {source}")]
    System {
        /// The system call or step.
        call: &'static str,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

impl VerbsError {
    /// Wraps an error of a system call.
    pub fn system(call: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            call,
            source: errno.into(),
        }
    }
}

/// An error that says whose fault it is. Programs tell the two apart by their exit codes.
pub trait Blame: std::error::Error {
    /// Whether the caller asked for what cannot be, as opposed to something that failed on the way.
    fn is_usage(&self) -> bool;
}

impl Blame for VerbsError {
    /// Even a device that is not there may come.
    fn is_usage(&self) -> bool {
        false
    }
}

/// Most characters of a line that says what failed.
pub const LINE_CHARS_MAX: usize = 400;

/// `text` in one line of at most [`LINE_CHARS_MAX`] characters. The middle of a longer line is left out, since a
/// message says first what failed and last why.
pub fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length <= LINE_CHARS_MAX {
        return line;
    }
    const LEFT_OUT: &str = " … ";
    let first = LINE_CHARS_MAX * 2 / 3;
    let last = LINE_CHARS_MAX - first - LEFT_OUT.chars().count();
    let first: String = line.chars().take(first).collect();
    let last: String = line.chars().skip(length - last).collect();
    format!("{first}{LEFT_OUT}{last}")
}

/// Result of the verbs layer.
pub type Result<T, E = VerbsError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::{LINE_CHARS_MAX, one_line};

    #[test]
    fn an_error_is_one_line_that_keeps_its_ends() {
        let long = "x".repeat(780_000);
        let line = one_line(&format!("reading /data/t.json:\n{long}\nunexpected end"));
        assert_eq!(line.chars().count(), LINE_CHARS_MAX);
        assert!(line.contains("reading /data/t.json: xxx"), "{line}");
        assert!(line.ends_with("xxx unexpected end"), "{line}");
        assert_eq!(one_line("a\n\n  b "), "a b");
        let just = "é".repeat(LINE_CHARS_MAX);
        assert_eq!(one_line(&just), just);
    }
}
