use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, StringArray, StringViewArray,
};
use arrow::datatypes::Int32Type;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn rows(values: &[(i64, Option<f64>)]) -> RecordBatch {
    let keys: Int64Array = values.iter().map(|(k, _)| Some(*k)).collect();
    let floats: Float64Array = values.iter().map(|(_, f)| *f).collect();
    batch(vec![("k", Arc::new(keys)), ("f", Arc::new(floats))])
}

fn ints(values: &[(i64, i64)]) -> RecordBatch {
    let a: Int64Array = values.iter().map(|(a, _)| Some(*a)).collect();
    let b: Int64Array = values.iter().map(|(_, b)| Some(*b)).collect();
    batch(vec![("a", Arc::new(a)), ("b", Arc::new(b))])
}

fn expected(batch: &RecordBatch, sort_columns: &[usize]) -> Expected {
    Expected {
        schema: batch.schema(),
        batches: vec![batch.clone()],
        sort_columns: sort_columns.to_vec(),
        skip: 0,
        fetch: None,
    }
}

fn check(expected: &Expected, actual: &RecordBatch) -> Result<(), Mismatch> {
    compare(
        expected,
        &actual.schema(),
        std::slice::from_ref(actual),
        Tolerance::default(),
    )
}

fn difference(result: Result<(), Mismatch>) -> RowDifference {
    match result {
        Err(Mismatch::Rows(difference)) => difference,
        other => panic!("expected a difference in rows, got {other:?}"),
    }
}

#[test]
fn any_order_of_the_same_rows_is_equal() {
    let want = expected(&ints(&[(1, 1), (2, 2), (2, 2), (3, 3)]), &[]);
    check(&want, &ints(&[(3, 3), (2, 2), (1, 1), (2, 2)])).unwrap();
}

#[test]
fn a_missing_row_is_shown() {
    let want = expected(&ints(&[(1, 1), (2, 2)]), &[]);
    let difference = difference(check(&want, &ints(&[(1, 1)])));
    assert_eq!((difference.expected_rows, difference.actual_rows), (2, 1));
    assert_eq!(difference.missing, ["(2, 2)"]);
    assert!(difference.unexpected.is_empty());
}

#[test]
fn a_repeated_row_is_not_hidden_by_another_that_is_missing() {
    let want = expected(&ints(&[(1, 1), (1, 1), (2, 2)]), &[]);
    let difference = difference(check(&want, &ints(&[(1, 1), (2, 2), (2, 2)])));
    assert_eq!(difference.missing, ["(1, 1)"]);
    assert_eq!(difference.unexpected, ["(2, 2)"]);
}

#[test]
fn a_changed_row_is_shown_on_both_sides() {
    let want = expected(&ints(&[(1, 1), (2, 2)]), &[0]);
    let text = check(&want, &ints(&[(1, 1), (2, 3)]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "expected 2 rows, got 2; 1 missing, 1 unexpected\n  missing:    (2, 2)\n  unexpected: (2, 3)"
    );
}

#[test]
fn no_rows_are_equal_to_no_rows_only() {
    let want = expected(&ints(&[]), &[0]);
    check(&want, &ints(&[])).unwrap();
    assert_eq!(
        difference(check(&want, &ints(&[(1, 1)]))).unexpected_rows,
        1
    );
}

#[test]
fn sorted_rows_must_come_sorted_but_ties_may_be_permuted() {
    let want = expected(&ints(&[(1, 10), (1, 20), (2, 30)]), &[0]);
    check(&want, &ints(&[(1, 20), (1, 10), (2, 30)])).unwrap();
    let wrong = check(&want, &ints(&[(1, 10), (2, 30), (1, 20)]));
    assert!(
        matches!(wrong, Err(Mismatch::Order { position: 2, .. })),
        "{wrong:?}"
    );
}

#[test]
fn a_limit_may_take_any_of_the_ties_it_cuts() {
    let mut want = expected(&ints(&[(1, 10), (2, 20), (2, 21), (2, 22), (3, 30)]), &[0]);
    want.fetch = Some(3);
    check(&want, &ints(&[(1, 10), (2, 22), (2, 20)])).unwrap();
    // Not one of the ties, one of them twice, and a row of another group.
    assert_eq!(
        difference(check(&want, &ints(&[(1, 10), (2, 22), (2, 99)]))).unexpected,
        ["(2, 99)"]
    );
    assert_eq!(
        difference(check(&want, &ints(&[(1, 10), (2, 22), (2, 22)]))).unexpected,
        ["(2, 22)"]
    );
    assert!(matches!(
        check(&want, &ints(&[(1, 10), (2, 22), (3, 30)])),
        Err(Mismatch::Order { position: 3, .. })
    ));
    assert_eq!(
        difference(check(&want, &ints(&[(1, 11), (2, 22), (2, 20)]))).missing,
        ["(1, 10)"]
    );
}

#[test]
fn an_offset_may_skip_any_of_the_ties_it_cuts() {
    let mut want = expected(&ints(&[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30)]), &[0]);
    want.skip = 1;
    want.fetch = Some(3);
    check(&want, &ints(&[(1, 12), (1, 10), (2, 20)])).unwrap();
    assert_eq!(
        difference(check(&want, &ints(&[(1, 12), (1, 12), (2, 20)]))).unexpected,
        ["(1, 12)"]
    );
    // Both ends within one group of ties.
    want.fetch = Some(1);
    check(&want, &ints(&[(1, 10)])).unwrap();
    assert_eq!(
        difference(check(&want, &ints(&[(1, 13)]))).unexpected_rows,
        1
    );
    // An offset beyond the end leaves nothing.
    want.skip = 9;
    check(&want, &ints(&[])).unwrap();
}

