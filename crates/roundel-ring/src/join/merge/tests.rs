use super::*;
use crate::threads::TokioThreads;
use arrow::array::{Float64Array, Int64Array};
use arrow::compute::concat_batches;
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
    // What spins has each key once.
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
