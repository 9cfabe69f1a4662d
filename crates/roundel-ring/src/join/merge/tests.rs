use super::*;
use crate::threads::TokioThreads;
use arrow::array::{Float64Array, Int64Array};
use arrow::compute::concat_batches;
use std::ops::RangeBounds as _;
use std::sync::Arc;

/// Rows of a key, as a whole number and as a real one, in batches.
fn relation(keys: &[Option<i64>]) -> Vec<RecordBatch> {
    let batch = |keys: &[Option<i64>]| {
        let whole: ArrayRef = Arc::new(Int64Array::from_iter(keys.iter().copied()));
        let real = keys.iter().map(|key| key.map(|key| key as f64 / 4.0));
        let real: ArrayRef = Arc::new(Float64Array::from_iter(real));
        RecordBatch::try_from_iter_with_nullable([("whole", whole, true), ("real", real, true)])
    };
    keys.chunks(7001).map(|keys| batch(keys).unwrap()).collect()
}

#[tokio::test]
async fn many_parts_are_sorted_and_merged() {
    const ROWS: i64 = 3 * PART_ROWS as i64 + 17;
    let spread = |at: i64| at.wrapping_mul(0x9e37_79b9) % ROWS;
    let kinds: [Vec<Option<i64>>; 4] = [
        (0..ROWS).map(|at| Some(spread(at))).collect(),
        (0..ROWS)
            .map(|at| (at % 9 > 0).then(|| spread(at) / 20 - 50))
            .collect(),
        (0..ROWS)
            .map(|at| Some((spread(at) - ROWS + 9).max(0)))
            .collect(),
        vec![None; ROWS as usize],
    ];
    let zero = Window::Whole {
        low: Bound::Included(0),
        high: Bound::Included(0),
    };
    let real_zero = Window::Real {
        low: Bound::Included(0.0),
        high: Bound::Included(0.0),
    };
    let threads = TokioThreads(2);
    // The spinning rows have each key once.
    let spinning: Vec<_> = (-100..ROWS).map(|at| Some(-at)).collect();
    for (keys, (column, window)) in kinds
        .iter()
        .flat_map(|keys| [(keys, (0, zero)), (keys, (1, real_zero))])
    {
        let batches = relation(keys);
        let schema = batches[0].schema();
        let rows = sort(&schema, batches.clone(), column, window, &threads);
        let rows = concat_batches(&schema, &rows.await.unwrap()).unwrap();
        let mut expected = keys.clone();
        expected.sort_unstable_by_key(|key| (key.is_none(), *key));
        let got = rows.column(0).as_primitive::<Int64Type>();
        assert!(got.iter().eq(expected.iter().copied()));

        let stays = matcher(&schema, batches, column, column, window, &threads);
        let (stationary, run) = stays.await.unwrap();
        let stationary = stationary.column(0).as_primitive::<Int64Type>();
        let fragments = sort(&schema, relation(&spinning), column, window, &threads);
        let mut found = 0;
        for fragment in fragments.await.unwrap() {
            let keys = fragment.column(0).as_primitive::<Int64Type>();
            let mut count = |pairs: &mut Pairs| {
                for (r, s) in pairs.spinning.iter().zip(&pairs.stationary) {
                    assert_eq!(keys.value(*r as usize), stationary.value(*s as usize));
                    assert!(stationary.is_valid(*s as usize));
                }
                found += pairs.len();
                pairs.clear();
                Ok(())
            };
            run.pairs(&fragment, 0..fragment.num_rows(), &mut count)
                .unwrap();
        }
        let within = keys.iter().flatten().filter(|key| **key <= 100);
        assert_eq!(found, within.count());
    }
}

/// The pairs that are found, by their keys.
async fn found(window: Window, spinning: ArrayRef, stationary: ArrayRef) -> Vec<(u64, u64)> {
    let batch = |keys: ArrayRef| RecordBatch::try_from_iter([("key", keys)]).unwrap();
    let (spinning, stationary) = (batch(spinning), batch(stationary));
    let schema = spinning.schema();
    let threads = TokioThreads(1);
    let (stationary, run) = matcher(&schema, vec![stationary], 0, 0, window, &threads)
        .await
        .unwrap();
    let bits = |rows: &RecordBatch, row: u32| {
        let row = row as usize;
        match rows.column(0).data_type() {
            DataType::Int64 => rows.column(0).as_primitive::<Int64Type>().value(row) as u64,
            _ => {
                let keys = rows.column(0).as_primitive::<Float64Type>();
                keys.value(row).to_bits()
            }
        }
    };
    let mut found = Vec::new();
    let mut take = |pairs: &mut Pairs| {
        let rows = pairs.spinning.iter().zip(&pairs.stationary);
        found.extend(rows.map(|(r, s)| (bits(&spinning, *r), bits(&stationary, *s))));
        pairs.clear();
        Ok(())
    };
    run.pairs(&spinning, 0..spinning.num_rows(), &mut take)
        .unwrap();
    found.sort_unstable();
    found
}

