//! The 22 TPC-H queries over two worker processes give what single-process DataFusion gives.

mod common;
#[path = "common/measures.rs"]
mod measures;
#[path = "common/tpch.rs"]
mod tpch;

use arrow::array::RecordBatch;
use futures::TryStreamExt as _;
use roundel_engine::tpch::{QUERY_COUNT, SingleProcess, TpchLayout, TpchTables, query};
use roundel_engine::{
    Architecture, Cluster, ClusterOptions, Design, DesignChoice, Fabric, Session,
};
use tpch::SCALE;

/// All rows of a query that is right.
async fn all(reference: &SingleProcess, sql: &str) -> Vec<RecordBatch> {
    let rows = reference.query(sql).await.expect("plans");
    rows.try_collect().await.expect("runs")
}

async fn compare(session: &Session, tables: &TpchTables) {
    let reference = SingleProcess::load(1, tables, &()).await.expect("tables");
    let mut wrong = Vec::new();
    for number in 1..=QUERY_COUNT {
        let sql = query(number).expect("a query");
        let expected = all(&reference, sql).await;
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
    let (cluster, session) = tpch::start(common::options(2)).await;
    compare(&session, &TpchTables::Memory { scale: SCALE }).await;
    cluster.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_dealt_by_their_keys() {
    for workers in [1, 3] {
        let cluster = Cluster::start(common::options(workers))
            .await
            .expect("starts");
        let session = cluster.session().expect("a session");
        let layout = TpchLayout::CoPartitioned;
        session
            .load_tpch_memory(SCALE, layout, &())
            .await
            .expect("loads");
        compare(&session, &TpchTables::Memory { scale: SCALE }).await;
        let reference = TpchTables::Memory { scale: SCALE };
        other_shapes(&session, &reference).await;
        // No row of orders or lineitem moves for their join, but for the counts of priorities.
        let sql = format!("EXPLAIN {}", query(4).expect("a query"));
        let plan = common::run(&session, &sql).await.expect("plans");
        let plan = common::rows(&plan).join("\n");
        assert!(plan.contains("dealt by key"), "{plan}");
        assert!(plan.contains("Hash([o_orderpriority"), "{plan}");
        assert!(plan.contains("HashJoinExec: mode=Partitioned"), "{plan}");
        assert!(!plan.contains("Hash([o_orderkey"), "{plan}");
        assert!(!plan.contains("CoalescePartitionsExec"), "{plan}");
        cluster.stop().await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_tables_over_grpc() {
    let cluster = Cluster::start(common::options(1)).await.expect("starts");
    let session = cluster.session_with(Fabric::Grpc).expect("a session");
    tpch::load(&session).await;
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
    let (cluster, memory) = tpch::start(common::options(3)).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn other_shapes_of_plans() {
    let (cluster, session) = tpch::start(common::options(2)).await;
    other_shapes(&session, &TpchTables::Memory { scale: SCALE }).await;
    cluster.stop().await.expect("stops");
}

/// Shapes of stages that TPC-H does not have, on sharded and replicated tables.
async fn other_shapes(session: &Session, tables: &TpchTables) {
    let reference = SingleProcess::load(1, tables, &()).await.expect("tables");
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
        "SELECT l_orderkey FROM lineitem UNION SELECT o_orderkey FROM orders",
        "SELECT c_custkey, count(o_orderkey) FROM customer LEFT JOIN orders ON c_custkey = o_custkey \
         GROUP BY c_custkey",
        "SELECT count(*) FROM partsupp JOIN lineitem ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey",
        "SELECT count(*) FROM orders FULL JOIN part ON o_orderkey = p_partkey",
        "SELECT l_orderkey, o_orderkey FROM orders JOIN lineitem ON o_orderkey = l_orderkey \
         ORDER BY o_orderkey, l_linenumber LIMIT 5",
        "SELECT 1 AS one",
    ] {
        let expected = all(&reference, sql).await;
        let expected = common::rows(&expected);
        match common::run(session, sql).await {
            Ok(rows) => assert!(common::rows(&rows) == expected, "{sql}"),
            Err(error) => panic!("{sql}: {error}"),
        }
    }
    // A stage that no row is asked of has measures, too.
    let sql = "EXPLAIN ANALYZE SELECT sum(l_extendedprice) FROM lineitem, part \
               WHERE p_partkey = l_partkey AND p_brand = 'nobody' AND l_quantity < \
               (SELECT avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)";
    common::run(session, sql).await.expect("ends");
}

/// A column of every kind that SQL can make, some with nulls, some very long.
const TYPES: &str = "\
 SELECT o_orderkey, o_custkey, \
 CASE WHEN o_orderkey % 3 = 0 THEN NULL ELSE o_orderkey % 2 = 0 END AS boolean, \
 arrow_cast(o_orderkey % 100, 'Int8') AS int8, \
 arrow_cast(o_orderkey % 100, 'UInt16') AS uint16, \
 arrow_cast(o_orderkey % 100, 'Float16') AS float16, \
 arrow_cast(o_totalprice, 'Float32') AS float32, \
 arrow_cast(o_orderkey % 100, 'Decimal32(7, 2)') AS decimal32, \
 arrow_cast(o_totalprice, 'Decimal64(15, 2)') AS decimal64, \
 arrow_cast(o_totalprice, 'Decimal128(38, 10)') AS decimal128, \
 arrow_cast(o_totalprice, 'Decimal256(50, 3)') AS decimal256, \
 arrow_cast(o_orderdate, 'Date64') AS date64, \
 arrow_cast(o_orderdate, 'Timestamp(ns, Some(\"+01:00\"))') AS timestamp, \
 arrow_cast(o_orderkey, 'Time64(ns)') AS time64, \
 arrow_cast(o_orderkey, 'Duration(ms)') AS duration, \
 o_orderdate - DATE '1992-01-01' AS days, \
 INTERVAL '1 month 2 days 3 seconds' AS month_day_nano, \
 arrow_cast(o_comment, 'Utf8') AS utf8, \
 arrow_cast(o_comment, 'LargeUtf8') AS large_utf8, \
 arrow_cast(o_comment, 'Utf8View') AS utf8_view, \
 arrow_cast(o_comment, 'Binary') AS binary, \
 arrow_cast(o_comment, 'LargeBinary') AS large_binary, \
 arrow_cast(o_comment, 'BinaryView') AS binary_view, \
 arrow_cast(arrow_cast(substr(o_orderpriority, 1, 1), 'Binary'), 'FixedSizeBinary(1)') AS byte, \
 arrow_cast(o_orderpriority, 'Dictionary(Int16, Utf8)') AS dictionary, \
 make_array(o_orderkey, NULL, o_custkey) AS list, \
 arrow_cast(make_array(o_orderkey, o_custkey), 'FixedSizeList(2, Int64)') AS fixed_size_list, \
 arrow_cast(make_array(o_comment), 'LargeList(LargeUtf8)') AS large_list, \
 named_struct('a', o_orderkey, 'b', make_array(o_comment, NULL)) AS struct, \
 MAP {o_orderstatus: o_custkey} AS map, \
 NULL AS nothing, '' AS empty, \
 CASE WHEN o_orderkey % 5000 = 1 THEN repeat(o_comment, 100000) ELSE '' END AS long \
 FROM orders WHERE o_orderkey < 10000";

#[tokio::test(flavor = "multi_thread")]
async fn every_type_crosses_the_exchange() {
    let tables = TpchTables::Memory { scale: SCALE };
    let reference = SingleProcess::load(1, &tables, &()).await.expect("tables");
    // To the coordinator; and between the workers, where equal keys meet.
    let joined = format!(
        "SELECT t.*, rank() OVER (PARTITION BY o_custkey ORDER BY o_orderkey) AS rank \
         FROM ({TYPES}) AS t"
    );
    for design in [Design::MesqSr, Design::SemqSr] {
        let options = ClusterOptions {
            design: DesignChoice::Of(design),
            ..common::options(2)
        };
        let (cluster, session) = tpch::start(options).await;
        for sql in [TYPES, &joined] {
            let expected = all(&reference, sql).await;
            let expected = common::rows(&expected);
            let rows = common::run(&session, sql).await.expect("runs");
            assert!(!expected.is_empty());
            assert!(common::rows(&rows) == expected, "{design}: {sql}");
        }
        cluster.stop().await.expect("stops");
    }
}

/// A cluster with TPC-H in memory, and a session whose joins send one side to all.
async fn that_broadcasts(options: ClusterOptions) -> (Cluster, Session) {
    let (cluster, session) = tpch::start(options).await;
    common::run(&session, "SET roundel.join = 'broadcast'")
        .await
        .expect("a setting");
    (cluster, session)
}

/// The rows of a table that is sent to all come to each worker once, whatever the number of its threads.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_to_all_comes_to_each_node_once() {
    let sql = "SELECT count(*), max(o_comment) FROM orders JOIN lineitem ON o_orderkey = l_orderkey \
               AND length(o_comment) > l_quantity";
    let tables = TpchTables::Memory { scale: SCALE };
    let reference = SingleProcess::load(1, &tables, &()).await.expect("tables");
    let expected = common::rows(&all(&reference, sql).await);
    for exchange in [Architecture::Endpoint, Architecture::Multiplexer] {
        let mut sent = Vec::new();
        for threads in [1, 4] {
            let options = ClusterOptions {
                exchange,
                threads,
                ..common::options(3)
            };
            let (cluster, session) = that_broadcasts(options).await;
            let bytes = async || {
                let counters = cluster.fabric_counters().await.expect("answers");
                counters
                    .expect("there are verbs")
                    .bytes
                    .values()
                    .sum::<u64>()
            };
            let before = bytes().await;
            let rows = common::run(&session, sql).await.expect("runs");
            assert_eq!(
                common::rows(&rows),
                expected,
                "{exchange}, {threads} threads"
            );
            sent.push(bytes().await - before);
            cluster.stop().await.expect("stops");
        }
        // Comments of 15,000 orders, to two other workers each.
        assert!(sent[0] > 2 * 15_000 * 48, "{exchange}: {sent:?} bytes");
        assert!(sent[1] < sent[0] * 3 / 2, "{exchange}: {sent:?} bytes");
    }
}

/// Each message of such a table is filled once, whatever the number of workers that get it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_to_all_is_filled_into_messages_once() {
    let sql = "EXPLAIN ANALYZE SELECT count(*), max(o_comment) FROM orders JOIN lineitem \
               ON o_orderkey = l_orderkey AND length(o_comment) > l_quantity";
    for exchange in [Architecture::Endpoint, Architecture::Multiplexer] {
        let options = ClusterOptions {
            exchange,
            ..common::options(4)
        };
        let (cluster, session) = that_broadcasts(options).await;
        let mut times = Vec::new();
        // A worker that comes late gets messages of its own: here that may be once, but not always.
        for _ in 0..10 {
            let plan = measures::text_of(&session, sql).await;
            let broadcasts = plan
                .lines()
                .filter(|line| line.contains("NetworkBroadcastExec"));
            let broadcasts = broadcasts.collect::<Vec<_>>().join("\n");
            let sum = |measure| measures::sum_of(&broadcasts, measure) as f64;
            times.push(sum("bytes") / sum("filled_bytes"));
            assert!(sum("bytes") > 3.0 * 15_000.0 * 48.0, "{plan}");
        }
        let most = times.iter().copied().fold(0.0, f64::max);
        assert!((2.8..3.2).contains(&most), "{exchange}: {times:?} times");
        cluster.stop().await.expect("stops");
    }
}
