//! Batches come out as they went in, for every type, slice and fragment size.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::Buffer;
use arrow::compute::take;
use arrow::datatypes::*;
use proptest::prelude::*;

use super::arrays::{Random, array, flat_types, nested_types};
use super::frame;
use crate::frame::{FrameAssembler, FrameDecoder, FrameError, FrameSource, HOLES_MAX};

pub(super) fn batch(types: &[DataType], rows: usize, seed: u64) -> RecordBatch {
    let mut random = Random(seed);
    let columns: Vec<_> = types
        .iter()
        .map(|data_type| array(data_type, rows, &mut random))
        .collect();
    let fields = types.iter().enumerate();
    let fields = fields.map(|(at, data_type)| Field::new(at.to_string(), data_type.clone(), true));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new_with_options(schema, columns, &options).unwrap()
}

fn round_trip(batch: &RecordBatch, fragment: usize) -> RecordBatch {
    FrameDecoder::try_new(batch.schema())
        .unwrap()
        .decode(frame(batch, fragment))
        .unwrap()
}

fn strings(batch: RecordBatch) -> RecordBatch {
    for column in batch.columns() {
        column.to_data().validate_full().unwrap();
    }
    batch
}

#[test]
fn every_type_makes_the_journey() {
    for data_type in flat_types().into_iter().chain(nested_types()) {
        for seed in 0..40 {
            for rows in [0, 1, 7, 8, 64, 200] {
                let batch = batch(std::slice::from_ref(&data_type), rows, seed);
                assert_eq!(
                    strings(round_trip(&batch, 4096)),
                    batch,
                    "{data_type} {rows} {seed}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn any_batch_makes_the_journey(
        types in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        rows in 0usize..300,
        seed in any::<u64>(),
        fragment in 1usize..5000,
    ) {
        let all = [flat_types(), nested_types()].concat();
        let types: Vec<_> = types.iter().map(|index| index.get(&all).clone()).collect();
        let batch = batch(&types, rows, seed);
        prop_assert_eq!(round_trip(&batch, fragment), batch);
    }

    #[test]
    fn fragments_may_come_in_any_order(
        length in 1usize..2000,
        fragment in 1usize..200,
        seed in any::<u64>(),
    ) {
        let mut random = Random(seed);
        let frame: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let mut fragments: Vec<_> = frame.chunks(fragment).enumerate().collect();
        let mut assembler = FrameAssembler::new(length as u32);
        while !fragments.is_empty() {
            let (index, bytes) = fragments.swap_remove(random.below(fragments.len()));
            let offset = index * fragment;
            prop_assert_eq!(assembler.insert(offset, bytes).unwrap(), fragments.is_empty());
            let repeated = assembler.insert(offset, bytes);
            let refused = matches!(repeated, Err(FrameError::FragmentOverlap { .. }));
            prop_assert!(refused, "{:?}", repeated);
        }
        let assembled = assembler.finish().unwrap();
        prop_assert_eq!(assembled.as_slice(), &frame);
    }
}

#[test]
fn rows_without_columns_are_counted() {
    for rows in [0, 5] {
        assert_eq!(round_trip(&batch(&[], rows, 0), 64).num_rows(), rows);
    }
}

#[test]
fn a_long_string_crosses_short_messages() {
    let long = "é".repeat(5 << 19);
    let values = [Some(long.as_str()), None, Some("short")];
    let columns: [(&str, ArrayRef); 3] = [
        ("view", Arc::new(StringViewArray::from_iter(values))),
        ("utf8", Arc::new(StringArray::from_iter(values))),
        (
            "list",
            Arc::new(StringDictionaryBuilder::<Int32Type>::new().finish()),
        ),
    ];
    let columns = columns.into_iter().take(2);
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    assert_eq!(round_trip(&batch, 4096 - 64), batch);
}

/// A few rows of a large batch do not drag the rest of it along.
#[test]
fn only_what_is_referenced_is_sent() {
    let text = |row: usize| format!("a string that is too long to be inlined, number {row}");
    let values = (0..100_000).map(text);
    let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(values.clone()));
    let utf8: ArrayRef = Arc::new(StringArray::from_iter_values(values));
    let whole = RecordBatch::try_from_iter([("views", views), ("utf8", utf8)]).unwrap();
    let slice = whole.slice(5_000, 10);
    assert!(FrameSource::try_new(&slice).unwrap().len() < 2_500);
    assert_eq!(round_trip(&slice, 100), slice);
    let dense = FrameSource::try_new(&whole).unwrap();
    assert!(dense.len() < 13_500_000, "{}", dense.len());

    let rows = UInt32Array::from_iter_values((0..100_000).step_by(10));
    let columns = whole
        .columns()
        .iter()
        .map(|column| take(column, &rows, None).unwrap());
    let taken = RecordBatch::try_new(whole.schema(), columns.collect()).unwrap();
    assert!(FrameSource::try_new(&taken).unwrap().len() < dense.len() / 9);
    assert_eq!(round_trip(&taken, 65_536), taken);
}

/// The same for what travels as Arrow IPC.
#[test]
fn only_what_is_referenced_is_sent_of_nested_columns() {
    let mut random = Random(0);
    for data_type in nested_types() {
        let whole = array(&data_type, 20_000, &mut random);
        let batch = RecordBatch::try_from_iter([("a", whole)]).unwrap();
        let slice = batch.slice(15_000, 10);
        let length = FrameSource::try_new(&slice).unwrap().len();
        assert!(length < 4_000, "{data_type}: {length}");
        assert_eq!(round_trip(&slice, 1_000), slice);
    }
}

#[test]
fn columns_that_are_null_throughout_cost_nothing() {
    let types = [
        DataType::Int64,
        DataType::Utf8,
        DataType::Utf8View,
        DataType::Boolean,
    ];
    let columns = types.map(|data_type| ("", new_null_array(&data_type, 8_192)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    assert_eq!(FrameSource::try_new(&batch).unwrap().len(), 64);
    assert_eq!(round_trip(&batch, 64), batch);
}

#[test]
fn arrays_share_the_frame() {
    let columns: [(&str, ArrayRef); 3] = [
        ("number", Arc::new(Int64Array::from_iter(0..1_000))),
        (
            "text",
            Arc::new(StringArray::from_iter_values(
                (0..1_000).map(|row| row.to_string()),
            )),
        ),
        (
            "view",
            Arc::new(StringViewArray::from_iter_values(
                ["long enough not to fit"; 1_000],
            )),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let frame = frame(&batch, 4_096);
    let range = frame.as_slice().as_ptr_range();
    let decoded = FrameDecoder::try_new(batch.schema())
        .unwrap()
        .decode(frame.clone())
        .unwrap();
    for data in decoded.columns().iter().map(|column| column.to_data()) {
        for buffer in data.buffers() {
            assert!(range.contains(&buffer.as_ptr()));
        }
    }
}

#[test]
fn a_null_where_none_may_be_is_an_error() {
    let nullable = Schema::new(vec![Field::new("a", DataType::Int32, true)]);
    let strict = Schema::new(vec![Field::new("a", DataType::Int32, false)]);
    let columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![Some(1), None]))];
    let batch = RecordBatch::try_new(Arc::new(nullable), columns).unwrap();
    let decoder = FrameDecoder::try_new(Arc::new(strict)).unwrap();
    let refused = decoder.decode(frame(&batch, 64));
    assert!(
        matches!(refused, Err(FrameError::Batch { .. })),
        "{refused:?}"
    );
    let valid = batch.slice(0, 1);
    assert_eq!(decoder.decode(frame(&valid, 64)).unwrap().num_rows(), 1);
}

#[test]
fn another_schema_is_an_error() {
    let sent = batch(&[DataType::Int32], 3, 0);
    for other in [DataType::UInt32, DataType::Date32, DataType::Utf8] {
        let schema = batch(&[other], 0, 0).schema();
        let refused = FrameDecoder::try_new(schema)
            .unwrap()
            .decode(frame(&sent, 64));
        assert!(
            matches!(refused, Err(FrameError::Schema { .. })),
            "{refused:?}"
        );
    }
}

/// Declared and actual schemas differ in nested names and nullability at times.
#[test]
fn nested_names_are_the_receivers() {
    let list = |name: &str, nullable| {
        DataType::List(Arc::new(Field::new(name, DataType::Int32, nullable)))
    };
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let DataType::List(field) = list("element", true) else {
        unreachable!()
    };
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([1, 2]);
    let array: ArrayRef = Arc::new(ListArray::new(field, offsets, values, None));
    let sent = RecordBatch::try_from_iter([("a", array)]).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new(
        "a",
        list("item", false),
        true,
    )]));
    let decoded = FrameDecoder::try_new(schema.clone())
        .unwrap()
        .decode(frame(&sent, 64))
        .unwrap();
    assert_eq!(decoded.schema(), schema);
    assert_eq!(
        decoded.column(0).as_list::<i32>().values(),
        sent.column(0).as_list::<i32>().values()
    );
}

