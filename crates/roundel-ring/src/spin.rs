//! Rows as elements of the ring: each element is a batch of its own, as a stream of Arrow IPC.

use crate::error::{Result, RingError};
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;

/// Bytes that an element has besides its rows, roughly: what is tried first need not fit.
const AROUND_ROWS: usize = 1 << 10;

/// A relation, cut into elements that fit into `bytes_max` together with `notes_of` their rows.
pub struct Spinning {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes_max: usize,
    /// Whether an element has a bit of notes for each row.
    noted: bool,
    /// The batch at hand, and where the next element begins in it.
    batch: usize,
    row: usize,
    began: bool,
}

/// What an element has of a relation.
#[derive(Debug)]
pub struct Piece {
    /// Its rows.
    pub rows: RecordBatch,
    /// The same as bytes.
    pub payload: Vec<u8>,
    /// Whether it is the last of the relation.
    pub last: bool,
}

impl Spinning {
    /// The rows of a host.
    pub fn new(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        bytes_max: usize,
        noted: bool,
    ) -> Self {
        let batches = batches
            .into_iter()
            .filter(|batch| batch.num_rows() > 0)
            .collect();
        Self {
            schema,
            batches,
            bytes_max,
            noted,
            batch: 0,
            row: 0,
            began: false,
        }
    }

    /// Whether the last piece has been taken. A relation without rows has one piece.
    pub fn is_over(&self) -> bool {
        self.began && self.batch >= self.batches.len()
    }

    /// The next piece.
    ///
    /// # Errors
    /// When a row does not fit into an element.
    pub fn piece(&mut self) -> Result<Piece> {
        self.began = true;
        let Some(batch) = self.batches.get(self.batch) else {
            let rows = RecordBatch::new_empty(self.schema.clone());
            let payload = encode(&rows)?;
            return Ok(Piece {
                rows,
                payload,
                last: true,
            });
        };
        let left = batch.num_rows() - self.row;
        let row_bytes = batch.get_array_memory_size() / batch.num_rows() + 1;
        let mut count = (self.bytes_max.saturating_sub(AROUND_ROWS) / row_bytes).clamp(1, left);
        let (rows, payload) = loop {
            let rows = batch.slice(self.row, count);
            let payload = encode(&rows)?;
            let bytes = payload.len() + notes_bytes(self.noted, count);
            if bytes <= self.bytes_max {
                break (rows, payload);
            }
            if count == 1 {
                return Err(RingError::RowTooLong {
                    row_bytes: bytes,
                    element_bytes: self.bytes_max,
                });
            }
            // As many as would fit if all were alike, and less if they are not.
            count = (count * self.bytes_max / bytes * 15 / 16).clamp(1, count - 1);
        };
        self.row += count;
        if self.row == batch.num_rows() {
            (self.batch, self.row) = (self.batch + 1, 0);
        }
        let last = self.batch >= self.batches.len();
        Ok(Piece {
            rows,
            payload,
            last,
        })
    }
}

/// Bytes of notes of an element with so many rows.
pub fn notes_bytes(noted: bool, rows: usize) -> usize {
    if noted { rows.div_ceil(64) * 8 } else { 0 }
}

fn encode(rows: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref())?;
    writer.write(rows)?;
    Ok(writer.into_inner()?)
}

/// The rows of an element that came from the host at `place`.
///
/// # Errors
/// When the bytes are not rows of this schema.
pub fn decode(payload: Vec<u8>, schema: &SchemaRef, place: usize) -> Result<RecordBatch> {
    let malformed = |reason: String| RingError::Malformed { place, reason };
    let mut decoder = StreamDecoder::new();
    let mut bytes = Buffer::from(payload);
    let rows = decoder
        .decode(&mut bytes)
        .map_err(|error: ArrowError| malformed(error.to_string()))?;
    let rows = rows.ok_or_else(|| malformed("an element without rows".into()))?;
    if rows.schema_ref().fields() != schema.fields() {
        return Err(malformed("rows of another relation".into()));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use arrow::compute::concat_batches;
    use std::sync::Arc;

    fn rows(lengths: &[usize]) -> RecordBatch {
        let numbers = Int64Array::from_iter_values(0..lengths.len() as i64);
        let texts = StringArray::from_iter_values(lengths.iter().map(|length| "x".repeat(*length)));
        RecordBatch::try_from_iter([
            ("number", Arc::new(numbers) as _),
            ("text", Arc::new(texts) as _),
        ])
        .unwrap()
    }

    fn pieces(batches: Vec<RecordBatch>, bytes_max: usize) -> Result<Vec<Piece>> {
        let schema = batches[0].schema();
        let mut spinning = Spinning::new(schema, batches, bytes_max, true);
        let mut pieces = Vec::new();
        while !spinning.is_over() {
            pieces.push(spinning.piece()?);
        }
        Ok(pieces)
    }

    #[test]
    fn pieces_are_all_rows_in_their_order() {
        let batches = vec![
            rows(&[5; 1000]),
            rows(&[]),
            rows(&[0, 900, 1, 900, 2]),
            rows(&[7; 3]),
        ];
        let schema = batches[0].schema();
        let pieces = pieces(batches.clone(), 4096).unwrap();
        assert!(pieces.len() > 5);
        let (last, others) = pieces.split_last().unwrap();
        assert!(last.last && others.iter().all(|piece| !piece.last));
        let mut decoded = Vec::new();
        for piece in pieces {
            assert!(piece.payload.len() + notes_bytes(true, piece.rows.num_rows()) <= 4096);
            decoded.push(decode(piece.payload, &schema, 0).unwrap());
            assert_eq!(decoded.last(), Some(&piece.rows));
        }
        assert_eq!(
            concat_batches(&schema, &decoded).unwrap(),
            concat_batches(&schema, &batches).unwrap()
        );
    }

    #[test]
    fn a_relation_without_rows_has_one_piece() {
        let pieces = pieces(vec![rows(&[])], 4096).unwrap();
        assert_eq!(pieces.len(), 1);
        assert!(pieces[0].last && pieces[0].rows.num_rows() == 0);
    }

    #[test]
    fn a_row_that_is_too_long_is_said_to_be() {
        let error = pieces(vec![rows(&[1, 5000])], 4096).unwrap_err();
        assert!(matches!(error, RingError::RowTooLong { .. }), "{error}");
    }

    #[test]
    fn other_bytes_are_refused() {
        let schema = rows(&[]).schema();
        let payload = encode(&rows(&[3; 100])).unwrap();
        for length in [0, 7, payload.len() / 2] {
            assert!(
                decode(payload[..length].to_vec(), &schema, 0).is_err(),
                "{length} bytes"
            );
        }
        let other =
            RecordBatch::try_from_iter([("number", Arc::new(Int64Array::from(vec![1])) as _)])
                .unwrap();
        assert!(decode(encode(&other).unwrap(), &schema, 0).is_err());
    }
}
