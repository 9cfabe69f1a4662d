//! Frames that are gathered into memory before they are sent: what members in this process get, what goes to many
//! partitions, and what short messages would cut into too many.

use crate::error::{ExchangeError, Result};
use crate::frame::{FrameSource, RowSource};
use crate::selection::Selection;
use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};

/// Longest frame that is gathered, unless one row is longer.
const FRAME_BYTES: usize = 256 << 10;

/// A frame in memory of its own.
pub(super) struct Gathered {
    pub(super) bytes: Buffer,
    pub(super) rows: u32,
}

/// A batch as a frame, for peers of these names.
pub(super) fn whole(peers: &str, batch: &RecordBatch) -> Result<FrameSource> {
    FrameSource::try_new(batch).map_err(|error| ExchangeError::frame(peers, error))
}

/// The bytes of a frame.
pub(super) fn copied(source: &FrameSource) -> Buffer {
    let mut frame = MutableBuffer::with_capacity(source.len());
    source.read(0..source.len(), |_, bytes| frame.extend_from_slice(bytes));
    frame.into()
}

/// A batch, gathered.
pub(super) fn gathered(peers: &str, batch: &RecordBatch) -> Result<Gathered> {
    let source = whole(peers, batch)?;
    Ok(Gathered {
        bytes: copied(&source),
        rows: source.rows(),
    })
}

/// Gathers the next of the rows that are left.
pub(super) fn next(
    peers: &str,
    batch: &RecordBatch,
    source: &RowSource<'_>,
    rest: &mut Selection<'_>,
) -> Result<Option<Gathered>> {
    let Some(first) = rest.first() else {
        return Ok(None);
    };
    let count = source.fitting(rest, FRAME_BYTES);
    let (now, later) = rest.split_at(count.max(1));
    *rest = later;
    if count == 0 {
        // One row that is longer than that.
        return gathered(peers, &batch.slice(first as usize, 1)).map(Some);
    }
    Ok(Some(Gathered {
        bytes: source.frame(&now),
        rows: now.len() as u32,
    }))
}
