//! Joins on one host: two relations of 16-byte tuples, of which each row of the one has one partner in the other.
//!
//! `cargo bench -p roundel-ring --bench local -- [MILLIONS] [THREADS] [hash|merge]`

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use roundel_ring::{Algorithm, Cyclo, JoinSpec, JoinType, Output, RingError, TokioThreads, Window};
use roundel_verbs::TokioContext;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows of a batch.
const BATCH: usize = 8192;

#[derive(Default)]
struct Counted(AtomicU64);

impl Output for Counted {
    fn take(&self, rows: RecordBatch) -> Result<(), RingError> {
        self.0.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
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
    let rows = millions * 1_000_000;
    let (r, s) = (relation(rows, 1), relation(rows, 2));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for _ in 0..3 {
        let counted = Arc::<Counted>::default();
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
                output: counted.clone(),
            };
            cyclo.run_alone(r.clone(), s.clone()).await.unwrap()
        });
        assert_eq!(counted.0.load(Ordering::Relaxed), rows as u64);
        println!(
            "{millions} million rows on either side, {threads} threads: set-up {:.2} s, join {:.2} s",
            phases.set_up.as_secs_f64(),
            phases.join.as_secs_f64()
        );
    }
}
