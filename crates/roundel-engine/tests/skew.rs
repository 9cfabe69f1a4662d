//! Joins of skewed keys over four worker processes, with heavy keys spread, give what single-process DataFusion gives;
//! and the workers get about as many rows each.

mod common;
#[path = "common/measures.rs"]
mod measures;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use measures::{number_of, sum_of, text_of};
use parquet::arrow::ArrowWriter;
use roundel_engine::{Architecture, Cluster, ClusterOptions, Session};
use tempfile::TempDir;

const WORKERS: usize = 4;
/// Files of a table: each worker reads one.
const FILES: usize = 4;

/// Tables in files, of which the workers and the reference read the same.
struct Tables(TempDir);

/// A row: the key, which is null in some, and its number.
type Row = (Option<i64>, i64);

impl Tables {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, table: &str) -> PathBuf {
        self.0.path().join(table)
    }

    /// A table of a key as a number `k`, as text `s`, and in two parts `a` and `b`, and of the row's number `id`.
    fn write(&self, table: &str, rows: &[Row]) {
        let dir = self.path(table);
        fs::create_dir(&dir).expect("a directory");
        for file in 0..FILES {
            let part: Vec<Row> = rows.iter().skip(file).step_by(FILES).copied().collect();
            write_file(&dir.join(format!("{file}.parquet")), &part);
        }
    }

    async fn register(&self, session: &Session, reference: &SessionContext, tables: &[&str]) {
        for table in tables {
            let path = self.path(table);
            let path = path.to_str().expect("UTF-8");
            session.register_file(table, path).await.expect("a table");
            let options = ParquetReadOptions::default();
            let registered = reference.register_parquet(*table, path, options).await;
            registered.expect("a table");
        }
    }
}

fn write_file(path: &Path, rows: &[Row]) {
    let keys = || rows.iter().map(|(key, _)| *key);
    let number = |of: fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(keys().map(|key| key.map(of))))
    };
    let texts = keys().map(|key| key.map(|key| format!("the key {key}")));
    let columns: [(&str, ArrayRef); 5] = [
        ("k", number(|key| key)),
        ("s", Arc::new(StringArray::from_iter(texts))),
        ("a", number(|key| key / 4)),
        ("b", number(|key| key % 4)),
        (
            "id",
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, id)| *id))),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let file = fs::File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a footer");
}

/// Half of the rows have one of two keys, some have none, and the others are of many.
fn skewed(rows: i64) -> Vec<Row> {
    let key = |row: i64| match row % 20 {
        0..8 => Some(7),
        8..10 => Some(1001),
        10 => None,
        _ => Some(row * 7919 % 3000),
    };
    (0..rows).map(|row| (key(row), row)).collect()
}

/// One row in three has no key.
fn keyless(rows: i64) -> Vec<Row> {
    let key = |row: i64| (row % 3 > 0).then_some(row * 7919 % 3000);
    (0..rows).map(|row| (key(row), row)).collect()
}

/// Two rows of each of many keys, of which some are in no other table, and some without one.
fn plain(keys: i64) -> Vec<Row> {
    let key = |row: i64| (row % 50 != 49).then_some(row / 2);
    (0..2 * keys).map(|row| (key(row), row)).collect()
}

/// One key of a table is heavy in it, the same one less so in the other, and another one the other way round.
fn both_skewed(heavier: i64, other: i64) -> Vec<Row> {
    let key = |row: i64| match row % 16 {
        0..6 => heavier,
        6 => other,
        _ => row * 7919 % 2000 + 10,
    };
    (0..16_000).map(|row| (Some(key(row)), row)).collect()
}

/// Keys by Zipf's law: the n-th one has a share of 1 / n^exponent.
fn zipf(rows: i64, keys: usize, exponent: f64) -> Vec<Row> {
    let mut sums = Vec::with_capacity(keys);
    let mut sum = 0.0;
    for key in 1..=keys {
        sum += (key as f64).powf(-exponent);
        sums.push(sum);
    }
    // Even steps by the golden ratio fill the unit interval evenly, in no order.
    let at = |row: i64| (row as f64 * 0.618_033_988_749_894_9).fract() * sum;
    let key = |row| sums.partition_point(|sum| *sum < at(row)) as i64;
    (0..rows).map(|row| (Some(key(row)), row)).collect()
}

fn options(exchange: Architecture) -> ClusterOptions {
    ClusterOptions {
        exchange,
        ..common::options(WORKERS)
    }
}

async fn session_of(cluster: &Cluster) -> Session {
    let session = cluster.session().expect("a session");
    common::run(&session, "SET roundel.join = 'repartition'")
        .await
        .expect("a setting");
    session
}

