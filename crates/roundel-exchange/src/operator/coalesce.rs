//! Batches of a size that an engine likes, from frames that are as short as a message.

use crate::frame::is_flat;
use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

/// Joins batches until they have enough rows.
pub(super) struct Coalesce {
    /// Absent where batches are passed on as they come.
    joined: Option<BatchCoalescer>,
    enough: usize,
}

impl Coalesce {
    /// Joins batches up to so many rows; nested columns are not worth joining.
    pub(super) fn new(schema: &SchemaRef, rows: usize) -> Self {
        let flat = schema
            .fields()
            .iter()
            .all(|field| is_flat(field.data_type()));
        let joined = (rows > 1 && flat).then(|| BatchCoalescer::new(schema.clone(), rows));
        Self {
            joined,
            enough: rows / 2,
        }
    }

    /// Takes a batch in; gives it back when it is large enough by itself and nothing waits.
    pub(super) fn push(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>, ArrowError> {
        let Some(joined) = &mut self.joined else {
            return Ok(Some(batch));
        };
        if batch.num_rows() >= self.enough && joined.is_empty() {
            return Ok(Some(batch));
        }
        joined.push_batch(batch)?;
        Ok(joined.next_completed_batch())
    }

    /// The next batch that is complete.
    pub(super) fn next(&mut self) -> Option<RecordBatch> {
        self.joined.as_mut()?.next_completed_batch()
    }

    /// Whatever is there.
    pub(super) fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let Some(joined) = &mut self.joined else {
            return Ok(None);
        };
        joined.finish_buffered_batch()?;
        Ok(joined.next_completed_batch())
    }
}
