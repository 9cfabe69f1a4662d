use super::*;
use crate::join::{Algorithm, JoinType, PairPredicate, Window};
use crate::roundabout::RingOptions;
use crate::roundabout::tests::{SMALL, ring};
use crate::threads::TokioThreads;
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Float64Array, Int64Array, StringArray,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use roundel_verbs::TokioContext;
use std::ops::Bound;

/// A row: a key, as number, as real number and as text, and what tells it from others.
pub(crate) type Row = (Option<i64>, i64);

pub(crate) fn schema(side: &str) -> SchemaRef {
    let field = |name: &str, data_type| Field::new(format!("{side}.{name}"), data_type, true);
    Arc::new(Schema::new(vec![
        field("key", DataType::Int64),
        field("real", DataType::Float64),
        field("text", DataType::Utf8),
        field("id", DataType::Int64),
    ]))
}

pub(crate) fn batch(side: &str, rows: &[Row]) -> RecordBatch {
    let keys = || rows.iter().map(|(key, _)| *key);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(keys())),
        Arc::new(Float64Array::from_iter(
            keys().map(|key| key.map(|key| key as f64 / 2.0)),
        )),
        Arc::new(StringArray::from_iter(
            keys().map(|key| key.map(|key| format!("text {key}"))),
        )),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, id)| *id))),
    ];
    RecordBatch::try_new(schema(side), columns).unwrap()
}

/// Rows of hosts: uneven, and some of their keys null.
pub(crate) fn relation(random: &mut StdRng, hosts: usize, rows: usize, keys: i64) -> Vec<Vec<Row>> {
    let mut relation = vec![Vec::new(); hosts];
    for id in 0..rows {
        let host = random.random_range(0..hosts) * random.random_range(0..2);
        let key = random
            .random_bool(0.9)
            .then(|| random.random_range(0..keys));
        relation[host].push((key, id as i64));
    }
    relation
}

/// The rows of a result, by what tells them apart; in no order.
pub(crate) type Ids = Vec<(Option<i64>, Option<i64>)>;

pub(crate) fn ids(batch: &RecordBatch) -> Ids {
    let column = |name: &str| -> Vec<Option<i64>> {
        match batch.column_by_name(name) {
            Some(column) => column.as_primitive::<Int64Type>().iter().collect(),
            None => vec![None; batch.num_rows()],
        }
    };
    column("r.id").into_iter().zip(column("s.id")).collect()
}

/// All pairs, one by one.
pub(crate) fn expected(
    join_type: JoinType,
    r: &[Row],
    s: &[Row],
    matches: &dyn Fn(i64, i64) -> bool,
) -> Ids {
    let partner = |a: &Row, b: &Row| a.0.zip(b.0).is_some_and(|(a, b)| matches(a, b));
    let mut ids = Ids::new();
    for a in r {
        let partners: Vec<_> = s.iter().filter(|b| partner(a, b)).collect();
        if join_type.has_pairs() {
            ids.extend(partners.iter().map(|b| (Some(a.1), Some(b.1))));
        }
        let alone = match join_type {
            JoinType::Spinning | JoinType::Full | JoinType::SpinningAnti => partners.is_empty(),
            JoinType::SpinningSemi => !partners.is_empty(),
            _ => false,
        };
        ids.extend(alone.then_some((Some(a.1), None)));
    }
    for b in s {
        let has_partner = r.iter().any(|a| partner(a, b));
        let alone = match join_type {
            JoinType::Stationary | JoinType::Full | JoinType::StationaryAnti => !has_partner,
            JoinType::StationarySemi => has_partner,
            _ => false,
        };
        ids.extend(alone.then_some((None, Some(b.1))));
    }
    ids.sort_unstable();
    ids
}

/// What rows of both sides match.
struct Matches {
    column: [usize; 1],
    test: fn(i64, i64) -> bool,
}

impl PairPredicate for Matches {
    fn spinning(&self) -> &[usize] {
        &self.column
    }

    fn stationary(&self) -> &[usize] {
        &self.column
    }

