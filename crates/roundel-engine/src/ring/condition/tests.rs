use super::*;
use crate::ring::predicate::FilterPredicate;
use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, Date32Array, Float32Array, Float64Array, Int8Array,
    Int32Array, Int64Array, RecordBatch, UInt32Array,
};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::datatypes::{Int32Type, UInt32Type};
use datafusion::common::DFSchema;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use roundel_ring::{Cyclo, JoinSpec, JoinType, Output, RingError, TokioThreads};
use roundel_verbs::TokioContext;

/// How the pairs of a condition on `l.x, l.i, l.y, r.x, r.i, r.y` are found when the left side spins: 64-bit and
/// 32-bit whole numbers, and real ones.
fn found(condition: &str) -> Algorithm {
    let types = [DataType::Int64, DataType::Int32, DataType::Float64];
    let names = ["lx", "li", "ly", "rx", "ri", "ry"];
    let fields = names.iter().zip(types.iter().cycle());
    let fields = fields.map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let column = |at: usize| ColumnIndex {
        index: at % 3 + 10,
        side: if at < 3 {
            JoinSide::Left
        } else {
            JoinSide::Right
        },
    };
    let columns = (0..names.len()).map(column).collect();
    algorithm(Some(&filter(condition, schema, columns)), JoinSide::Left)
}

fn filter(condition: &str, schema: Arc<Schema>, columns: Vec<ColumnIndex>) -> JoinFilter {
    let context = SessionContext::new();
    let of_names = DFSchema::try_from(Arc::clone(&schema)).unwrap();
    let expression = context.parse_sql_expr(condition, &of_names).unwrap();
    let expression = context.create_physical_expr(expression, &of_names).unwrap();
    // Constants are numbers in plans.
    let expression = PhysicalExprSimplifier::new(&schema)
        .simplify(expression)
        .unwrap();
    JoinFilter::new(expression, columns, schema)
}

fn whole(column: usize, low: Bound<i64>, high: Bound<i64>) -> Algorithm {
    Algorithm::Merge {
        spinning: column,
        stationary: column,
        window: Window::Whole { low, high },
    }
}

/// The distances that a sum of so many bits can be, and a number.
fn distances(bits: u32, constant: i128) -> Limits {
    let end = 1_i128 << (bits - 1);
    Limits {
        distance: [-end - constant, end - 1 - constant],
        ..Limits::NONE
    }
}

fn sum(column: usize, low: Bound<i64>, high: Bound<i64>, limits: Limits) -> Algorithm {
    Algorithm::Merge {
        spinning: column,
        stationary: column,
        window: Window::WholeSum { low, high, limits },
    }
}

