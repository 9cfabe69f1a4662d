//! Rows in parts, on all threads: radix clustering. Knows no keys: its caller gives the part of each row.
//!
//! It is done twice over, without a write that two threads could make (chunked, as in Schuh, Chen and Dittrich, "An
//! Experimental Comparison of Thirteen Relational Equi-Joins in Main Memory", SIGMOD 2016):
//!
//! 1. Each **morsel** of the rows, which fits the cache, is scattered within itself. The writes of a partition are combined
//!    where they are cached, so that no buffers of cache lines have to be kept beside it.
//! 2. The pieces that all morsels have of a part are copied one behind the other. Each thread does so for parts of its own,
//!    whose place in the columns is known by then.
//!
//! **Lanes** are moved: the parts of a column that have a fixed width. Columns of other types are put in order at last, by the
//! numbers of their rows, which are a lane too.

use crate::error::{Result, RingError};
use crate::threads::{JoinThreads, on_all};
use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, make_array,
    new_empty_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{ArrowNativeType, DataType, SchemaRef, i256};
use bytes::BytesMut;
use std::ops::Range;
use std::sync::Arc;

/// Rows that are scattered at a time: a lane of them is about as large as a second-level cache.
const MORSEL_ROWS: usize = 1 << 17;

/// Rows in the order of their parts.
pub(super) struct Clustered {
    pub rows: RecordBatch,
    /// Where each part begins, and the end.
    pub begins: Vec<usize>,
}

/// What is moved of a row.
#[derive(Clone, Copy)]
enum Lane {
    /// The value of a column, of so many bytes.
    Value(usize, usize),
    /// Whether a column is true.
    Truth(usize),
    /// Whether a column is not null.
    Validity(usize),
    /// The row's number.
    Number,
}

impl Lane {
    fn bytes(self) -> usize {
        match self {
            Self::Value(_, bytes) => bytes,
            Self::Truth(_) | Self::Validity(_) => 1,
            Self::Number => size_of::<u32>(),
        }
    }
}

/// How a column is put together again: from these lanes, or by the numbers of its rows.
#[derive(Clone, Copy)]
enum Column {
    Values {
        lane: usize,
        validity: Option<usize>,
    },
    Truths {
        lane: usize,
        validity: Option<usize>,
    },
    Taken {
        numbers: usize,
    },
}

/// A morsel in the order of its parts.
struct Scattered {
    begins: Vec<u32>,
    lanes: Vec<Buffer>,
}