    fn test(&self, columns: &[ArrayRef], pairs: usize) -> Result<BooleanArray, String> {
        let keys = |at: usize| -> Vec<Option<i64>> {
            match columns[at].data_type() {
                DataType::Float64 => {
                    let column = columns[at].as_primitive::<Float64Type>().iter();
                    column
                        .map(|value| value.map(|value| (value * 2.0) as i64))
                        .collect()
                }
                _ => columns[at].as_primitive::<Int64Type>().iter().collect(),
            }
        };
        let answers = keys(0).into_iter().zip(keys(1));
        let answers: BooleanArray = answers
            .map(|(a, b)| a.zip(b).map(|(a, b)| (self.test)(a, b)))
            .collect();
        assert_eq!(answers.len(), pairs);
        Ok(answers)
    }
}

/// Keeps what tells rows of a result apart.
pub(crate) struct Kept {
    rows: Mutex<Ids>,
    schema: SchemaRef,
}

impl Kept {
    /// For rows of a join.
    pub(crate) fn of(spec: &JoinSpec) -> Arc<Self> {
        Arc::new(Self {
            rows: Mutex::default(),
            schema: spec.schema(),
        })
    }

    /// All that came, in an order of their own.
    pub(crate) fn sorted(&self) -> Ids {
        let mut rows = std::mem::take(&mut *self.rows.lock());
        rows.sort_unstable();
        rows
    }
}

impl Output for Kept {
    fn take(&self, batch: RecordBatch) -> Result<()> {
        assert_eq!(batch.schema(), self.schema);
        self.rows.lock().extend(ids(&batch));
        Ok(())
    }
}

/// Runs a join on all hosts of a ring.
async fn run(
    spec: JoinSpec,
    options: RingOptions,
    spinning: &[Vec<Row>],
    stationary: &[Vec<Row>],
) -> Result<Ids> {
    let rings = ring(spinning.len(), options);
    let kept = Kept::of(&spec);
    let cyclo = Cyclo {
        spec,
        threads: Arc::new(TokioThreads(2)),
        context: Arc::new(TokioContext::current()),
        output: kept.clone(),
    };
    let hosts: Vec<_> = rings
        .into_iter()
        .zip(spinning.iter().zip(stationary))
        .map(|(ring, (r, s))| {
            let cyclo = cyclo.clone();
            // In batches of any size.
            let batches =
                |side: &str, rows: &[Row]| rows.chunks(300).map(|rows| batch(side, rows)).collect();
            let (r, s) = (batches("r", r), batches("s", s));
            tokio::spawn(async move {
                match ring.place().hosts {
                    1 => cyclo.run_alone(r, s).await,
                    _ => cyclo.run(ring, r, s).await,
                }
            })
        })
        .collect();
    for host in hosts {
        host.await.unwrap()?;
    }
    Ok(kept.sorted())
}

fn near(a: i64, b: i64) -> bool {
    (b - a).abs() <= 3
}

/// A way to find pairs, what they are tested for besides, and what they match then.
pub(crate) type Condition = (
    Algorithm,
    Option<Arc<dyn PairPredicate>>,
    fn(i64, i64) -> bool,
);

pub(crate) fn spec(join_type: JoinType, (algorithm, predicate, _): &Condition) -> JoinSpec {
    JoinSpec {
        join_type,
        algorithm: algorithm.clone(),
        predicate: predicate.clone(),
        spinning: schema("r"),
        stationary: schema("s"),
    }
}