#[test]
fn distances_of_two_columns_are_windows() {
    use Bound::{Excluded, Included, Unbounded};
    // The stationary column less the spinning one.
    assert_eq!(found("lx < rx"), whole(10, Excluded(0), Unbounded));
    // Overflows are not decided: of differences, their absolute values, or sums of a column.
    let long = distances(64, 0);
    let [least, most] = long.distance;
    let minus = Limits {
        distance: [-most, -least],
        ..Limits::NONE
    };
    let both = long.and(minus);
    let spinning = |constant: i128| Limits {
        spinning: distances(64, constant).distance,
        ..Limits::NONE
    };
    let stationary = |constant: i128| Limits {
        stationary: distances(64, constant).distance,
        ..Limits::NONE
    };
    for (condition, low, high, limits) in [
        ("abs(lx - rx) <= 5", Included(-5), Included(5), both),
        ("5 > abs(rx - lx)", Excluded(-5), Excluded(5), both),
        (
            "lx BETWEEN rx - 3 AND rx + 1",
            Included(-1),
            Included(3),
            stationary(-3).and(stationary(1)),
        ),
        ("lx + 2 >= rx", Unbounded, Included(2), spinning(2)),
        ("lx - rx = 4", Included(-4), Included(-4), minus),
        (
            "lx < rx AND lx > rx - 9 AND li <> ri",
            Excluded(0),
            Excluded(9),
            stationary(-9),
        ),
        (
            "lx < rx AND lx <= rx - 4",
            Included(4),
            Unbounded,
            stationary(-4),
        ),
    ] {
        assert_eq!(found(condition), sum(10, low, high, limits), "{condition}");
    }
    let narrow = distances(32, 0).distance[1];
    let narrow = Limits {
        distance: [-narrow, narrow],
        ..Limits::NONE
    };
    assert_eq!(
        found("abs(li - ri) <= 2"),
        sum(11, Included(-2), Included(2), narrow)
    );
    let real = |low, high, nans_match| Algorithm::Merge {
        spinning: 12,
        stationary: 12,
        window: Window::RealSum {
            low,
            high,
            single: false,
            nans_match,
        },
    };
    assert_eq!(
        found("abs(ly - ry) <= 0.5"),
        real(Included(-0.5), Included(0.5), false)
    );
    assert_eq!(
        found("ly - ry < 0.5"),
        real(Excluded(-0.5), Unbounded, true)
    );
    assert_eq!(
        found("ly - ry = 0.5"),
        real(Included(-0.5), Included(-0.5), false)
    );
    assert_eq!(
        found("ly - 0.5 = ry"),
        real(Included(-0.5), Included(-0.5), true)
    );
}

#[test]
fn what_is_no_distance_is_tested_pair_by_pair() {
    for condition in [
        "lx <> rx",
        "lx * rx < 5",
        "lx + rx < 5",
        "lx < 5",
        "lx < ly",
        "lx < rx OR li < ri",
        "2 * lx < rx",
        "abs(lx) <= rx",
        "lx - rx <= 2.5",
    ] {
        assert_eq!(found(condition), Algorithm::NestedLoops, "{condition}");
    }
}

/// A key, as the left or the right side has it, and the numbers of its rows.
fn rows(side: &str, keys: &ArrayRef) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..keys.len() as u32));
    let number = format!("{side} number");
    let columns = [(side, Arc::clone(keys)), (number.as_str(), numbers)];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The pairs of a result, by the numbers of their rows.
#[derive(Default)]
struct Numbers(Mutex<Vec<(u32, u32)>>);

impl Output for Numbers {
    fn take(&self, rows: RecordBatch) -> Result<(), RingError> {
        let numbers = |side: &str| {
            let column = rows.column_by_name(&format!("{side} number"));
            let column = column.unwrap().as_primitive::<UInt32Type>();
            column.values().to_vec()
        };
        let pairs = numbers("l").into_iter().zip(numbers("r"));
        self.0.lock().extend(pairs);
        Ok(())
    }
}

/// The pairs of `l` and `r` that match a condition, found so.
async fn pairs(
    filter: &JoinFilter,
    spins: JoinSide,
    algorithm: Algorithm,
    keys: &ArrayRef,
) -> Result<Vec<(u32, u32)>, RingError> {
    let mut sides = [rows("l", keys), rows("r", keys)];
    if spins == JoinSide::Right {
        sides.reverse();
    }
    let [spinning, stationary] = sides;
    let numbers = Arc::new(Numbers::default());
    let cyclo = Cyclo {
        spec: JoinSpec {
            join_type: JoinType::Inner,
            algorithm,
            predicate: Some(Arc::new(FilterPredicate::new(filter.clone(), spins))),
            spinning: spinning.schema(),
            stationary: stationary.schema(),
        },
        threads: Arc::new(TokioThreads(1)),
        context: Arc::new(TokioContext::current()),
        output: Arc::clone(&numbers) as _,
    };
    cyclo.run_alone(vec![spinning], vec![stationary]).await?;
    let mut pairs = std::mem::take(&mut *numbers.0.lock());
    pairs.sort_unstable();
    Ok(pairs)
}

