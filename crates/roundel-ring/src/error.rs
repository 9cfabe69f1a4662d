//! What can go wrong on the ring. A failure that a peer can cause is one of these; a broken invariant of ours is an assertion.

use arrow::error::ArrowError;
use roundel_verbs::VerbsError;

/// What a ring, or a join on it, can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A host of the ring is gone, or cannot be reached any more.
    #[error("host {place} of the ring is lost: {reason}")]
    Lost {
        /// Its place in the ring.
        place: usize,
        /// How its loss was noticed, in words.
        reason: String,
    },
    /// A host of the ring sent something that makes no sense.
    #[error("host {place} of the ring sent something else: {reason}")]
    Malformed {
        /// The place of the host that sent it.
        place: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A row is longer than an element of the ring.
    #[error(
        "a row of {row_bytes} bytes does not fit into an element of {element_bytes}: use larger elements on the ring"
    )]
    RowTooLong {
        /// Bytes of the row.
        row_bytes: usize,
        /// Bytes that an element has for rows.
        element_bytes: usize,
    },
    /// The ring, or the join, was asked for what it cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// The join came to an early end: nobody takes its rows any more.
    #[error("nobody takes the rows of the join any more")]
    Cancelled,
    /// The relation that was to be joined is not pinned to its ring any more, as one of its hosts has closed it.
    #[error("the relation is not pinned to its ring any more")]
    Unpinned,
    /// A predicate failed.
    #[error("the join's predicate failed: {0}")]
    Predicate(String),
    /// Arrow failed.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// The verbs failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// A result whose error is a [`RingError`].
pub type Result<T, E = RingError> = std::result::Result<T, E>;