/// Each way to find pairs, with what its pairs match.
pub(crate) fn conditions() -> Vec<Condition> {
    let hash = |column| Algorithm::Hash {
        spinning: vec![column],
        stationary: vec![column],
        nulls_equal: false,
    };
    let both = Algorithm::Hash {
        spinning: vec![0, 2],
        stationary: vec![0, 2],
        nulls_equal: false,
    };
    let merge = |column, window| Algorithm::Merge {
        spinning: column,
        stationary: column,
        window,
    };
    let whole = |low, high| merge(0, Window::Whole { low, high });
    let real = |low, high| merge(1, Window::Real { low, high });
    let odd: fn(i64, i64) -> bool = |a, b| (a * b) % 3 == 1;
    let test = |column, test| -> Option<Arc<dyn PairPredicate>> {
        let column = [column];
        Some(Arc::new(Matches { column, test }))
    };
    vec![
        (hash(0), None, |a, b| a == b),
        (hash(1), None, |a, b| a == b),
        (hash(2), None, |a, b| a == b),
        (both, None, |a, b| a == b),
        (hash(0), test(0, odd), |a, b| a == b && (a * b) % 3 == 1),
        (
            whole(Bound::Included(0), Bound::Included(0)),
            None,
            |a, b| a == b,
        ),
        (whole(Bound::Included(-3), Bound::Included(3)), None, near),
        (
            whole(Bound::Excluded(-3), Bound::Excluded(3)),
            None,
            |a, b| (b - a).abs() < 3,
        ),
        (whole(Bound::Excluded(0), Bound::Unbounded), None, |a, b| {
            a < b
        }),
        (whole(Bound::Unbounded, Bound::Included(0)), None, |a, b| {
            a >= b
        }),
        (
            real(Bound::Included(-1.5), Bound::Included(1.5)),
            test(1, near),
            near,
        ),
        (
            real(Bound::Excluded(0.0), Bound::Unbounded),
            None,
            |a, b| a < b,
        ),
        (Algorithm::NestedLoops, test(0, odd), odd),
        (Algorithm::NestedLoops, test(0, near), near),
    ]
}

/// Every type of join of every condition gives the rows that it should, whatever there is and wherever it lies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_those_of_all_pairs_one_by_one() {
    let mut random = StdRng::seed_from_u64(7);
    for hosts in 1..=5 {
        for (of_r, of_s, keys) in [(0, 20, 5), (30, 0, 5), (300, 400, 40), (700, 300, 2000)] {
            let r = relation(&mut random, hosts, of_r, keys);
            let s = relation(&mut random, hosts, of_s, keys);
            let (all_r, all_s) = (r.concat(), s.concat());
            for condition in conditions() {
                for join_type in JoinType::ALL {
                    let spec = spec(join_type, &condition);
                    let got = run(spec, SMALL, &r, &s).await.unwrap();
                    let expected = expected(join_type, &all_r, &all_s, &condition.2);
                    assert!(
                        got == expected,
                        "{join_type:?} by {:?} on {hosts} hosts: {} rows, not {}",
                        condition.0,
                        got.len(),
                        expected.len()
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nulls_match_where_they_are_equal() {
    let algorithm = Algorithm::Hash {
        spinning: vec![0],
        stationary: vec![0],
        nulls_equal: true,
    };
    let spec = spec(JoinType::Inner, &(algorithm, None, |a, b| a == b));
    let r = [vec![(None, 1), (Some(1), 2)], vec![(None, 3)]];
    let s = [vec![(Some(1), 10)], vec![(None, 11), (Some(2), 12)]];
    let rows = run(spec, RingOptions::default(), &r, &s).await.unwrap();
    assert_eq!(
        rows,
        [
            (Some(1), Some(11)),
            (Some(2), Some(10)),
            (Some(3), Some(11))
        ]
    );
}

/// A predicate that fails.
pub(crate) struct Fails;

impl PairPredicate for Fails {
    fn spinning(&self) -> &[usize] {
        &[]
    }

    fn stationary(&self) -> &[usize] {
        &[]
    }

    fn test(&self, _columns: &[ArrayRef], _pairs: usize) -> Result<BooleanArray, String> {
        Err("division by zero".into())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_one_ends_the_join_of_all() {
    let fails: Condition = (Algorithm::NestedLoops, Some(Arc::new(Fails)), near);
    let spec = spec(JoinType::Inner, &fails);
    // Only one host has rows that stay.
    let r = vec![vec![(Some(1), 1); 1000]; 3];
    let s = vec![Vec::new(), vec![(Some(1), 1)], Vec::new()];
    let ended = tokio::time::timeout(Duration::from_secs(5), run(spec, SMALL, &r, &s))
        .await
        .unwrap();
    assert!(
        matches!(ended, Err(RingError::Lost { .. } | RingError::Predicate(_))),
        "{ended:?}"
    );
}