/// Puts rows into so many parts. `part_of` says of each row of a batch, in their order, which it belongs to.
///
/// # Errors
/// When `part_of` fails, or there are more rows than 32 bits can name.
pub(super) async fn cluster(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    parts: usize,
    part_of: impl Fn(&RecordBatch, &mut Vec<u32>) -> Result<()> + Send + Sync + 'static,
    threads: &dyn JoinThreads,
) -> Result<Clustered> {
    super::check(schema, &batches)?;
    let (lanes, columns) = lanes_of(schema, &batches);
    let lanes: Arc<[Lane]> = lanes.into();
    let needs_numbers = columns
        .iter()
        .any(|column| matches!(column, Column::Taken { .. }));
    let originals = match needs_numbers {
        true => batches.clone(),
        false => Vec::new(),
    };
    let own = lanes.clone();
    let scattered = on_all(threads, morsels(batches), move |morsel| {
        morsel.scatter(parts, &part_of, &own)
    });
    let scattered: Arc<[Scattered]> = scattered.await?.into();
    let mut begins = vec![0; parts + 1];
    for part in 0..parts {
        let pieces = scattered.iter().map(|morsel| morsel.piece(part).len());
        begins[part + 1] = begins[part] + pieces.sum::<usize>();
    }
    let whole = gather(scattered, &begins, &lanes, threads).await?;
    let whole: Arc<[Buffer]> = whole.into();
    let rows = begins[parts];
    let own = schema.clone();
    let columns = columns.into_iter().enumerate().collect();
    let columns = on_all(threads, columns, move |(at, column)| {
        column.assemble(own.field(at).data_type(), at, &whole, rows, &originals)
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let rows = RecordBatch::try_new_with_options(schema.clone(), columns.await?, &options)?;
    Ok(Clustered { rows, begins })
}

/// The lanes of all columns.
fn lanes_of(schema: &SchemaRef, batches: &[RecordBatch]) -> (Vec<Lane>, Vec<Column>) {
    let mut lanes = Vec::new();
    let mut add = |lane| {
        lanes.push(lane);
        lanes.len() - 1
    };
    let mut numbers = None;
    let mut columns = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        let has_nulls = || {
            batches
                .iter()
                .any(|batch| batch.column(at).null_count() > 0)
        };
        let validity =
            |add: &mut dyn FnMut(Lane) -> usize| has_nulls().then(|| add(Lane::Validity(at)));
        columns.push(match field.data_type() {
            DataType::Boolean => Column::Truths {
                lane: add(Lane::Truth(at)),
                validity: validity(&mut add),
            },
            other => match other.primitive_width().filter(|_| !is_interval(other)) {
                Some(bytes) => Column::Values {
                    lane: add(Lane::Value(at, bytes)),
                    validity: validity(&mut add),
                },
                None => Column::Taken {
                    numbers: *numbers.get_or_insert_with(|| add(Lane::Number)),
                },
            },
        });
    }
    (lanes, columns)
}

/// Intervals lie in memory with the alignment of their parts, not that of a number of their width.
fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// Some rows, in slices of batches, from the one of this number on.
struct Morsel {
    slices: Vec<RecordBatch>,
    first: usize,
    rows: usize,
}

fn morsels(batches: Vec<RecordBatch>) -> Vec<Morsel> {
    let mut morsels = Vec::new();
    let mut morsel = Morsel {
        slices: Vec::new(),
        first: 0,
        rows: 0,
    };
    for batch in batches {
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = (batch.num_rows() - from).min(MORSEL_ROWS - morsel.rows);
            morsel.slices.push(batch.slice(from, rows));
            morsel.rows += rows;
            from += rows;
            if morsel.rows == MORSEL_ROWS {
                let next = Morsel {
                    slices: Vec::new(),
                    first: morsel.first + MORSEL_ROWS,
                    rows: 0,
                };
                morsels.push(std::mem::replace(&mut morsel, next));
            }
        }
    }
    if morsel.rows > 0 {
        morsels.push(morsel);
    }
    morsels
}

impl Morsel {
    fn scatter(
        &self,
        parts: usize,
        part_of: &dyn Fn(&RecordBatch, &mut Vec<u32>) -> Result<()>,
        lanes: &[Lane],
    ) -> Result<Scattered> {
        let mut places = Vec::with_capacity(self.rows);
        for slice in &self.slices {
            part_of(slice, &mut places)?;
        }
        let mut begins = vec![0u32; parts + 1];
        for part in &places {
            begins[*part as usize + 1] += 1;
        }
        for part in 0..parts {
            begins[part + 1] += begins[part];
        }
        let mut next = begins.clone();
        for place in &mut places {
            let next = &mut next[*place as usize];
            *place = *next;
            *next += 1;
        }
        let lane = |lane: &Lane| match *lane {
            Lane::Value(column, 1) => self.values::<u8>(column, &places),
            Lane::Value(column, 2) => self.values::<u16>(column, &places),
            Lane::Value(column, 4) => self.values::<u32>(column, &places),
            Lane::Value(column, 8) => self.values::<u64>(column, &places),
            Lane::Value(column, 16) => self.values::<i128>(column, &places),
            Lane::Value(column, _) => self.values::<i256>(column, &places),
            Lane::Truth(column) => self.bits(&places, |slice| {
                slice.column(column).as_boolean().values().clone()
            }),
            Lane::Validity(column) => {
                self.bits(&places, |slice| match slice.column(column).nulls() {
                    Some(nulls) => nulls.inner().clone(),
                    None => BooleanBuffer::new_set(slice.num_rows()),
                })
            }
            Lane::Number => {
                let first = self.first as u32;
                let mut numbers = vec![0; places.len()];
                for (number, place) in (first..).zip(&places) {
                    numbers[*place as usize] = number;
                }
                Buffer::from_vec(numbers)
            }
        };
        Ok(Scattered {
            lanes: lanes.iter().map(lane).collect(),
            begins,
        })
    }

    /// A column's values, at their places.
    fn values<T: ArrowNativeType>(&self, column: usize, places: &[u32]) -> Buffer {
        let mut lane = vec![T::default(); places.len()];
        let mut places = places;
        for slice in &self.slices {
            let data = slice.column(column).to_data();
            let (these, later) = places.split_at(data.len());
            let values = &data.buffers()[0].typed_data::<T>()[data.offset()..];
            for (value, place) in values.iter().zip(these) {
                lane[*place as usize] = *value;
            }
            places = later;
        }
        Buffer::from_vec(lane)
    }

