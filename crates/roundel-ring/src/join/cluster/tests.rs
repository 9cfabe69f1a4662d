use super::*;
use crate::threads::TokioThreads;
use arrow::array::{
    BooleanArray, Decimal128Array, Decimal256Array, Float32Array, Int8Array, Int16Array,
    Int64Array, IntervalMonthDayNanoArray, StringArray, UInt32Array,
};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{IntervalMonthDayNano, UInt32Type};
use proptest::prelude::*;

/// Rows of all kinds of lanes; some of them null, from the one of this number on.
fn batch(first: usize, rows: usize) -> RecordBatch {
    let numbers = first..first + rows;
    let some = |number: usize, every: usize| !number.is_multiple_of(every);
    let columns: [(&str, ArrayRef); 10] = [
        (
            "number",
            Arc::new(UInt32Array::from_iter_values(
                numbers.clone().map(|at| at as u32),
            )),
        ),
        (
            "byte",
            Arc::new(Int8Array::from_iter(
                numbers.clone().map(|at| some(at, 3).then_some(at as i8)),
            )),
        ),
        (
            "short",
            Arc::new(Int16Array::from_iter_values(
                numbers.clone().map(|at| at as i16),
            )),
        ),
        (
            "real",
            Arc::new(Float32Array::from_iter(
                numbers.clone().map(|at| some(at, 7).then_some(at as f32)),
            )),
        ),
        (
            "long",
            Arc::new(Int64Array::from_iter_values(
                numbers.clone().map(|at| at as i64 * -3),
            )),
        ),
        (
            "wide",
            Arc::new(Decimal128Array::from_iter_values(
                numbers.clone().map(|at| (at as i128) << 70),
            )),
        ),
        (
            "wider",
            Arc::new(Decimal256Array::from_iter_values(
                numbers.clone().map(|at| i256::from_i128(at as i128)),
            )),
        ),
        (
            "interval",
            Arc::new(IntervalMonthDayNanoArray::from_iter_values(
                numbers
                    .clone()
                    .map(|at| IntervalMonthDayNano::new(at as i32, 1, 2)),
            )),
        ),
        (
            "truth",
            Arc::new(BooleanArray::from_iter(
                numbers
                    .clone()
                    .map(|at| some(at, 11).then_some(at % 2 == 0)),
            )),
        ),
        (
            "text",
            Arc::new(StringArray::from_iter(
                numbers.map(|at| some(at, 5).then(|| format!("row {at}"))),
            )),
        ),
    ];
    let nullable = columns.map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(nullable).unwrap()
}

/// The part of a row by its number.
type PartOf = fn(u32, u32) -> u32;

fn check(batches: Vec<RecordBatch>, parts: usize, part_of: PartOf, threads: usize) {
    let schema = batch(0, 0).schema();
    let all = concat_batches(&schema, &batches).unwrap();
    let numbers = |rows: &RecordBatch| {
        let numbers = rows.column(0).as_primitive::<UInt32Type>();
        numbers.values().to_vec()
    };
    let threads = TokioThreads(threads);
    let clustered = cluster(
        &schema,
        batches,
        parts,
        move |rows, places| {
            let numbers = numbers(rows).into_iter();
            places.extend(numbers.map(|number| part_of(number, parts as u32)));
            Ok(())
        },
        &threads,
    );
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.build().unwrap();
    let clustered = runtime.block_on(clustered).unwrap();
    // Rows of a part are in the order in which they were.
    let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
    order.sort_by_key(|row| part_of(numbers(&all.slice(*row as usize, 1))[0], parts as u32));
    let begin = |part: u32| order.partition_point(|row| part_of(*row, parts as u32) < part);
    let begins: Vec<usize> = (0..=parts as u32).map(begin).collect();
    assert_eq!(clustered.begins, begins);
    let expected = take_record_batch(&all, &UInt32Array::from(order)).unwrap();
    assert_eq!(clustered.rows, expected);
}

fn batches(lengths: &[usize]) -> Vec<RecordBatch> {
    let mut first = 0;
    let batches = lengths.iter().map(|rows| {
        first += rows;
        batch(first - rows, *rows)
    });
    batches.collect()
}

#[test]
fn rows_of_all_types_are_in_the_order_of_their_parts() {
    let spread: PartOf = |number, parts| number.wrapping_mul(0x9e37_79b9) % parts;
    let one: PartOf = |_, parts| parts / 2;
    let last: PartOf = |_, parts| parts - 1;
    let skewed: PartOf = |number, parts| (number % 10).saturating_sub(8) * (parts - 1);
    for part_of in [spread, one, last, skewed] {
        for parts in [1, 2, 3, 65] {
            check(Vec::new(), parts, part_of, 2);
            check(batches(&[0]), parts, part_of, 2);
            check(batches(&[1]), parts, part_of, 2);
            check(batches(&[1, 0, 999, 64, 63]), parts, part_of, 3);
        }
    }
}

#[test]
fn morsels_are_cut_out_of_batches_of_any_size() {
    let spread: PartOf = |number, parts| number.wrapping_mul(0x9e37_79b9) % parts;
    check(batches(&[2 * MORSEL_ROWS + 1]), 33, spread, 2);
    check(batches(&[MORSEL_ROWS]), 33, spread, 2);
    check(
        batches(&[1, MORSEL_ROWS - 1, 7, MORSEL_ROWS - 7]),
        33,
        spread,
        1,
    );
}

#[test]
fn groups_are_all_parts_once() {
    assert!(groups(&[0], 10).is_empty());
    assert_eq!(groups(&[0, 0, 0], 10), vec![0..2; 1]);
    assert_eq!(groups(&[0, 4, 9, 10, 30, 30], 10), [0..3, 3..4, 4..5]);
}

#[test]
fn columns_of_other_types_are_refused() {
    let other = RecordBatch::try_from_iter([("number", Arc::new(Int64Array::from(vec![1])) as _)]);
    let schema = batch(0, 0).schema();
    let threads = TokioThreads(1);
    let clustered = cluster(&schema, vec![other.unwrap()], 1, |_, _| Ok(()), &threads);
    let clustered = futures::executor::block_on(clustered);
    assert!(matches!(clustered, Err(RingError::Unsupported(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_rows_in_any_parts(
        lengths in prop::collection::vec(0..300usize, 0..6),
        parts in 1..40usize,
        threads in 1..5usize,
    ) {
        check(batches(&lengths), parts, |number, parts| number * number % parts, threads);
    }
}
