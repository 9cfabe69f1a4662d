//! Cases that need a cluster of their own: one with little memory, queries that never end, and those of TPC-H.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use futures::{StreamExt as _, TryStreamExt as _};
use roundel_engine::tpch::{SingleProcess, TpchTables, query};
use roundel_engine::{Cluster, ClusterOptions, DeviceChoice};
use tokio::time::timeout;

use crate::common;
use crate::runner::answer;

const SCALE: f64 = 0.01;
/// How soon a cluster is free again after a query was dropped.
const CANCEL_MAX: Duration = Duration::from_secs(2);

/// B21 and 17: rows, or out of memory; never fewer rows, and no hang.
#[tokio::test(flavor = "multi_thread")]
async fn little_memory_gives_all_rows_or_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("k.parquet");
    let rows: i64 = 600_000;
    let write = format!(
        "COPY (SELECT CASE WHEN value % 10 < 4 THEN 0 ELSE value % 1000 END k, value v \
         FROM range(0, {rows})) TO '{}'",
        path.display()
    );
    let written = crate::data::single_process().sql(&write).await;
    written.expect("plans").collect().await.expect("writes");
    for fabric in [DeviceChoice::Shm, DeviceChoice::Tcp(None)] {
        let cluster = Cluster::start(ClusterOptions {
            memory_limit_bytes: Some(16 << 20),
            fabric: fabric.into(),
            ..common::options(3)
        });
        let cluster = cluster.await.expect("starts");
        let session = cluster.session().expect("a session");
        let path = path.to_str().expect("UTF-8");
        session.register_file("t", path).await.expect("a table");
        let sum = rows * (rows - 1) / 2;
        for (sql, right) in [
            (
                "SELECT count(*), sum(v) FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) FROM t)",
                format!("{rows}|{sum}"),
            ),
            (
                "SELECT count(*), sum(c) FROM (SELECT k, v, count(*) c FROM t GROUP BY k, v)",
                format!("{rows}|{rows}"),
            ),
            (
                "SELECT count(*), sum(v) FROM (SELECT k, v FROM t ORDER BY v DESC, k OFFSET 0)",
                format!("{rows}|{sum}"),
            ),
            (
                "SELECT count(*) FROM t a JOIN t b ON a.v = b.v",
                rows.to_string(),
            ),
            (
                "SELECT count(*) FROM t a JOIN (SELECT * FROM t WHERE v < 40) b ON a.v + b.v < 50 AND a.k <> b.v + 2000",
                "1220".to_owned(),
            ),
        ] {
            match answer(&session, sql).await {
                Ok(seen) => assert_eq!(seen.rows, [right], "{sql}"),
                Err(error) => assert!(error.contains("out of memory"), "{sql}: {error}"),
            }
        }
        let left = answer(&session, "SELECT count(*) FROM t").await;
        assert_eq!(left.expect("it is free again").rows, [rows.to_string()]);
        cluster.stop().await.expect("stops");
    }
}

/// C13: what never ends, ends when it is dropped, and leaves the workers free.
#[tokio::test(flavor = "multi_thread")]
async fn endless_queries_can_be_cancelled() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t");
    crate::peers::numbers_in(&path, 4, "n", (0..1000).collect());
    let cluster = Cluster::start(common::options(3)).await.expect("starts");
    let session = cluster.session().expect("a session");
    let location = path.to_str().expect("UTF-8");
    session.register_file("t", location).await.expect("a table");
    let spread = "SET distributed.file_scan_config_bytes_per_partition = 1";
    answer(&session, spread).await.expect("a setting");
    for sql in [
        "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM a), \
         b AS (SELECT 1 AS y UNION ALL SELECT y + 1 FROM b) SELECT a.x FROM a JOIN b ON a.x = b.y + 1 LIMIT 1",
        "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x + 0 FROM a) SELECT count(*) FROM a JOIN t ON a.x = t.n",
        "SELECT count(*) FROM t a, t b, t c, t d WHERE a.n + b.n + c.n + d.n < 0",
    ] {
        let started = timeout(Duration::from_secs(1), async {
            let mut rows = session.sql(sql).await?;
            while let Some(batch) = rows.next().await {
                batch?;
            }
            Ok::<(), roundel_engine::EngineError>(())
        });
        // One that a cluster refuses is at its end, too.
        let _ = started.await;
        let cancelled = Instant::now();
        let next = answer(&session, "SELECT count(*), sum(n) FROM t").await;
        assert_eq!(next.expect(sql).rows, ["1000|499500"], "after {sql}");
        let taken = cancelled.elapsed();
        assert!(taken < CANCEL_MAX, "{taken:?} after {sql}");
    }
    assert!(cluster.workers().iter().all(|worker| worker.alive));
    cluster.stop().await.expect("stops");
}

/// A6: whatever number of partitions a user asks for, or it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn any_number_of_partitions_gives_the_same_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    let tables = TpchTables::Files {
        dir: dir.path().to_owned(),
        scale: SCALE,
    };
    let reference = SingleProcess::load(1, &tables, &()).await.expect("tables");
    let cluster = Cluster::start(common::options(2)).await.expect("starts");
    for partitions in [1, 2, 3, 16] {
        let session = cluster.session().expect("a session");
        let files = session.register_tpch_files(dir.path(), SCALE, &());
        files.await.expect("tables");
        let set = format!("SET datafusion.execution.target_partitions = {partitions}");
        if let Err(refusal) = answer(&session, &set).await {
            assert!(refusal.contains("target_partitions"), "{refusal}");
            continue;
        }
        for number in [2, 11, 15, 17, 20] {
            let sql = query(number).expect("a query");
            let right: Vec<RecordBatch> = reference
                .query(sql)
                .await
                .expect("plans")
                .try_collect()
                .await
                .expect("runs");
            let seen = common::run(&session, sql).await;
            let seen =
                seen.unwrap_or_else(|e| panic!("query {number}, {partitions} partitions: {e}"));
            assert!(
                common::rows(&seen) == common::rows(&right),
                "query {number} with {partitions} partitions: {} rows, expected {}",
                common::rows(&seen).len(),
                common::rows(&right).len()
            );
        }
    }
    cluster.stop().await.expect("stops");
}
