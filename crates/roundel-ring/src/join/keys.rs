//! Keys of rows as words: the key itself where it has one column of at most 8 bytes, else its hash, with its bytes
//! beside it.

use crate::error::{Result, RingError};
use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::{cast, unary};
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, UInt64Type,
};
use arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::FixedState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Hosts hash alike, so that what one has clustered is in the order of all tables.
const SEED: u64 = 0x0d_15c0_f5e7;

/// The keys of rows.
pub(super) struct Keys {
    pub words: ScalarBuffer<u64>,
    /// Where words are hashes: the values that were hashed.
    pub bytes: Option<Rows>,
    /// Rows whose keys can match at all; all, where there is none.
    pub valid: Option<NullBuffer>,
}

impl Keys {
    /// Those of all rows of a batch.
    pub(super) fn of(rows: &RecordBatch, columns: &[usize], nulls_equal: bool) -> Result<Self> {
        let columns = columns.iter().map(|column| plain(rows.column(*column)));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        if nulls_equal {
            // A null has no word of its own, but bytes.
            return Self::hashed(&columns, None);
        }
        let nulls = columns.iter().map(|column| column.logical_nulls());
        let valid = nulls.fold(None, |all, own| {
            NullBuffer::union(all.as_ref(), own.as_ref())
        });
        // By their types both sides do the same: words are compared with words.
        match columns.as_slice() {
            [column] => match words(column) {
                Some(words) => Ok(Self {
                    words,
                    bytes: None,
                    valid,
                }),
                None => Self::hashed(&columns, valid),
            },
            _ => Self::hashed(&columns, valid),
        }
    }

    fn hashed(columns: &[ArrayRef], valid: Option<NullBuffer>) -> Result<Self> {
        let fields = columns
            .iter()
            .map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(|error| {
            RingError::Unsupported(format!("keys that cannot be hashed: {error}"))
        })?;
        let bytes = converter.convert_columns(columns)?;
        let state = FixedState::with_seed(SEED);
        let words = bytes
            .iter()
            .map(|row| state.hash_one(row.as_ref()))
            .collect();
        Ok(Self {
            words,
            bytes: Some(bytes),
            valid,
        })
    }

    pub(super) fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid.is_valid(row))
    }
}

/// Spreads words over all their bits; its own inverse exists, so that no two words become one.
pub(super) fn mix(word: u64) -> u64 {
    // Of MurmurHash3, in the public domain.
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

/// A column whose values are equal where its bytes are, as engines have it: 0 and -0 are one, unless in dictionaries, which
/// are looked up, or in what is nested. A NaN is equal to one that has the same bits.
fn plain(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(match column.data_type() {
        DataType::Float64 => Arc::new(unary::<_, _, Float64Type>(
            column.as_primitive::<Float64Type>(),
            |value| if value == 0.0 { 0.0 } else { value },
        )),
        DataType::Float32 => Arc::new(unary::<_, _, Float32Type>(
            column.as_primitive::<Float32Type>(),
            |value| if value == 0.0 { 0.0 } else { value },
        )),
        DataType::Float16 => Arc::new(unary::<_, _, Float16Type>(
            column.as_primitive::<Float16Type>(),
            |value| match value.to_bits() << 1 {
                0 => Default::default(),
                _ => value,
            },
        )),
        DataType::Dictionary(_, values) => cast(column, values)?,
        _ => column.clone(),
    })
}

/// The values of a column as words, where each has at most 8 bytes; those of nulls are anything.
fn words(column: &ArrayRef) -> Option<ScalarBuffer<u64>> {
    let width = column
        .data_type()
        .primitive_width()
        .filter(|width| *width <= 8)?;
    let data = column.to_data();
    if width == 8 {
        // They are words already.
        let values = data.buffers().first()?.clone();
        return Some(ScalarBuffer::new(values, data.offset(), data.len()));
    }
    // As they are stored, whatever they mean.
    let stored = match width {
        1 => DataType::Int8,
        2 => DataType::Int16,
        _ => DataType::Int32,
    };
    let data = data.into_builder().data_type(stored).build().ok()?;
    let column = arrow::array::make_array(data);
    let words: arrow::array::UInt64Array = match width {
        1 => unary::<_, _, UInt64Type>(column.as_primitive::<Int8Type>(), |value| value as u64),
        2 => unary::<_, _, UInt64Type>(column.as_primitive::<Int16Type>(), |value| value as u64),
        _ => unary::<_, _, UInt64Type>(column.as_primitive::<Int32Type>(), |value| value as u64),
    };
    Some(words.values().clone())
}