/// Checks that the workers have the same rows for a statement as the reference. Returns the plan with measures.
async fn compare(session: &Session, reference: &SessionContext, sql: &str) -> String {
    let expected = reference.sql(sql).await.expect("plans");
    let expected = expected.collect().await.expect("runs");
    let got = common::run(session, sql).await.expect("runs");
    let (got, expected) = (common::rows(&got), common::rows(&expected));
    assert_eq!(got.len(), expected.len(), "{sql}");
    assert!(got == expected, "{sql}: other rows");
    text_of(session, &format!("EXPLAIN ANALYZE {sql}")).await
}

/// The rows that the tasks of a plan's only join read, of both sides.
fn rows_per_worker(plan: &str) -> Vec<u64> {
    let joins = plan.lines().filter(|line| line.contains("HashJoinExec"));
    let per_task: Vec<&str> = joins.filter(|line| line.contains("input_rows={")).collect();
    let [join] = per_task[..] else {
        panic!("{plan}")
    };
    let mut rows = vec![0; WORKERS];
    // Those of the side that is built, and of the one that is probed.
    for measure in join.split("input_rows={").skip(1) {
        let (tasks, _) = measure.split_once('}').expect("its end");
        for task in tasks.split(", ") {
            let (number, count) = task.split_once(':').expect("a task's rows");
            rows[number.parse::<usize>().expect("a task")] += number_of(count);
        }
    }
    rows
}

fn busiest_by_mean(rows: &[u64]) -> f64 {
    let max = rows.iter().max().expect("a worker");
    *max as f64 * rows.len() as f64 / rows.iter().sum::<u64>() as f64
}

/// What is asked of one join type, and whether heavy keys of table `big` may be spread there.
const TYPES: [(&str, bool); 15] = [
    (
        "SELECT f.id, f.k, d.id AS e FROM big f JOIN small d ON f.k = d.k",
        true,
    ),
    (
        "SELECT f.id, f.k, d.id AS e FROM small d JOIN big f ON f.k = d.k AND f.id > d.id",
        true,
    ),
    (
        "SELECT f.id, f.k, d.id AS e FROM big f LEFT JOIN small d ON f.k = d.k",
        true,
    ),
    (
        "SELECT f.id, f.k, d.id AS e FROM big f LEFT JOIN small d ON f.k = d.k AND f.id > d.id",
        true,
    ),
    (
        "SELECT f.id, f.k, d.id AS e FROM big f RIGHT JOIN small d ON f.k = d.k",
        false,
    ),
    (
        "SELECT f.id, f.k, d.id AS e FROM big f FULL JOIN small d ON f.k = d.k",
        false,
    ),
    (
        "SELECT f.id, f.k FROM big f LEFT SEMI JOIN small d ON f.k = d.k",
        true,
    ),
    (
        "SELECT f.id, f.k FROM big f LEFT ANTI JOIN small d ON f.k = d.k",
        true,
    ),
    (
        "SELECT d.id, d.k FROM small d LEFT SEMI JOIN big f ON f.k = d.k",
        false,
    ),
    (
        "SELECT d.id, d.k FROM small d LEFT ANTI JOIN big f ON f.k = d.k",
        false,
    ),
    (
        "SELECT f.id FROM small d RIGHT SEMI JOIN big f ON f.k = d.k",
        true,
    ),
    (
        "SELECT f.id FROM small d RIGHT ANTI JOIN big f ON f.k = d.k",
        true,
    ),
    (
        "SELECT f.id FROM big f WHERE f.id % 5 = 0 OR EXISTS (SELECT 1 FROM small d WHERE d.k = f.k)",
        true,
    ),
    (
        "SELECT d.id FROM small d WHERE d.id % 5 = 0 OR EXISTS (SELECT 1 FROM big f WHERE d.k = f.k)",
        false,
    ),
    (
        "SELECT f.id FROM big f WHERE f.k NOT IN (SELECT k FROM small)",
        false,
    ),
];

/// Other keys than one number, and no key; all of these may be spread.
const KEYS: [&str; 5] = [
    "SELECT l.id, d.id AS e FROM keyless l LEFT JOIN small d ON l.k = d.k",
    "SELECT f.id, d.id AS e FROM big f JOIN small d ON f.s = d.s",
    "SELECT f.id, d.id AS e FROM big f LEFT JOIN small d ON f.a = d.a AND f.b = d.b",
    "SELECT f.id, d.id AS e FROM big f JOIN small d ON f.k + 1 = d.k + 1",
    "SELECT f.id, d.id AS e FROM big f JOIN small d ON f.s = d.s AND f.k IS NOT DISTINCT FROM d.k",
];

