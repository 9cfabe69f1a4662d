//! Rows as elements of the ring: each element is a batch of its own, as a stream of Arrow IPC.

use crate::error::{Result, RingError};
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, StructArray,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use std::sync::Arc;

/// Bytes that an element has besides its rows, roughly: the first try need not fit.
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
    /// Bytes of a row of the last piece.
    row_bytes: Option<usize>,
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
            row_bytes: None,
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
        let row_bytes = self.row_bytes.unwrap_or_else(|| {
            // More than there is, where rows share what lies behind them.
            batch.get_array_memory_size() / batch.num_rows() + 1
        });
        let room = self.bytes_max.saturating_sub(AROUND_ROWS);
        let mut count = (room / row_bytes).clamp(1, left);
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
        self.row_bytes = Some(payload.len().saturating_sub(AROUND_ROWS) / count + 1);
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
    let columns = rows.columns().iter().map(compact).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let rows = RecordBatch::try_new_with_options(rows.schema(), columns, &options)?;
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref())?;
    writer.write(&rows)?;
    Ok(writer.into_inner()?)
}

/// A column without bytes that none of its views is of: they would all be written.
fn compact(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        DataType::Struct(_) if column.null_count() == 0 && !column.is_empty() => {
            let (fields, columns, _) = column.as_struct().clone().into_parts();
            let columns = columns.iter().map(compact).collect();
            Arc::new(StructArray::new(fields, columns, None))
        }
        _ => column.clone(),
    }
}

/// The rows of an element that came from the host at `place`.
///
/// # Errors
/// When the bytes are not rows of this schema.
pub fn decode(payload: Buffer, schema: &SchemaRef, place: usize) -> Result<RecordBatch> {
    let malformed = |reason: String| RingError::Malformed { place, reason };
    // Arrow checks most of what it reads, and panics at some of the rest, such as types that it does not know.
    let decoded = std::panic::catch_unwind(move || {
        let mut payload = payload;
        let mut decoder = StreamDecoder::new();
        decoder.decode(&mut payload)
    });
    let rows = match decoded {
        Ok(Ok(rows)) => rows,
        Ok(Err(error)) => return Err(malformed(error.to_string())),
        Err(_) => return Err(malformed("bytes that are no rows".into())),
    };
    let rows = rows.ok_or_else(|| malformed("an element without rows".into()))?;
    if rows.schema_ref().fields() != schema.fields() {
        return Err(malformed("rows of another relation".into()));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray, StringViewArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::Field;
    use proptest::prelude::*;

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
            decoded.push(decode(piece.payload.into(), &schema, 0).unwrap());
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
    fn views_bring_their_own_bytes_only() {
        let texts = (0..2000).map(|at| format!("{at:>50}"));
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let parts: ArrayRef = Arc::new(StructArray::from(vec![(
            Arc::new(Field::new("text", DataType::Utf8View, true)),
            views.clone(),
        )]));
        let batch = RecordBatch::try_from_iter([("view", views), ("parts", parts)]).unwrap();
        let pieces = pieces(vec![batch.clone()], 16 << 10).unwrap();
        assert!((14..40).contains(&pieces.len()), "{}", pieces.len());
        let rows: Vec<_> = pieces.into_iter().map(|piece| piece.rows).collect();
        assert_eq!(concat_batches(&batch.schema(), &rows).unwrap(), batch);
    }

    proptest! {
        #[test]
        fn spoilt_bytes_are_rows_or_refused(at in prop::collection::vec((0..4000usize, any::<u8>()), 1..4)) {
            let rows = rows(&[3; 60]);
            let mut payload = encode(&rows).unwrap();
            for (at, byte) in at {
                let length = payload.len();
                payload[at % length] = byte;
            }
            let _ = decode(payload.into(), &rows.schema(), 0);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let schema = rows(&[]).schema();
        let payload = encode(&rows(&[3; 100])).unwrap();
        for length in [0, 7, payload.len() / 2] {
            assert!(
                decode(payload[..length].to_vec().into(), &schema, 0).is_err(),
                "{length} bytes"
            );
        }
        let other =
            RecordBatch::try_from_iter([("number", Arc::new(Int64Array::from(vec![1])) as _)])
                .unwrap();
        assert!(decode(encode(&other).unwrap().into(), &schema, 0).is_err());
    }
}
