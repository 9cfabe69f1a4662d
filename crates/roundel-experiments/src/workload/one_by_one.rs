//! What the paper calls zero copy (section 4.3.1): a tuple is a message. The buffer of a message stands for
//! the tuple that lies in registered memory already: nothing of it is copied but its key, by which the
//! run is verified.

use super::{RowsIn, RowsOut};
use crate::error::Result;
use crate::setting::{BATCH_ROWS, KEY_BYTES};
use crate::transport::{Message, MessageBuffer, Receiver, Sender};
use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use roundel_exchange::Selection;
use roundel_exchange::frame::RowSource;
use std::sync::Arc;

/// Rows into messages of one tuple.
pub struct RowsToTuples<S> {
    sender: S,
    tuple_bytes: usize,
}

impl<S: Sender> RowsToTuples<S> {
    /// Into messages of a sender.
    pub fn new(sender: S, tuple_bytes: usize) -> Self {
        Self {
            sender,
            tuple_bytes,
        }
    }
}

impl<S: Sender> RowsOut for RowsToTuples<S> {
    async fn send(
        &mut self,
        group: usize,
        batch: &RecordBatch,
        _: &RowSource<'_>,
        rows: Selection<'_>,
    ) -> Result<()> {
        let keys = super::relation::keys(batch);
        for row in rows.numbers().iter() {
            let mut buffer = self.sender.acquire(group).await?;
            buffer.write(0, &keys[*row as usize].to_le_bytes());
            self.sender.put(buffer, group, self.tuple_bytes, 1).await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        self.sender.finish().await
    }
}

/// Messages of one tuple into batches.
pub struct RowsFromTuples<R> {
    receiver: R,
    tuple: Vec<u8>,
    ended: bool,
}

impl<R: Receiver> RowsFromTuples<R> {
    /// From messages of a receiver.
    pub fn new(receiver: R, tuple_bytes: usize) -> Self {
        Self {
            receiver,
            tuple: vec![0; tuple_bytes],
            ended: false,
        }
    }
}

impl<R: Receiver> RowsIn for RowsFromTuples<R> {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let mut keys = Vec::with_capacity(BATCH_ROWS);
        while !self.ended && keys.len() < BATCH_ROWS {
            let Some(message) = self.receiver.get().await? else {
                self.ended = true;
                break;
            };
            let length = message.length().min(self.tuple.len());
            message.copy_to(&mut self.tuple[..length])?;
            self.receiver.release(message);
            let mut key = [0; KEY_BYTES];
            key.copy_from_slice(&self.tuple[..KEY_BYTES]);
            keys.push(u64::from_le_bytes(key));
        }
        if keys.is_empty() {
            return Ok(None);
        }
        let keys: ArrayRef = Arc::new(UInt64Array::from(keys));
        Ok(Some(
            RecordBatch::try_from_iter([("a", keys)]).expect("one column is a batch"),
        ))
    }
}
