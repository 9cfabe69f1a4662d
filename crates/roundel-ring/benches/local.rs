//! Joins on one host: two relations of 16-byte tuples, of which each row of the one has one partner in the other.
//!
//! `cargo bench -p roundel-ring --bench local -- [MILLIONS] [THREADS] [hash|merge] [asked]`
//!
//! `asked`: joins once for each line of its input and answers in JSON, as `peers/joins` wants it.

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use roundel_ring::{Algorithm, Cyclo, JoinSpec, JoinType, Output, RingError, TokioThreads, Window};
use roundel_verbs::TokioContext;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Rows of a batch.
const BATCH: usize = 8192;

/// How many rows of the result there are, and the sums of their columns.
#[derive(Default)]
struct Sums([AtomicU64; 5]);

impl Output for Sums {
    fn take(&self, rows: RecordBatch) -> Result<(), RingError> {
        let sums = rows.columns().iter().map(|column| {
            let values = column.as_primitive::<Int64Type>().values();
            values.iter().sum::<i64>() as u64
        });
        let all = std::iter::once(rows.num_rows() as u64).chain(sums);
        for (sum, own) in self.0.iter().zip(all) {
            sum.fetch_add(own, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn relation(rows: usize, seed: u64) -> Vec<RecordBatch> {
    let mut keys: Vec<i64> = (0..rows as i64).collect();
    keys.shuffle(&mut StdRng::seed_from_u64(seed));
    let batch = |keys: &[i64]| {
        let key: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let value: ArrayRef =
            Arc::new(Int64Array::from_iter_values(keys.iter().map(|key| key * 3)));
        RecordBatch::try_from_iter([("key", key), ("value", value)]).unwrap()
    };
    keys.chunks(BATCH).map(batch).collect()
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    let mut number = |default: usize| {
        let given = arguments.next();
        given.map_or(default, |given| given.parse().expect("a number"))
    };
    let (millions, threads) = (number(20), number(2));
    let algorithm = arguments.next().unwrap_or_else(|| "hash".into());
    let asked = arguments.next().is_some_and(|argument| argument == "asked");
    let rows = millions * 1_000_000;
    let (r, s) = (relation(rows, 1), relation(rows, 2));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut rounds = 0..3;
    let mut questions = std::io::stdin().lines();
    while match asked {
        true => questions.next().is_some(),
        false => rounds.next().is_some(),
    } {
        let output = Arc::<Sums>::default();
        let schema = r[0].schema();
        let algorithm = match algorithm.as_str() {
            "merge" => Algorithm::Merge {
                spinning: 0,
                stationary: 0,
                window: Window::Whole {
                    low: Bound::Included(0),
                    high: Bound::Included(0),
                },
            },
            _ => Algorithm::Hash {
                spinning: vec![0],
                stationary: vec![0],
                nulls_equal: false,
            },
        };
        let (r, s) = (r.clone(), s.clone());
        let began = Instant::now();
        let phases = runtime.block_on(async {
            let cyclo = Cyclo {
                spec: JoinSpec {
                    join_type: JoinType::Inner,
                    algorithm,
                    predicate: None,
                    spinning: schema.clone(),
                    stationary: schema,
                },
                threads: Arc::new(TokioThreads(threads)),
                context: Arc::new(TokioContext::current()),
                output: output.clone(),
            };
            cyclo.run_alone(r, s).await.unwrap()
        });
        // With what it takes to let go of everything.
        let seconds = began.elapsed().as_secs_f64();
        let (set_up, join) = (phases.set_up.as_secs_f64(), phases.join.as_secs_f64());
        let sums = output.0.each_ref().map(|sum| sum.load(Ordering::Relaxed));
        let (count, keys) = (rows as u64, rows as u64 * (rows as u64 - 1) / 2);
        assert_eq!(sums, [count, keys, 3 * keys, keys, 3 * keys]);
        match asked {
            true => println!(
                r#"{{"seconds": {seconds}, "set_up": {set_up}, "join": {join}, "sums": {sums:?}}}"#
            ),
            false => println!(
                "{millions} million rows on either side, {threads} threads: set-up {set_up:.2} s, join {join:.2} s"
            ),
        }
    }
}