/// A condition of keys `l` and `r`.
fn of_keys(condition: &str, keys: &ArrayRef) -> JoinFilter {
    let field = |name| Field::new(name, keys.data_type().clone(), true);
    let schema = Arc::new(Schema::new(vec![field("l"), field("r")]));
    let columns = [JoinSide::Left, JoinSide::Right].map(|side| ColumnIndex { index: 0, side });
    filter(condition, schema, columns.to_vec())
}

/// Keys of floating point that are easily taken for others.
fn reals() -> Vec<f64> {
    let nans = [
        0x7ff8_0000_0000_0000,
        0xfff8_0000_0000_0000,
        0x7ff8_0000_0000_0001,
        0x7ff0_0000_0000_0123,
        0xfff0_0000_0000_0123,
    ];
    let numbers = [
        0.0,
        f64::from_bits(1),
        f64::MIN_POSITIVE,
        1e-300,
        1e-17,
        1e-10,
        0.1,
        0.3,
        0.5,
        1.0_f64.next_down(),
        1.0,
        1.0_f64.next_up(),
        2.0,
        3.0,
        3.1,
        4.0,
        16_777_216.0,
        16_777_217.0,
        16_777_220.0,
        9_007_199_254_740_992.0,
        9_007_199_254_740_994.0,
        1e308,
        f64::MAX,
        f64::INFINITY,
    ];
    let all = numbers.iter().flat_map(|number| [*number, -number]);
    nans.map(f64::from_bits).into_iter().chain(all).collect()
}

fn singles() -> Vec<f32> {
    let nans = [
        0x7fc0_0000,
        0xffc0_0000,
        0x7fc0_0001,
        0x7f80_0123,
        0xff80_0123,
    ];
    let more = [
        f32::from_bits(1),
        1.0_f32.next_down(),
        1.0_f32.next_up(),
        f32::MAX,
        f32::MIN,
    ];
    let numbers = reals().into_iter().map(|real| real as f32);
    let numbers = numbers.filter(|number| !number.is_nan());
    let all = nans.map(f32::from_bits).into_iter().chain(more);
    all.chain(numbers).collect()
}

