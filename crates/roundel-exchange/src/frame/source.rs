//! A batch as a frame that is not copied together: slices of the batch's own buffers, in order.

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use std::ops::Range;
use std::sync::Arc;

use super::FrameError;
use super::encode::{Column, encode_column};
use super::layout::{Descriptor, Preamble, SECTION_ALIGNMENT, fingerprint, preamble_length};
use crate::wire::FRAME_LENGTH_MAX;

/// What fills the gap between a section and the next multiple of [`SECTION_ALIGNMENT`].
static PADDING: [u8; SECTION_ALIGNMENT] = [0; SECTION_ALIGNMENT];

/// The frame of one batch, ready to be copied into messages.
///
/// Column buffers are referenced, not copied; only small computed parts (preamble, rebased
/// offsets, shifted bitmaps, compacted views) are owned. The batch's buffers stay allocated while
/// the source lives.
#[derive(Debug, Clone)]
pub struct FrameSource {
    segments: Vec<Segment>,
    length: usize,
    rows: u32,
}

/// Bytes of the frame that lie together in memory, and the padding that follows them.
#[derive(Debug, Clone)]
struct Segment {
    bytes: Buffer,
    padding: usize,
}

impl FrameSource {
    /// Lays out the frame of `batch`.
    ///
    /// # Errors
    /// When the batch is too large for a frame, or Arrow IPC cannot carry one of its types.
    pub fn try_new(batch: &RecordBatch) -> Result<Self, FrameError> {
        let Ok(rows) = u32::try_from(batch.num_rows()) else {
            return Err(FrameError::TooManyRows(batch.num_rows()));
        };
        let columns = batch
            .columns()
            .iter()
            .enumerate()
            .map(|(index, array)| encode_column(index, array))
            .collect::<Result<Vec<Column>, _>>()?;
        let sections: Vec<&[Buffer]> = columns.iter().flat_map(Column::sections).collect();
        let start = preamble_length(columns.len(), sections.len());
        let lengths: Vec<u64> = sections.iter().map(|pieces| total(pieces)).collect();
        let padded = lengths
            .iter()
            .map(|length| length.next_multiple_of(SECTION_ALIGNMENT as u64));
        let length = start as u64 + padded.sum::<u64>();
        // Once the whole fits, so do the counts and the lengths of its parts.
        if length > u64::from(FRAME_LENGTH_MAX) {
            return Err(FrameError::TooLong(length));
        }
        let mut preamble = Vec::with_capacity(start);
        Preamble {
            rows,
            columns: columns.len() as u32,
            fingerprint: fingerprint(batch.columns().iter().map(|array| array.data_type())),
            sections: sections.len() as u32,
        }
        .emit(&mut preamble);
        for column in &columns {
            Descriptor {
                encoding: column.encoding as u8,
                validity: column.validity,
                sections: column.sections().len() as u32,
            }
            .emit(&mut preamble);
        }
        lengths
            .iter()
            .for_each(|&length| preamble.extend((length as u32).to_le_bytes()));
        preamble.resize(start, 0);
        let mut segments = vec![Segment {
            bytes: Buffer::from_vec(preamble),
            padding: 0,
        }];
        for (pieces, length) in sections.into_iter().zip(lengths) {
            let filled = pieces.iter().filter(|piece| !piece.is_empty()).cloned();
            segments.extend(filled.map(|bytes| Segment { bytes, padding: 0 }));
            if length > 0
                && let Some(last) = segments.last_mut()
            {
                let length = length as usize;
                last.padding = length.next_multiple_of(SECTION_ALIGNMENT) - length;
            }
        }
        Ok(Self {
            segments,
            length: length as usize,
            rows,
        })
    }

    /// A frame that was made already.
    pub(crate) fn of_frame(frame: Buffer, rows: u32) -> Self {
        Self {
            length: frame.len(),
            segments: vec![Segment {
                bytes: frame,
                padding: 0,
            }],
            rows,
        }
    }

    /// Length of the frame in bytes: at least 32, a multiple of 16, at most [`FRAME_LENGTH_MAX`].
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Rows of the frame.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// A cursor at the start of the frame.
    pub fn into_reader(self) -> FrameReader {
        FrameReader {
            source: Arc::new(self),
            cursor: Cursor::default(),
            position: 0,
        }
    }

    /// Calls `write` with the bytes of a range of the frame, in order, in pieces that lie together
    /// in memory, each with its offset in the range.
    pub fn read(&self, range: Range<usize>, mut write: impl FnMut(usize, &[u8])) {
        let mut cursor = Cursor::default();
        cursor.skip(self, range.start);
        let (length, mut at) = (range.len(), 0);
        while at < length {
            let chunk = cursor.next_chunk(self, length - at);
            if chunk.is_empty() {
                return;
            }
            write(at, chunk);
            at += chunk.len();
        }
    }
}

fn total(pieces: &[Buffer]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// A place in the bytes of a [`FrameSource`].
#[derive(Debug, Clone, Default)]
struct Cursor {
    /// Index of the segment that the next byte is in.
    segment: usize,
    /// Bytes of that segment and its padding that come before it.
    within: usize,
}

impl Cursor {
    /// Passes over so many bytes, or to the end.
    fn skip(&mut self, source: &FrameSource, bytes: usize) {
        self.within += bytes;
        while let Some(Segment { bytes, padding }) = source.segments.get(self.segment)
            && self.within >= bytes.len() + padding
        {
            self.within -= bytes.len() + padding;
            self.segment += 1;
        }
    }

    /// See [`FrameReader::next_chunk`].
    fn next_chunk<'a>(&mut self, source: &'a FrameSource, max: usize) -> &'a [u8] {
        let Some(Segment { bytes, padding }) = source.segments.get(self.segment) else {
            return &[];
        };
        let (from, start) = if self.within < bytes.len() {
            (bytes.as_slice(), self.within)
        } else {
            (&PADDING[..*padding], self.within - bytes.len())
        };
        let chunk = &from[start..from.len().min(start.saturating_add(max))];
        self.within += chunk.len();
        if self.within == bytes.len() + padding {
            self.segment += 1;
            self.within = 0;
        }
        chunk
    }
}

/// A cursor over the bytes of a [`FrameSource`], from the first to the last, in constant time a
/// chunk.
#[derive(Debug, Clone)]
pub struct FrameReader {
    source: Arc<FrameSource>,
    cursor: Cursor,
    /// Bytes of the frame that have been read.
    position: usize,
}

impl FrameReader {
    /// The frame that is read.
    pub fn source(&self) -> &Arc<FrameSource> {
        &self.source
    }

    /// Bytes read so far: the offset in the frame of the next chunk.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.source.length - self.position
    }

    /// The next bytes of the frame that lie together in memory, at most `max` of them: empty only
    /// at the end of the frame or when `max` is 0.
    pub fn next_chunk(&mut self, max: usize) -> &[u8] {
        let chunk = self.cursor.next_chunk(&self.source, max);
        self.position += chunk.len();
        chunk
    }

    /// Copies the next bytes of the frame to the start of `destination` and returns how many: all
    /// of `destination`, or what remains of the frame.
    pub fn copy_to(&mut self, destination: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < destination.len() {
            let chunk = self.next_chunk(destination.len() - copied);
            if chunk.is_empty() {
                break;
            }
            destination[copied..copied + chunk.len()].copy_from_slice(chunk);
            copied += chunk.len();
        }
        copied
    }
}