#[test]
fn a_limit_without_an_order_takes_any_rows() {
    let mut want = expected(&ints(&[(1, 1), (2, 2), (3, 3)]), &[]);
    want.fetch = Some(2);
    check(&want, &ints(&[(3, 3), (1, 1)])).unwrap();
    assert_eq!(
        difference(check(&want, &ints(&[(3, 3), (3, 3)]))).unexpected,
        ["(3, 3)"]
    );
}

#[test]
fn floats_match_within_the_tolerance() {
    let want = expected(
        &rows(&[(1, Some(1e9)), (2, None), (3, Some(f64::NAN))]),
        &[],
    );
    check(
        &want,
        &rows(&[(3, Some(f64::NAN)), (1, Some(1e9 + 0.5)), (2, None)]),
    )
    .unwrap();
    for wrong in [
        [(1, Some(1e9 + 5.0)), (2, None), (3, Some(f64::NAN))],
        [(1, Some(1e9)), (2, Some(0.0)), (3, Some(f64::NAN))],
        [(1, Some(1e9)), (2, None), (3, Some(0.0))],
        [(1, Some(f64::INFINITY)), (2, None), (3, Some(f64::NAN))],
    ] {
        assert_eq!(
            difference(check(&want, &rows(&wrong))).unexpected_rows,
            1,
            "{wrong:?}"
        );
    }
}

#[test]
fn floats_that_are_close_to_several_are_matched_one_to_one() {
    let floats = |pairs: &[(f64, f64)]| {
        let x: Float64Array = pairs.iter().map(|(x, _)| Some(*x)).collect();
        let y: Float64Array = pairs.iter().map(|(_, y)| Some(*y)).collect();
        batch(vec![("x", Arc::new(x)), ("y", Arc::new(y))])
    };
    // Sorted by x the rows do not pair up: the noise in x turns the order of y round.
    let want = expected(&floats(&[(1.0, 5.0), (1.0 + 1e-10, 7.0)]), &[]);
    check(&want, &floats(&[(1.0 + 1e-10, 5.0), (1.0, 7.0)])).unwrap();
    assert_eq!(
        difference(check(&want, &floats(&[(1.0, 7.0), (1.0, 7.0)]))).missing,
        ["(1.0, 5.0)"]
    );
    // A chain in which a greedy choice would leave one row without a partner.
    let step = 1.5e-9;
    let want = expected(&floats(&[(0.0, 0.0), (step * 0.6, 0.0)]), &[]);
    let shifted = floats(&[(step * 0.6, 0.0), (-step * 0.3, 0.0)]);
    check(&want, &shifted).unwrap();
}

#[test]
fn sort_keys_that_are_floats_match_within_the_tolerance() {
    let want = expected(
        &rows(&[(1, Some(1.0)), (2, Some(1.0 + 1e-12)), (3, Some(2.0))]),
        &[1],
    );
    check(
        &want,
        &rows(&[(2, Some(1.0)), (1, Some(1.0)), (3, Some(2.0))]),
    )
    .unwrap();
    let wrong = check(
        &want,
        &rows(&[(3, Some(2.0)), (1, Some(1.0)), (2, Some(1.0))]),
    );
    assert!(
        matches!(wrong, Err(Mismatch::Order { position: 1, .. })),
        "{wrong:?}"
    );
}

#[test]
fn encodings_of_one_type_are_equal_and_other_types_are_not() {
    let plain = batch(vec![(
        "s",
        Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef,
    )]);
    let view = batch(vec![(
        "s",
        Arc::new(StringViewArray::from(vec!["b", "a"])) as ArrayRef,
    )]);
    let dictionary: DictionaryArray<Int32Type> = ["a", "b"].into_iter().collect();
    let dictionary = batch(vec![("s", Arc::new(dictionary) as ArrayRef)]);
    check(&expected(&plain, &[]), &view).unwrap();
    check(&expected(&view, &[]), &dictionary).unwrap();

    let number = batch(vec![(
        "s",
        Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef,
    )]);
    let text = check(&expected(&plain, &[]), &number)
        .unwrap_err()
        .to_string();
    assert_eq!(text, "expected the columns (s LargeUtf8), got (s Int64)");
    let renamed = batch(vec![(
        "t",
        Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef,
    )]);
    assert!(matches!(
        check(&expected(&plain, &[]), &renamed),
        Err(Mismatch::Columns { .. })
    ));
}

/// Whatever the rows: a permutation is equal, and losing, repeating or changing one row is not.
#[test]
fn every_single_fault_is_found() {
    use proptest::prelude::*;
    let rows_of = |values: &[(i64, i64)]| -> RecordBatch {
        let values: Vec<(i64, Option<f64>)> = values
            .iter()
            .map(|(k, f)| (*k, (*f != 0).then_some(*f as f64 / 3.0)))
            .collect();
        rows(&values)
    };
    let values = prop::collection::vec((0..4_i64, 0..4_i64), 1..40);
    let mut runner = proptest::test_runner::TestRunner::default();
    let run = runner.run(
        &(values, any::<prop::sample::Index>()),
        |(values, index)| {
            let want = expected(&rows_of(&values), &[]);
            let at = index.index(values.len());
            let mut changed = values.clone();
            changed.rotate_left(at);
            prop_assert!(check(&want, &rows_of(&changed)).is_ok());
            changed[at].1 += 5;
            prop_assert!(check(&want, &rows_of(&changed)).is_err());
            changed.remove(at);
            prop_assert!(check(&want, &rows_of(&changed)).is_err());
            let mut repeated = values.clone();
            repeated.push(values[at]);
            prop_assert!(check(&want, &rows_of(&repeated)).is_err());
            Ok(())
        },
    );
    run.unwrap();
}
