//! The 22 TPC-H queries over two worker processes give what single-process DataFusion gives.

mod common;

use roundel_engine::tpch::{QUERY_COUNT, TpchTables, query};
use roundel_engine::{Cluster, Fabric, Session, single_process_context};

const SCALE: f64 = 0.01;

async fn compare(session: &Session, tables: &TpchTables) {
    let reference = single_process_context(1, tables, &())
        .await
        .expect("tables");
    let mut wrong = Vec::new();
    for number in 1..=QUERY_COUNT {
        let sql = query(number).expect("a query");
        let expected = reference.sql(sql).await.expect("plans");
        let expected = expected.collect().await.expect("runs");
        match common::run(session, sql).await {
            Ok(rows) if common::rows(&rows) == common::rows(&expected) => {}
            Ok(rows) => wrong.push(format!(
                "query {number}: {} rows, expected {}",
                common::rows(&rows).len(),
                common::rows(&expected).len()
            )),
            Err(error) => wrong.push(format!("query {number}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_tables_on_two_workers() {
    let cluster = Cluster::start(common::options(2)).await.expect("starts");
    let session = cluster.session().expect("a session");
    session.load_tpch_memory(SCALE, &()).await.expect("loads");
    compare(&session, &TpchTables::Memory { scale: SCALE }).await;
    cluster.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_tables_over_grpc() {
    let cluster = Cluster::start(common::options(1)).await.expect("starts");
    let session = cluster.session_with(Fabric::Grpc).expect("a session");
    session.load_tpch_memory(SCALE, &()).await.expect("loads");
    compare(&session, &TpchTables::Memory { scale: SCALE }).await;
    cluster.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_on_three_workers() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(common::options(3)).await.expect("starts");
    let session = cluster.session().expect("a session");
    session
        .register_tpch_files(dir.path(), SCALE, &())
        .await
        .expect("generates");
    let tables = TpchTables::Files {
        dir: dir.path().to_owned(),
        scale: SCALE,
    };
    compare(&session, &tables).await;

    let other_scale = session.register_tpch_files(dir.path(), 0.02, &()).await;
    let error = other_scale.expect_err("another scale").to_string();
    assert!(error.contains("at scale 0.01, not 0.02"), "{error}");
    cluster.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_file_tables_agree_row_for_row() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(common::options(3)).await.expect("starts");
    let memory = cluster.session().expect("a session");
    memory.load_tpch_memory(SCALE, &()).await.expect("loads");
    let files = cluster.session().expect("a session");
    files
        .register_tpch_files(dir.path(), SCALE, &())
        .await
        .expect("generates");
    for table in ["nation", "region", "supplier", "partsupp", "lineitem"] {
        let sql = format!("SELECT * FROM {table}");
        let in_memory = common::run(&memory, &sql).await.expect("runs");
        let in_files = common::run(&files, &sql).await.expect("runs");
        assert!(
            common::rows(&in_memory) == common::rows(&in_files),
            "{table}"
        );
    }
    cluster.stop().await.expect("stops");
}

/// Shapes of stages that TPC-H does not have, on sharded and replicated tables.
#[tokio::test(flavor = "multi_thread")]
async fn other_shapes_of_plans() {
    let cluster = Cluster::start(common::options(2)).await.expect("starts");
    let session = cluster.session().expect("a session");
    session.load_tpch_memory(SCALE, &()).await.expect("loads");
    let tables = TpchTables::Memory { scale: SCALE };
    let reference = single_process_context(1, &tables, &())
        .await
        .expect("tables");
    for sql in [
        "SELECT * FROM region",
        "SELECT count(*) FROM nation",
        "SELECT count(*), count(n_name) FROM nation, region WHERE n_regionkey < r_regionkey",
        "SELECT n_name, count(*) FROM nation LEFT JOIN supplier ON n_nationkey = s_nationkey \
         GROUP BY n_name",
        "SELECT s_suppkey FROM supplier UNION ALL SELECT c_custkey FROM customer",
        "SELECT n_name FROM nation UNION ALL SELECT s_name FROM supplier",
        "SELECT n_name FROM nation UNION SELECT n_name FROM nation",
        "SELECT count(*) FROM supplier FULL JOIN nation ON s_acctbal < n_nationkey",
        "SELECT count(*) FROM part WHERE p_partkey NOT IN \
         (SELECT nullif(l_partkey, 7) FROM lineitem)",
        "SELECT sum(l_quantity) FROM lineitem WHERE l_partkey > (SELECT avg(p_partkey) FROM part)",
        "SELECT o_custkey, row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderkey) \
         FROM orders",
        "SELECT count(*) FROM (SELECT * FROM lineitem LIMIT 100)",
        "SELECT l_orderkey FROM lineitem ORDER BY l_orderkey, l_linenumber LIMIT 7 OFFSET 3",
        "SELECT 1 AS one",
    ] {
        let expected = reference.sql(sql).await.expect("plans").collect().await;
        let expected = common::rows(&expected.expect("runs"));
        match common::run(&session, sql).await {
            Ok(rows) => assert!(common::rows(&rows) == expected, "{sql}"),
            Err(error) => panic!("{sql}: {error}"),
        }
    }
    cluster.stop().await.expect("stops");
}
