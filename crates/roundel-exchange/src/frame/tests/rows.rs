//! Frames that are gathered row by row are what the arrow library's rows make.

use std::collections::HashSet;
use std::mem::MaybeUninit;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::buffer::Buffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::DataType;
use proptest::prelude::*;

use super::round_trip::batch;
use crate::frame::{FrameDecoder, RowSource};
use crate::selection::{RowsByPartition, Selection};

/// Most rows of a batch: under Miri each takes long.
const SIZE_MAX: usize = if cfg!(miri) { 24 } else { 300 };

/// The longest message: under Miri each byte takes long.
const LENGTH_MAX: usize = if cfg!(miri) { 2048 } else { 65_472 };

/// All that the arrow library picks rows of: of values without bytes it picks none.
fn flat_types() -> Vec<DataType> {
    let mut types = super::arrays::flat_types();
    types.retain(|data_type| *data_type != DataType::FixedSizeBinary(0));
    if cfg!(miri) {
        // Those as wide as another take the same way.
        let mut widths = HashSet::new();
        types.retain(|data_type| data_type.primitive_width().is_none_or(|w| widths.insert(w)));
    }
    types
}

/// The frame of some rows, in memory of which nothing was known.
fn encode(source: &RowSource<'_>, rows: Selection<'_>, length: usize) -> Buffer {
    let mut target = vec![MaybeUninit::new(0xee_u8); length];
    let written = source.encode(&rows, &mut target);
    assert!(written <= length, "{written} of {length}");
    let bytes = target[..written].iter().map(|byte| {
        // SAFETY: all of it was initialised above.
        #[allow(unsafe_code)]
        unsafe {
            byte.assume_init()
        }
    });
    let bytes: Vec<u8> = bytes.collect();
    // As a receiver assembles it, on a boundary that fits every type.
    Buffer::from(&bytes[..])
}

fn check(batch: &RecordBatch, rows: Selection<'_>, length: usize) -> Result<usize, TestCaseError> {
    let source = RowSource::new(batch).unwrap();
    let decoder = FrameDecoder::try_new(batch.schema()).unwrap();
    let (mut rest, mut frames) = (rows, 0);
    while !rest.is_empty() {
        let count = source.fitting(&rest, length);
        if count == 0 {
            prop_assert!(
                source.fitting(&rest.split_at(1).0, 1 << 20) == 1,
                "a row fits where there is room"
            );
            rest = rest.split_at(1).1;
            continue;
        }
        let (now, later) = rest.split_at(count);
        let decoded = decoder.decode(encode(&source, now, length));
        let decoded = decoded.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let taken =
            take_record_batch(batch, &UInt32Array::from(now.numbers().into_owned())).unwrap();
        prop_assert_eq!(decoded, taken);
        (rest, frames) = (later, frames + 1);
    }
    Ok(frames)
}

proptest! {
    #[test]
    fn any_rows_of_any_flat_type(
        picked in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        size in 1usize..SIZE_MAX,
        picks in prop::collection::vec(any::<u32>(), 0..2 * SIZE_MAX),
        length in prop::sample::select(vec![512usize, 1500, LENGTH_MAX]),
        (from, seed) in (any::<prop::sample::Index>(), any::<u64>()),
    ) {
        let all = flat_types();
        let types: Vec<DataType> = picked.iter().map(|index| index.get(&all).clone()).collect();
        let whole = batch(&types, size, seed);
        let from = from.index(size);
        let slice = whole.slice(from, size - from);
        let rows: Vec<u32> = picks.iter().map(|pick| pick % (size - from) as u32).collect();
        check(&slice, Selection::from(&rows[..]), length)?;
    }
}

proptest! {
    /// With bits for rows, which a processor may have instructions for, and with numbers.
    #[test]
    fn partitions_of_every_flat_type(
        size in 1usize..SIZE_MAX,
        partitions in 1usize..12,
        picks in prop::collection::vec(any::<u32>(), SIZE_MAX),
        length in prop::sample::select(vec![512usize, LENGTH_MAX]),
        (index, seed) in (any::<prop::sample::Index>(), any::<u64>()),
        numbers in any::<bool>(),
    ) {
        let whole = batch(&[index.get(&flat_types()).clone(), DataType::Int64], size, seed);
        let targets = picks[..size].iter().map(|pick| pick % partitions as u32);
        let targets: Vec<u32> = targets.collect();
        let mut rows = RowsByPartition::default();
        rows.sort(&targets, partitions, numbers).unwrap();
        for partition in 0..partitions {
            check(&whole, rows.of(partition), length)?;
        }
    }
}

#[test]
fn every_flat_type_by_itself() {
    for data_type in flat_types() {
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            let batch = batch(std::slice::from_ref(&data_type), SIZE_MAX, seed);
            let rows: Vec<u32> = (0..SIZE_MAX as u32).rev().chain([7, 7, 7]).collect();
            check(&batch, Selection::from(&rows[..]), LENGTH_MAX).unwrap();
        }
    }
}

#[test]
fn a_message_is_filled() {
    let size = if cfg!(miri) { 200 } else { 5000 };
    let batch = batch(&[DataType::Int64, DataType::Int64], size, 1);
    let source = RowSource::new(&batch).unwrap();
    let rows: Vec<u32> = (0..size as u32).collect();
    let count = source.fitting(&Selection::from(&rows[..]), LENGTH_MAX);
    // Two columns, perhaps with a bit each for nulls, and a head for each.
    assert!(count * 16 > LENGTH_MAX * 7 / 8, "{count} rows");
}

#[test]
#[should_panic(expected = "rows below 11 of 10")]
fn a_row_that_is_not_there_is_refused() {
    let batch = batch(&[DataType::Int64], 20, 1).slice(0, 10);
    encode(
        &RowSource::new(&batch).unwrap(),
        Selection::from(&[0, 10][..]),
        512,
    );
}
