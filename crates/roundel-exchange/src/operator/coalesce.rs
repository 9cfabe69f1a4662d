//! Batches of a size that an engine likes, from frames that are as short as a message.

use crate::frame::is_flat;
use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use std::collections::VecDeque;

/// Joins short batches, and cuts long ones, to as many rows as an engine likes.
pub(super) struct Coalesce {
    /// Absent where batches are passed on as they come.
    joined: Option<BatchCoalescer>,
    rows: usize,
    ready: VecDeque<RecordBatch>,
}

impl Coalesce {
    /// To so many rows; nested columns are not worth joining.
    pub(super) fn new(schema: &SchemaRef, rows: usize) -> Self {
        let flat = schema
            .fields()
            .iter()
            .all(|field| is_flat(field.data_type()));
        let joined = (rows > 1 && flat).then(|| BatchCoalescer::new(schema.clone(), rows));
        Self {
            joined,
            rows,
            ready: VecDeque::new(),
        }
    }

    /// Takes a batch in.
    pub(super) fn push(&mut self, mut batch: RecordBatch) -> Result<(), ArrowError> {
        let Some(joined) = &mut self.joined else {
            self.ready.push_back(batch);
            return Ok(());
        };
        // What is long enough by itself is not copied; what came before it stays before it.
        if batch.num_rows() >= self.rows / 2 {
            joined.finish_buffered_batch()?;
            drain(joined, &mut self.ready);
            while batch.num_rows() > self.rows {
                self.ready.push_back(batch.slice(0, self.rows));
                batch = batch.slice(self.rows, batch.num_rows() - self.rows);
            }
            if batch.num_rows() >= self.rows / 2 {
                self.ready.push_back(batch);
                return Ok(());
            }
        }
        joined.push_batch(batch)?;
        drain(joined, &mut self.ready);
        Ok(())
    }

    /// The next batch.
    pub(super) fn next(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// Makes a batch of whatever is left.
    pub(super) fn flush(&mut self) -> Result<(), ArrowError> {
        if let Some(joined) = &mut self.joined {
            joined.finish_buffered_batch()?;
            drain(joined, &mut self.ready);
        }
        Ok(())
    }
}

/// Takes out what is complete.
fn drain(joined: &mut BatchCoalescer, ready: &mut VecDeque<RecordBatch>) {
    ready.extend(std::iter::from_fn(|| joined.next_completed_batch()));
}