#[test]
fn a_dictionary_of_dictionaries_is_refused_on_both_sides() {
    let inner = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let outer = DataType::Dictionary(Box::new(DataType::Int8), Box::new(inner));
    let empty = RecordBatch::try_from_iter([("a", new_empty_array(&outer))]).unwrap();
    let schema = empty.schema();
    assert!(matches!(
        FrameSource::try_new(&empty),
        Err(FrameError::Unsupported { .. })
    ));
    assert!(matches!(
        FrameDecoder::try_new(schema),
        Err(FrameError::Unsupported { .. })
    ));
}

#[test]
fn an_unfinished_frame_is_an_error() {
    let mut assembler = FrameAssembler::new(10);
    assert!(!assembler.insert(6, &[1; 4]).unwrap());
    assert_eq!((assembler.missing(), assembler.frame_length()), (6, 10));
    assert!(matches!(
        assembler.insert(5, &[1; 2]),
        Err(FrameError::FragmentOverlap { .. })
    ));
    assert!(matches!(
        assembler.insert(9, &[1; 2]),
        Err(FrameError::FragmentBounds { .. })
    ));
    assert!(matches!(
        assembler.finish(),
        Err(FrameError::Incomplete { missing: 6, .. })
    ));
}

#[test]
fn what_is_announced_and_does_not_come_takes_little_memory() {
    let mut assembler = FrameAssembler::with_gap(crate::wire::FRAME_LENGTH_MAX, 1000);
    assert!(assembler.reserved() <= 1 << 20);
    let far = assembler.insert(1_000_001, &[1; 100]);
    assert!(matches!(far, Err(FrameError::Scattered)), "{far:?}");
    assembler.insert(1000, &[1; 100]).unwrap();
    assembler.insert(1100, &[1; 100]).unwrap();
    let far = assembler.insert(1201, &[1; 100]);
    assert!(matches!(far, Err(FrameError::Scattered)), "{far:?}");
    assembler.insert(0, &[1; 1000]).unwrap();
    assembler.insert(1201, &[1; 100]).unwrap();
    assert!(assembler.reserved() <= 1 << 20);
}

#[test]
fn holes_are_limited() {
    let mut assembler = FrameAssembler::new(4 * HOLES_MAX as u32);
    for hole in 0..HOLES_MAX {
        assembler.insert(1 + 2 * hole, &[1]).unwrap();
    }
    let refused = assembler.insert(1 + 2 * HOLES_MAX, &[1]);
    assert!(matches!(refused, Err(FrameError::Scattered)), "{refused:?}");
}

#[test]
fn a_frame_at_an_odd_address_is_an_error() {
    let batch = batch(&[DataType::Int8], 3, 0);
    let bytes = frame(&batch, 64);
    let moved = Buffer::from([&[0; 8], bytes.as_slice()].concat()).slice(8);
    let decoder = FrameDecoder::try_new(batch.schema()).unwrap();
    assert!(matches!(decoder.decode(moved), Err(FrameError::Misaligned)));
}