    /// Bits at their places, each as a byte.
    fn bits(&self, places: &[u32], bits: impl Fn(&RecordBatch) -> BooleanBuffer) -> Buffer {
        let mut lane = vec![0u8; places.len()];
        let mut places = places.iter();
        for slice in &self.slices {
            for (bit, place) in bits(slice).iter().zip(&mut places) {
                lane[*place as usize] = u8::from(bit);
            }
        }
        Buffer::from_vec(lane)
    }
}

impl Scattered {
    fn piece(&self, part: usize) -> Range<usize> {
        self.begins[part] as usize..self.begins[part + 1] as usize
    }
}

/// All pieces of all parts: each lane as a whole.
async fn gather(
    scattered: Arc<[Scattered]>,
    begins: &[usize],
    lanes: &[Lane],
    threads: &dyn JoinThreads,
) -> Result<Vec<Buffer>> {
    let rows = begins[begins.len() - 1];
    // The system places zeroed memory when a thread first writes to it.
    let mut rest: Vec<_> = lanes
        .iter()
        .map(|lane| BytesMut::zeroed(rows * lane.bytes()))
        .collect();
    let mut whole: Vec<_> = lanes.iter().map(|_| BytesMut::new()).collect();
    let groups = groups(begins, MORSEL_ROWS).into_iter().map(|parts| {
        let rows = begins[parts.end] - begins[parts.start];
        let own = rest.iter_mut().zip(lanes);
        let own: Vec<_> = own
            .map(|(rest, lane)| rest.split_to(rows * lane.bytes()))
            .collect();
        (parts, own)
    });
    let lanes = lanes.to_vec();
    let gathered = on_all(threads, groups.collect(), move |(parts, mut own)| {
        let mut done = 0;
        for part in parts {
            for morsel in &*scattered {
                let piece = morsel.piece(part);
                let count = piece.len();
                for ((lane, own), from) in lanes.iter().zip(&mut own).zip(&morsel.lanes) {
                    let bytes = lane.bytes();
                    own[done * bytes..][..count * bytes]
                        .copy_from_slice(&from[piece.start * bytes..piece.end * bytes]);
                }
                done += count;
            }
        }
        Ok(own)
    });
    for group in gathered.await? {
        for (whole, own) in whole.iter_mut().zip(group) {
            // They are neighbours again.
            whole.unsplit(own);
        }
    }
    Ok(whole
        .into_iter()
        .map(|lane| Buffer::from(lane.freeze()))
        .collect())
}

/// Neighbouring parts that have about so many rows together.
pub(super) fn groups(begins: &[usize], rows: usize) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut first = 0;
    for end in 1..begins.len() {
        if begins[end] - begins[first] >= rows || end + 1 == begins.len() {
            groups.push(first..end);
            first = end;
        }
    }
    groups
}

impl Column {
    fn assemble(
        self,
        data_type: &DataType,
        at: usize,
        lanes: &[Buffer],
        rows: usize,
        originals: &[RecordBatch],
    ) -> Result<ArrayRef> {
        let bits = |lane: usize| BooleanBuffer::collect_bool(rows, |row| lanes[lane][row] != 0);
        let column = |data_type: &DataType, values: Buffer, validity: Option<usize>| {
            let data = ArrayData::builder(data_type.clone())
                .len(rows)
                .add_buffer(values)
                .nulls(validity.map(|lane| NullBuffer::new(bits(lane))))
                .align_buffers(true)
                .build()?;
            Ok::<_, RingError>(make_array(data))
        };
        match self {
            Self::Values { lane, validity } => column(data_type, lanes[lane].clone(), validity),
            Self::Truths { lane, validity } => column(data_type, bits(lane).into_inner(), validity),
            Self::Taken { numbers } => {
                let numbers = column(&DataType::UInt32, lanes[numbers].clone(), None)?;
                let arrays = originals.iter().map(|batch| batch.column(at).as_ref());
                let arrays: Vec<&dyn Array> = arrays.collect();
                let all = match arrays.as_slice() {
                    [] => new_empty_array(data_type),
                    arrays => concat(arrays)?,
                };
                Ok(take(&all, &numbers, None)?)
            }
        }
    }
}

#[cfg(test)]
mod tests;
