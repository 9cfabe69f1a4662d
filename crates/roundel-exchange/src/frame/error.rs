//! What can be wrong with a frame, on the sender's side and on the receiver's.

use arrow::error::ArrowError;

use super::assemble::HOLES_MAX;
use super::layout::{ALL_NULL_ROWS_MAX, SECTION_ALIGNMENT};
use crate::wire::FRAME_LENGTH_MAX;

/// Why a batch cannot become a frame, or bytes are not a frame of the expected schema.
///
/// Errors of decoding mean that the peer has another version or schema, or that bytes were
/// damaged; repeating the decoding cannot help, running the query again may.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The batch makes a frame longer than messages can carry.
    #[error("batch makes a frame of {0} bytes, the limit is {FRAME_LENGTH_MAX}: slice it")]
    TooLong(u64),
    /// The batch has more rows than a frame can count.
    #[error("batch has {0} rows, the limit is 2^32 - 1: slice it")]
    TooManyRows(usize),
    /// Arrow's IPC format cannot carry the type of a column.
    #[error("column {column} cannot be sent as Arrow IPC")]
    Unsupported {
        /// Index of the column.
        column: usize,
        /// What Arrow says.
        source: ArrowError,
    },
    /// The frame is shorter than its own description.
    #[error("frame of {length} bytes is truncated: {needed} bytes are needed")]
    Truncated {
        /// Bytes that the frame should have at least.
        needed: u64,
        /// Bytes that it has.
        length: usize,
    },
    /// The frame goes on after its last section.
    #[error("frame of {length} bytes ends at byte {end}: the rest belongs to nothing")]
    TrailingBytes {
        /// Where the last section ends, in bytes.
        end: usize,
        /// Bytes that the frame has.
        length: usize,
    },
    /// The frame does not begin at an address that arrays can be sliced from.
    #[error("frame begins at an address that is no multiple of {SECTION_ALIGNMENT}")]
    Misaligned,
    /// The bytes are no frame.
    #[error("frame begins with {0:#010x}: no frame of Roundel's")]
    Magic(u32),
    /// The frame has another version.
    #[error("frame has version {0}: run one version on all nodes")]
    Version(u16),
    /// Bytes that this version does not use are not 0.
    #[error("reserved bytes of the frame are not 0")]
    Reserved,
    /// Sender and receiver disagree on the column types.
    #[error("frame has the schema fingerprint {found:#018x}, expected {expected:#018x}")]
    Schema {
        /// Fingerprint of the receiver's schema.
        expected: u64,
        /// Fingerprint in the frame.
        found: u64,
    },
    /// The frame has another number of columns than the schema.
    #[error("frame has {found} columns, expected {expected}")]
    Columns {
        /// Columns of the receiver's schema.
        expected: usize,
        /// Columns of the frame.
        found: u32,
    },
    /// A column is not encoded as its type is.
    #[error("column {column} has encoding {found}, which its type cannot have")]
    Encoding {
        /// Index of the column.
        column: usize,
        /// The encoding found.
        found: u8,
    },
    /// A column has another number of sections than its encoding needs.
    #[error("column {column} has {found} sections, which its encoding cannot have")]
    Sections {
        /// Index of the column.
        column: usize,
        /// The number found.
        found: u32,
    },
    /// The columns have another number of sections in sum than the frame.
    #[error("columns have {found} sections in all, the frame announces {expected}")]
    SectionCount {
        /// Sections of the frame.
        expected: u32,
        /// Sum over the columns.
        found: u64,
    },
    /// A section's length does not fit the number of rows.
    #[error("column {column} has a section of {found} bytes, expected {expected}")]
    SectionLength {
        /// Index of the column.
        column: usize,
        /// Bytes that the rows need.
        expected: u64,
        /// Bytes of the section.
        found: usize,
    },
    /// A column without sections would need more memory than its frame justifies.
    #[error("column {column} is all null over {rows} rows, the limit is {ALL_NULL_ROWS_MAX}")]
    AllNull {
        /// Index of the column.
        column: usize,
        /// Rows of the frame.
        rows: u32,
    },
    /// Offsets of strings or binaries do not rise from 0 to the end of the values.
    #[error("column {0} has offsets that do not rise from 0 to the end of its values")]
    Offsets(usize),
    /// A view points outside of its buffers, or contradicts them.
    #[error("column {column} has an inconsistent view in row {row}")]
    View {
        /// Index of the column.
        column: usize,
        /// Index of the row.
        row: usize,
    },
    /// A string is not UTF-8.
    #[error("column {0} has a string that is not UTF-8")]
    Utf8(usize),
    /// Arrow refuses the parts of a column.
    #[error("column {column} is no valid array")]
    Array {
        /// Index of the column.
        column: usize,
        /// What Arrow says.
        source: ArrowError,
    },
    /// The Arrow IPC bytes of a column are damaged.
    #[error("column {column} has invalid Arrow IPC bytes: {reason}")]
    Ipc {
        /// Index of the column.
        column: usize,
        /// What is wrong with them.
        reason: String,
    },
    /// The columns make no batch of the schema, for example since a null is where none may be.
    #[error("columns make no batch of the schema")]
    Batch {
        /// What Arrow says.
        source: ArrowError,
    },
    /// A fragment reaches beyond the frame that it is part of.
    #[error("fragment of {length} bytes at {offset} is not part of a frame of {frame_length}")]
    FragmentBounds {
        /// Where the fragment begins, in bytes.
        offset: usize,
        /// Length of the fragment in bytes.
        length: usize,
        /// Length of the frame in bytes.
        frame_length: usize,
    },
    /// Bytes of a frame arrive a second time.
    #[error("fragment of {length} bytes at {offset} overlaps one that arrived before")]
    FragmentOverlap {
        /// Where the fragment begins, in bytes.
        offset: usize,
        /// Length of the fragment in bytes.
        length: usize,
    },
    /// The bytes of a fragment are out of reach.
    #[error("fragment of {length} bytes at {offset} cannot be read")]
    Unread {
        /// Where the fragment begins, in bytes.
        offset: usize,
        /// Length of the fragment in bytes.
        length: usize,
    },
    /// Fragments arrive in an order that no network makes.
    #[error(
        "fragments leave more than {HOLES_MAX} holes in a frame, or a larger one than can be on its way"
    )]
    Scattered,
    /// A frame is wanted before all of its bytes are there.
    #[error("frame of {frame_length} bytes lacks {missing}")]
    Incomplete {
        /// Bytes that have not arrived.
        missing: usize,
        /// Length of the frame in bytes.
        frame_length: usize,
    },
}