#[tokio::test]
async fn windows_have_all_pairs_that_match() {
    let bytes: ArrayRef = Arc::new(Int8Array::from_iter_values(i8::MIN..=i8::MAX));
    let shorts: ArrayRef = {
        let around = [i32::MIN, -100, 0, 100, i32::MAX].into_iter();
        Arc::new(Int32Array::from_iter_values(
            around.flat_map(|at| (-9..9).map(move |more| at.saturating_add(more))),
        ))
    };
    let longs: ArrayRef = {
        let around = [
            i64::MIN,
            i64::MIN / 2,
            -1000,
            0,
            1 << 53,
            i64::MAX / 2,
            i64::MAX,
        ];
        Arc::new(Int64Array::from_iter_values(
            around
                .into_iter()
                .flat_map(|at| (-9..9).map(move |more| at.saturating_add(more))),
        ))
    };
    let unsigned: ArrayRef = {
        let around = [0, 1 << 31, u32::MAX].into_iter();
        Arc::new(UInt32Array::from_iter_values(around.flat_map(|at: u32| {
            (-9..9).map(move |more| at.saturating_add_signed(more))
        })))
    };
    let days: ArrayRef = Arc::new(Date32Array::from_iter_values(
        shorts.as_primitive::<Int32Type>().values().iter().copied(),
    ));
    let reals: ArrayRef = Arc::new(Float64Array::from(reals()));
    let singles: ArrayRef = Arc::new(Float32Array::from(singles()));
    let mut cases: Vec<(&ArrayRef, &str)> = Vec::new();
    for keys in [&bytes, &shorts, &longs, &unsigned, &days, &reals, &singles] {
        let plain = ["l < r", "l <= r", "l > r", "l >= r", "l = r"];
        cases.extend(plain.map(|condition| (keys, condition)));
    }
    for keys in [&bytes, &shorts, &longs, &unsigned, &days, &reals, &singles] {
        cases.extend(
            [
                "l - r < 3",
                "r - l > 3",
                "l - r = 4",
                "l - r BETWEEN -3 AND 2",
                "l < r AND l - r > -5",
            ]
            .map(|condition| (keys, condition)),
        );
    }
    cases.extend(
        [
            "l <= r - CAST(100 AS TINYINT)",
            "l + CAST(5 AS TINYINT) > r",
            "CAST(120 AS TINYINT) - l >= CAST(3 AS TINYINT) - r",
            "l - r + CAST(9 AS TINYINT) < CAST(2 AS TINYINT)",
            "l BETWEEN r - CAST(2 AS TINYINT) AND r + CAST(2 AS TINYINT)",
        ]
        .map(|condition| (&bytes, condition)),
    );
    cases.extend(
        [
            "l < r - CAST(5 AS INT UNSIGNED)",
            "l - r <= CAST(5 AS INT UNSIGNED)",
            "l BETWEEN r - CAST(2 AS INT UNSIGNED) AND r + CAST(2 AS INT UNSIGNED)",
        ]
        .map(|condition| (&unsigned, condition)),
    );
    cases.extend(
        ["l - 5 < r", "l > r + 3", "l BETWEEN r - 2 AND r + 2"]
            .map(|condition| (&longs, condition)),
    );
    for keys in [&reals, &singles] {
        cases.extend(
            [
                "l - r < 0",
                "l - r >= 1",
                "r - l >= 0.1",
                "l + 0.5 <= r",
                "l + 1 = r",
                "l BETWEEN r - 1 AND r + 1",
                "l + 9007199254740992 <= r",
                "l + CAST(1 AS FLOAT) < r",
                "l - CAST(0.3 AS FLOAT) >= r",
                "abs(l - r) <= 0.5",
                "abs(l - r) < 1",
            ]
            .map(|condition| (keys, condition)),
        );
    }
    let mut wrong = Vec::new();
    for (keys, condition) in cases {
        let of = keys.data_type();
        let filter = of_keys(condition, keys);
        let expected = pairs(&filter, JoinSide::Left, Algorithm::NestedLoops, keys).await;
        let expected = expected.unwrap();
        for spins in [JoinSide::Left, JoinSide::Right] {
            let algorithm = algorithm(Some(&filter), spins);
            let merges = matches!(algorithm, Algorithm::Merge { .. });
            let got = pairs(&filter, spins, algorithm.clone(), keys).await;
            let got = got.unwrap();
            if !merges || got != expected {
                let (got, all) = (got.len(), expected.len());
                wrong.push(format!(
                    "{condition} of {of}, {algorithm:?}: {got} of {all}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The absolute value of the least number fails, as it does without a window.
#[tokio::test]
async fn what_fails_without_a_window_fails_with_it() {
    let keys: ArrayRef = Arc::new(Int8Array::from_iter_values([100, -28, 3, 4]));
    let condition = of_keys("abs(l - r) <= 2", &keys);
    let window = algorithm(Some(&condition), JoinSide::Left);
    assert!(matches!(window, Algorithm::Merge { .. }));
    for algorithm in [Algorithm::NestedLoops, window] {
        let failed = pairs(&condition, JoinSide::Left, algorithm, &keys).await;
        assert!(matches!(failed, Err(RingError::Predicate(_))), "{failed:?}");
    }
}

/// Milliseconds of dates are not what their differences count.
#[test]
fn differences_of_other_types_are_no_windows() {
    let types = [
        DataType::Date64,
        DataType::Float16,
        DataType::Int16,
        DataType::UInt64,
    ];
    for (data_type, merges) in types.into_iter().zip([false, false, true, false]) {
        let keys = datafusion::arrow::array::new_null_array(&data_type, 0);
        let window = algorithm(Some(&of_keys("l - r < 3", &keys)), JoinSide::Left);
        let is_window = matches!(window, Algorithm::Merge { .. });
        assert_eq!(is_window, merges, "{data_type}: {window:?}");
    }
}