#[tokio::test]
async fn windows_of_whole_keys_are_exact_within_their_limits() {
    use Bound::{Excluded, Included, Unbounded};
    let around = [i64::MIN, -20, 0, 20, i64::MAX].into_iter();
    let keys = around.flat_map(|at| (-5..=5).map(move |more| at.saturating_add(more)));
    let keys: Vec<i64> = keys.collect();
    let limits = Limits {
        spinning: [-22, i128::MAX],
        stationary: [i128::MIN, 21],
        distance: [-30, 9],
    };
    let ends = [
        Unbounded,
        Included(0),
        Excluded(0),
        Included(-3),
        Excluded(3),
        Included(i64::MIN),
        Excluded(i64::MAX),
    ];
    for (low, high) in ends
        .iter()
        .flat_map(|low| ends.iter().map(move |high| (*low, *high)))
    {
        let whole = |end: Bound<i64>| end.map(i128::from);
        let is_within = |distance: i128| (whole(low), whole(high)).contains(&distance);
        for limits in [None, Some(Limits::NONE), Some(limits)] {
            let window = match limits {
                None => Window::Whole { low, high },
                Some(limits) => Window::WholeSum { low, high, limits },
            };
            let is_beyond = |r: i128, s: i128| {
                let limits = limits.unwrap_or(Limits::NONE);
                let ranges = [limits.spinning, limits.stationary, limits.distance];
                let numbers = ranges.into_iter().zip([r, s, s - r]);
                let mut beyond = numbers.map(|([low, high], at)| at < low || at > high);
                beyond.any(|beyond| beyond)
            };
            let all = keys.iter().flat_map(|r| keys.iter().map(move |s| (*r, *s)));
            let expected = all.filter(|(r, s)| {
                let (r, s) = (i128::from(*r), i128::from(*s));
                is_within(s - r) || is_beyond(r, s)
            });
            let mut expected: Vec<_> = expected.map(|(r, s)| (r as u64, s as u64)).collect();
            expected.sort_unstable();
            let column = || Arc::new(Int64Array::from(keys.clone())) as ArrayRef;
            let got = found(window, column(), column()).await;
            assert!(got == expected, "{window:?}");
        }
    }
}

#[tokio::test]
async fn what_is_no_number_has_its_place_by_its_sign() {
    let nan = |bits| f64::from_bits(bits);
    let keys = [
        nan(0xfff8_0000_0000_0001),
        -f64::NAN,
        f64::NEG_INFINITY,
        -1.0,
        -0.0,
        0.0,
        1.0,
        f64::INFINITY,
        f64::NAN,
        nan(0x7ff8_0000_0000_0001),
    ];
    let zeros = |key: f64| if key == 0.0 { 0.0 } else { key };
    let column = || Arc::new(Float64Array::from(keys.to_vec())) as ArrayRef;
    type Matches = fn(Ordering) -> bool;
    let windows: [(_, _, Matches); 5] = [
        (Bound::Excluded(0.0), Bound::Unbounded, Ordering::is_gt),
        (Bound::Included(0.0), Bound::Unbounded, Ordering::is_ge),
        (Bound::Unbounded, Bound::Excluded(0.0), Ordering::is_lt),
        (Bound::Unbounded, Bound::Included(0.0), Ordering::is_le),
        (Bound::Included(0.0), Bound::Included(0.0), Ordering::is_eq),
    ];
    for (low, high, matches) in windows {
        let expected = keys.iter().flat_map(|r| keys.iter().map(move |s| (*r, *s)));
        let expected = expected.filter(|(r, s)| {
            // Which of those of a sign is the greater, a predicate says.
            let alike = r.is_nan() && s.is_nan() && r.is_sign_negative() == s.is_sign_negative();
            alike || matches(zeros(*s).total_cmp(&zeros(*r)))
        });
        let mut expected: Vec<_> = expected.map(|(r, s)| (r.to_bits(), s.to_bits())).collect();
        expected.sort_unstable();
        let got = found(Window::Real { low, high }, column(), column()).await;
        assert!(got == expected, "{low:?} to {high:?}");
    }
    // Of sums it has none.
    for nans_match in [true, false] {
        let window = Window::RealSum {
            low: Bound::Excluded(0.5),
            high: Bound::Excluded(0.75),
            single: false,
            nans_match,
        };
        let got = found(window, column(), column()).await;
        let with_nan = got
            .iter()
            .filter(|(r, s)| nan(*r).is_nan() || nan(*s).is_nan());
        let expected = if nans_match { 100 - 36 } else { 0 };
        assert_eq!(with_nan.count(), expected);
    }
}
