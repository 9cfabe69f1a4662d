//! The operators over the seam of transports: SHUFFLE gathers rows from the columns of batches straight
//! into buffers, of which one for each group stays open until it is full; RECEIVE copies a message out
//! and decodes it.
//!
//! A message is a run of frames, each behind its length.

use super::{RowsIn, RowsOut};
use crate::error::{Error, Result};
use crate::transport::{Message, MessageBuffer, Receiver, Sender};
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use roundel_exchange::Selection;
use roundel_exchange::frame::{FrameDecoder, RowSource};
use std::collections::VecDeque;

/// Bytes before a frame: its length, and zeros, so that frames lie at multiples of 16.
const PREFIX_BYTES: usize = 16;
/// A frame that has fewer rows, though there are more, is not begun: most of it would be preamble.
const ROWS_MIN: usize = 16;

/// Rows into messages.
pub struct RowsToMessages<S: Sender> {
    sender: S,
    open: Vec<Option<Open<S::Buffer>>>,
}

/// A buffer that is not full.
struct Open<B> {
    buffer: B,
    filled: usize,
    rows: u32,
}

impl<S: Sender> RowsToMessages<S> {
    /// Into the messages of a sender to so many groups.
    pub fn new(sender: S, groups: usize) -> Self {
        Self {
            sender,
            open: (0..groups).map(|_| None).collect(),
        }
    }

    async fn put(&mut self, group: usize) -> Result<()> {
        match self.open[group].take() {
            Some(Open {
                buffer,
                filled,
                rows,
            }) if filled > 0 => self.sender.put(buffer, group, filled, rows).await,
            _ => Ok(()),
        }
    }
}

impl<S: Sender> RowsOut for RowsToMessages<S> {
    async fn send(
        &mut self,
        group: usize,
        _: &RecordBatch,
        source: &RowSource<'_>,
        mut rows: Selection<'_>,
    ) -> Result<()> {
        while !rows.is_empty() {
            let open = match &mut self.open[group] {
                Some(open) => open,
                none => none.insert(Open {
                    buffer: self.sender.acquire(group).await?,
                    filled: 0,
                    rows: 0,
                }),
            };
            let begin = open.filled + PREFIX_BYTES;
            let room = open.buffer.capacity().saturating_sub(begin);
            let count = source.fitting(&rows, room);
            if count < ROWS_MIN.min(rows.len()) && open.filled > 0 {
                self.put(group).await?;
                continue;
            }
            if count == 0 {
                return Err(Error::Setting(format!(
                    "a tuple does not fit into a message of {} bytes",
                    open.buffer.capacity()
                )));
            }
            let (now, later) = rows.split_at(count);
            let length = open.buffer.encode(begin, source, &now);
            let mut prefix = [0; PREFIX_BYTES];
            prefix[..4].copy_from_slice(&(length as u32).to_le_bytes());
            open.buffer.write(open.filled, &prefix);
            open.filled = begin + length;
            open.rows += count as u32;
            rows = later;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        for group in 0..self.open.len() {
            self.put(group).await?;
        }
        self.sender.finish().await
    }
}

/// Messages into rows.
pub struct RowsFromMessages<R> {
    receiver: R,
    decoder: FrameDecoder,
    batches: VecDeque<RecordBatch>,
}

impl<R: Receiver> RowsFromMessages<R> {
    /// From the messages of a receiver.
    ///
    /// # Errors
    /// When rows of this schema have no frames.
    pub fn new(receiver: R, schema: SchemaRef) -> Result<Self> {
        Ok(Self {
            receiver,
            decoder: FrameDecoder::try_new(schema)?,
            batches: VecDeque::new(),
        })
    }
}

impl<R: Receiver> RowsFromMessages<R> {
    /// Copies a message out and decodes it.
    fn decode(&mut self, message: R::Message) -> Result<()> {
        let copy = message.copy()?;
        self.receiver.release(message);
        decode(&self.decoder, copy, |batch| self.batches.push_back(batch))
    }
}

impl<R: Receiver> RowsIn for RowsFromMessages<R> {
    fn take(&mut self) -> Result<Option<RecordBatch>> {
        if self.batches.is_empty()
            && let Some(message) = self.receiver.take()?
        {
            self.decode(message)?;
        }
        Ok(self.batches.pop_front())
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.batches.is_empty() {
            match self.receiver.get().await? {
                Some(message) => self.decode(message)?,
                None => return Ok(None),
            }
        }
        Ok(self.batches.pop_front())
    }
}

/// Decodes the frames of a message.
pub(super) fn decode(
    decoder: &FrameDecoder,
    message: Buffer,
    mut each: impl FnMut(RecordBatch),
) -> Result<()> {
    let mut at = 0;
    while at < message.len() {
        let torn = || Error::Wrong("a message ends within a frame".into());
        let prefix = message.get(at..).and_then(<[u8]>::first_chunk::<4>);
        let length = u32::from_le_bytes(*prefix.ok_or_else(torn)?) as usize;
        let begin = at + PREFIX_BYTES;
        if message
            .len()
            .checked_sub(begin)
            .is_none_or(|left| left < length)
        {
            return Err(torn());
        }
        each(decoder.decode(message.slice_with_length(begin, length))?);
        at = begin + length;
    }
    Ok(())
}