/// Heavy keys on both sides of a join, by which nothing is grouped or all rows are.
const ABOVE: [(&str, bool); 6] = [
    (
        "SELECT count(*), sum(l.id), sum(r.id) FROM one l JOIN other r ON l.k = r.k",
        true,
    ),
    (
        "SELECT l.k, count(*), sum(r.id) FROM one l JOIN other r ON l.k = r.k GROUP BY l.k",
        false,
    ),
    (
        "SELECT r.k, count(*) FROM one l RIGHT JOIN other r ON l.k = r.k GROUP BY r.k",
        false,
    ),
    (
        "SELECT l.k, count(*) FROM one l JOIN other r ON l.k = r.k JOIN small s ON s.k = l.k GROUP BY l.k",
        false,
    ),
    (
        "SELECT l.k, l.id, row_number() OVER (PARTITION BY l.k ORDER BY l.id) AS n FROM one l LEFT SEMI JOIN other r ON l.k = r.k",
        false,
    ),
    (
        "SELECT l.b, count(*) FROM one l JOIN other r ON l.k = r.k GROUP BY l.b",
        true,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_join_is_right_whatever_its_keys() {
    let tables = Tables::new();
    tables.write("big", &skewed(16_000));
    tables.write("small", &plain(2000));
    tables.write("keyless", &keyless(16_000));
    tables.write("one", &both_skewed(3, 5));
    tables.write("other", &both_skewed(5, 3));
    let names = ["big", "small", "keyless", "one", "other"];
    for exchange in Architecture::ALL {
        let cluster = Cluster::start(options(exchange)).await.expect("starts");
        let session = session_of(&cluster).await;
        let reference = SessionContext::new();
        tables.register(&session, &reference, &names).await;
        let keys = KEYS.map(|sql| (sql, true));
        for (sql, spread) in TYPES.into_iter().chain(keys).chain(ABOVE) {
            let plan = compare(&session, &reference, sql).await;
            let heavy = sum_of(&plan, "heavy_keys");
            assert_eq!(heavy > 0, spread, "{sql}: {plan}");
            assert_eq!(sum_of(&plan, "rows_spread") > 0, spread, "{sql}: {plan}");
        }
        cluster.stop().await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_get_about_as_many_rows_of_skewed_keys() {
    let tables = Tables::new();
    tables.write("facts", &zipf(200_000, 20_000, 1.2));
    tables.write("dimension", &plain(10_000));
    let sql = "SELECT sum(f.id), sum(d.id) FROM facts f JOIN dimension d ON f.k = d.k";
    let explain = format!("EXPLAIN ANALYZE VERBOSE {sql}");
    for exchange in Architecture::ALL {
        let cluster = Cluster::start(options(exchange)).await.expect("starts");
        let session = session_of(&cluster).await;
        let reference = SessionContext::new();
        let names = ["facts", "dimension"];
        tables.register(&session, &reference, &names).await;
        let plan = compare(&session, &reference, sql).await;
        // Eight have one in 64 of the rows or more. At that threshold a sample may err.
        let heavy = sum_of(&plan, "heavy_keys");
        assert!((5..=11).contains(&heavy), "{heavy}: {plan}");
        let spread = rows_per_worker(&text_of(&session, &explain).await);
        assert!(busiest_by_mean(&spread) <= 1.2, "{spread:?}");
        let off = "SET roundel.skew = 'off'";
        common::run(&session, off).await.expect("a setting");
        let plan = text_of(&session, &explain).await;
        assert!(!plan.contains("heavy"), "{plan}");
        let hashed = rows_per_worker(&plan);
        assert!(busiest_by_mean(&hashed) > 1.3, "{hashed:?}");
        cluster.stop().await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_not_skewed_are_not_heavy() {
    let tables = Tables::new();
    tables.write("facts", &zipf(100_000, 20_000, 0.0));
    tables.write("dimension", &zipf(20_000, 20_000, 0.0));
    let cluster = Cluster::start(common::options(WORKERS))
        .await
        .expect("starts");
    let session = session_of(&cluster).await;
    let reference = SessionContext::new();
    let names = ["facts", "dimension"];
    tables.register(&session, &reference, &names).await;
    let sql = "SELECT f.id, d.id AS e FROM facts f JOIN dimension d ON f.k = d.k";
    let plan = compare(&session, &reference, sql).await;
    assert!(plan.contains("heavy keys of both stages"), "{plan}");
    assert_eq!(sum_of(&plan, "heavy_keys"), 0, "{plan}");
    let error = common::run(&session, "SET roundel.skew = 'some'").await;
    let error = match error {
        Ok(_) => common::run(&session, sql).await,
        refused => refused,
    };
    let error = error.expect_err("no such thing").to_string();
    assert!(error.contains("auto or off"), "{error}");
    cluster.stop().await.expect("stops");
}
