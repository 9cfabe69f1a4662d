//! An application's functions and operators run on workers that have them, and in the coordinator if they have not.

mod common;

#[path = "../examples/extended/additions.rs"]
mod additions;

use std::io::Write as _;

use datafusion::logical_expr::{ScalarUDF, create_udf};
use roundel_engine::{Cluster, ClusterOptions, EngineError, Extensions, Session};

const ROWS: i64 = 60_000;

/// A session with a table of so many rows that its scan has several tasks.
async fn session_of(cluster: &Cluster) -> (Session, tempfile::NamedTempFile) {
    let session = cluster.session().expect("a session");
    let mut file = tempfile::Builder::new()
        .suffix(".csv")
        .tempfile()
        .expect("a file");
    let rows: String = (0..ROWS).map(|id| format!("{id},{}\n", id % 7)).collect();
    write!(file, "id,g\n{rows}").expect("writes");
    let path = file.path().to_str().expect("UTF-8");
    session.register_file("t", path).await.expect("a table");
    additions::register_numbers(session.context()).expect("a table");
    (session, file)
}

/// The rows of an answer, and what EXPLAIN says of the plan.
async fn answer(session: &Session, sql: &str) -> (Vec<String>, String) {
    let explained = common::run(session, &format!("EXPLAIN {sql}"))
        .await
        .expect("plans");
    let rows = common::run(session, sql).await.expect("runs");
    (
        common::rows(&rows),
        common::rows_in_order(&explained).join("\n"),
    )
}

fn extended(extensions: Extensions) -> ClusterOptions {
    ClusterOptions {
        worker_program: common::worker_program().with_file_name("extended"),
        extensions,
        ..common::options(3)
    }
}

#[tokio::test]
async fn functions_and_operators_of_an_application_run_on_workers() {
    let cluster = Cluster::start(extended(additions::extensions()))
        .await
        .expect("a cluster");
    let (session, _file) = session_of(&cluster).await;
    let xor = |of: &dyn Fn(i64) -> bool| (0..ROWS).filter(|id| of(*id)).fold(0, |all, id| all ^ id);
    for (sql, right) in [
        (
            "SELECT sum(triple(id)) FROM t",
            vec![(3 * ROWS * (ROWS - 1) / 2).to_string()],
        ),
        (
            "SELECT g, xor_all(id) FROM t WHERE g < 2 GROUP BY g",
            (0..2)
                .map(|g| format!("{g}|{}", xor(&|id| id % 7 == g)))
                .collect(),
        ),
        (
            "SELECT g, max(p) FROM (SELECT g, place() OVER (PARTITION BY g ORDER BY id) AS p FROM t) \
             WHERE g > 4 GROUP BY g",
            // 60,000 rows are 8,571 of each of the seven, and 3 more.
            vec!["5|85700".to_owned(), "6|85700".to_owned()],
        ),
        (
            "SELECT count(*), sum(t.id) FROM t JOIN numbers n ON t.id = n.id",
            vec!["1000|499500".to_owned()],
        ),
    ] {
        let (rows, plan) = answer(&session, sql).await;
        assert_eq!(rows, right, "{sql}");
        assert!(
            !plan.contains("One task") && plan.contains("Stages"),
            "{sql}\n{plan}"
        );
    }
    cluster.stop().await.expect("ends");
}

#[tokio::test]
async fn a_worker_with_other_extensions_is_refused_and_says_what_it_has() {
    for (program, extensions, named) in [
        ("extended", Extensions::default(), "has function triple"),
        ("worker", additions::extensions(), "has no extensions"),
    ] {
        let options = ClusterOptions {
            worker_program: common::worker_program().with_file_name(program),
            ..extended(extensions)
        };
        let refused = Cluster::start(options).await.expect_err("other extensions");
        assert!(
            matches!(refused, EngineError::Extensions { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains(named), "{refused}");
    }
}

#[tokio::test]
async fn what_workers_do_not_have_runs_in_the_coordinator() {
    let cluster = Cluster::start(common::options(2)).await.expect("a cluster");
    let (session, _file) = session_of(&cluster).await;
    let four = create_udf(
        "four",
        Vec::new(),
        arrow::datatypes::DataType::Int64,
        datafusion::logical_expr::Volatility::Volatile,
        std::sync::Arc::new(|_: &[_]| {
            Ok(datafusion::logical_expr::ColumnarValue::Scalar(
                4_i64.into(),
            ))
        }),
    );
    session.context().register_udf(ScalarUDF::clone(&four));
    for (sql, right) in [
        (
            "SELECT sum(id + four()) FROM t",
            (ROWS * (ROWS - 1) / 2 + 4 * ROWS).to_string(),
        ),
        (
            "SELECT count(*) FROM t JOIN numbers n ON t.id = n.id",
            "1000".to_owned(),
        ),
    ] {
        let (rows, plan) = answer(&session, sql).await;
        assert_eq!(rows, [right], "{sql}");
        assert!(plan.contains("One task"), "{sql}\n{plan}");
    }
    cluster.stop().await.expect("ends");
}
