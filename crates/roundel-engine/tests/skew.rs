//! Joins of skewed keys over four worker processes, with heavy keys spread, give what single-process DataFusion gives;
//! and the workers get about as many rows each.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
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
        ("id", Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, id)| *id)))),
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
    (0..4000).map(|row| (Some(key(row)), row)).collect()
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

async fn text_of(session: &Session, sql: &str) -> String {
    let batches = common::run(session, sql).await.expect("explains");
    common::rows(&batches).join("\n")
}

/// The sum of a measure over a plan with measures.
fn sum_of(plan: &str, measure: &str) -> u64 {
    let measure = format!("{measure}=");
    plan.split(&*measure).skip(1).map(number_of).sum()
}

/// A number as EXPLAIN ANALYZE writes it: 7, or 12.3 K.
fn number_of(text: &str) -> u64 {
    let end = text.find([',', ']', '}']).unwrap_or(text.len());
    let text = text[..end].trim();
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let unit = match unit {
        "K" => 1e3,
        "M" => 1e6,
        _ => 1.0,
    };
    (number.parse::<f64>().expect("a number") * unit) as u64
}

/// What the workers make of a statement is what the reference makes of it. Returns its plan with measures.
async fn compare(session: &Session, reference: &SessionContext, sql: &str) -> String {
    let expected = reference.sql(sql).await.expect("plans");
    let expected = expected.collect().await.expect("runs");
    let got = common::run(session, sql).await.expect("runs");
    let (got, expected) = (common::rows(&got), common::rows(&expected));
    assert_eq!(got.len(), expected.len(), "{sql}");
    assert!(got == expected, "{sql}: other rows");
    text_of(session, &format!("EXPLAIN ANALYZE {sql}")).await
}

