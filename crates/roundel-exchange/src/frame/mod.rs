//! Arrow batches as frames: one contiguous run of bytes per batch, which an exchange cuts into
//! messages and puts together again. This module knows columns and bytes, not messages, links or
//! peers.
//!
//! ```text
//!  RecordBatch ─► FrameSource ─► FrameReader ─► fragments in registered buffers
//!                 (slices of the batch's buffers)          │ network
//!  RecordBatch ◄─ FrameDecoder ◄─ FrameAssembler ◄─────────┘
//!  (slices of one buffer)
//! ```
//!
//! Two copies are made in all: into the registered buffer, and out of it. Both sides know the
//! schema, which is not sent; a fingerprint of its types tells a frame of another schema.
//!
//! # Format
//!
//! All integers are little endian. A frame is a preamble and then sections, each of which begins
//! at a multiple of 16 bytes and is followed by zeros up to the next; the length of the frame is a
//! multiple of 16.
//!
//! ```text
//! offset  size  field
//!      0     4  magic, the bytes "RDFM"
//!      4     2  version, 2
//!      6     2  reserved, 0
//!      8     4  rows
//!     12     4  columns C
//!     16     8  fingerprint of the column types
//!     24     4  sections S, over all columns
//!     28     4  reserved, 0
//!     32    8C  per column: encoding (1), flags (1), reserved 0 (2), number of sections (4);
//!               flag bit 0: the first section is a validity bitmap, 1 for valid
//!  32+8C    4S  per section: its length in bytes without padding
//! ```
//!
//! ```text
//! encoding       types                                sections after the validity bitmap
//! 0 all null     Null; types of encodings 1 to 4      none, and no bitmap
//! 1 fixed width  numbers, decimals, dates, times,     values
//!                intervals, FixedSizeBinary
//! 2 boolean      Boolean                              bits
//! 3 bytes        (Large)Utf8, (Large)Binary           offsets from 0 to the end of the values; values
//! 4 views        Utf8View, BinaryView                 views; data buffers
//! 5 Arrow IPC    all others                           dictionary batches and a record batch
//!                                                     (no bitmap of its own)
//! ```

mod assemble;
mod compact;
#[cfg(target_arch = "x86_64")]
mod compress;
mod decode;
mod encode;
mod error;
mod gather;
mod ipc;
mod layout;
mod rows;
mod source;
#[cfg(test)]
mod tests;
mod validate;
mod views;

pub use assemble::{Fragment, FrameAssembler, HOLES_MAX, aligned};
pub use decode::FrameDecoder;
pub use error::FrameError;
pub use layout::{ALL_NULL_ROWS_MAX, SECTION_ALIGNMENT};
pub use rows::RowSource;
pub(crate) use rows::is_flat;
pub use source::{FrameReader, FrameSource};
