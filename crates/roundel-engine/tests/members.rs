//! What becomes of a cluster when a worker, a coordinator or a client misbehaves.

mod common;
#[path = "common/tpch.rs"]
mod tpch;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use roundel_engine::tpch::TpchLayout;
use roundel_engine::{Cluster, ClusterOptions, Design, DesignChoice, EngineError, Session, Token};
use roundel_verbs::Blame as _;
use tpch::SCALE;

/// A client learns of a lost worker within this time.
const NOTICE_MAX: Duration = Duration::from_secs(5);
/// How long something may take that is only to happen at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker started by hand. Killed when dropped.
struct Worker {
    child: Child,
    address: String,
}

impl Worker {
    fn start(listen: &str, token: &Token, lifeline: bool) -> Self {
        let mut command = Command::new(common::worker_program());
        command.args(["worker", "--threads=1", "--fabric=shm"]);
        command.arg(format!("--listen={listen}"));
        if lifeline {
            command.arg("--lifeline");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example worker is built");
        let stdin = child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{}", token.to_hex()).expect("it reads its token");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("it says where it listens");
        let address = line.trim().rsplit(' ').next().expect("an address");
        Self {
            address: address.to_owned(),
            child,
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn join(workers: &[&Worker], token: &Token) -> Result<Cluster, EngineError> {
    let addresses = workers
        .iter()
        .map(|worker| worker.address.clone())
        .collect();
    Cluster::connect(addresses, token.clone(), common::options(0)).await
}

/// A query that runs until it is stopped.
async fn start_endless(session: &Session) -> datafusion::execution::SendableRecordBatchStream {
    let sql = "SELECT a.l_comment, count(*) FROM lineitem a, lineitem b, lineitem c \
               WHERE a.l_partkey < b.l_partkey AND b.l_comment < c.l_comment GROUP BY a.l_comment";
    session.sql(sql).await.expect("plans")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_another_token() {
    let worker = Worker::start("127.0.0.1:0", &Token::random().expect("a token"), true);
    let other = Token::random().expect("a token");
    let error = join(&[&worker], &other).await.expect_err("refused");
    assert!(matches!(error, EngineError::TokenRefused { .. }), "{error}");
    assert!(error.to_string().contains(&worker.address), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_port_changes_nothing() {
    let token = Token::random().expect("a token");
    let worker = Worker::start("127.0.0.1:0", &token, true);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM",
    ] {
        let mut stream = std::net::TcpStream::connect(&worker.address).expect("it listens");
        // It may close the connection before all is written.
        let _ = stream.write_all(garbage);
    }
    let cluster = join(&[&worker], &token).await.expect("it still serves");
    let session = cluster.session().expect("a session");
    session
        .load_tpch_memory(0.001, TpchLayout::Random, &())
        .await
        .expect("loads");
    let rows = common::run(&session, "SELECT count(l_tax) FROM lineitem").await;
    assert_eq!(common::rows(&rows.expect("runs")), ["6005"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_worker_is_named() {
    let token = Token::random().expect("a token");
    let addresses = vec!["127.0.0.1:1".to_owned()];
    let joined = Cluster::connect(addresses, token, common::options(0)).await;
    let error = joined.expect_err("nothing listens there").to_string();
    assert!(error.contains("127.0.0.1:1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_named_and_used_again_when_it_is_back() {
    let token = Token::random().expect("a token");
    let first = Worker::start("127.0.0.1:0", &token, true);
    let mut second = Worker::start("127.0.0.1:0", &token, true);
    let cluster = join(&[&first, &second], &token).await.expect("joins");
    let session = cluster.session().expect("a session");
    tpch::load(&session).await;
    let dir = tempfile::tempdir().expect("a directory");
    let files = cluster.session().expect("a session");
    files
        .register_tpch_files(dir.path(), SCALE, &())
        .await
        .expect("generates");

    let mut batches = start_endless(&session).await;
    let running = tokio::time::timeout(Duration::from_millis(500), batches.next()).await;
    assert!(running.is_err(), "it was to run for long: {running:?}");
    second.kill();
    let killed = Instant::now();
    let error = loop {
        match batches.next().await.expect("an error first") {
            Ok(_) => {}
            Err(error) => break EngineError::from(error),
        }
    };
    assert!(killed.elapsed() < NOTICE_MAX, "{:?}", killed.elapsed());
    assert!(matches!(error, EngineError::WorkerLost { .. }), "{error}");
    assert!(error.to_string().contains(&second.address), "{error}");

    // Memory tables are gone with the worker; files are read by the one that remains.
    let count = "SELECT count(l_tax) FROM lineitem";
    let error = common::run(&session, count)
        .await
        .expect_err("shards are lost");
    assert!(matches!(error, EngineError::ShardLost { .. }), "{error}");
    let rows = common::run(&files, count).await.expect("runs on one");
    assert_eq!(common::rows(&rows), ["60175"]);

    let second = Worker::start(&second.address, &token, true);
    let back = Instant::now();
    while cluster.workers().iter().any(|worker| !worker.alive) {
        assert!(
            back.elapsed() < NOTICE_MAX,
            "{} is not used again",
            second.address
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = common::run(&session, count)
        .await
        .expect_err("shards are lost");
    assert!(matches!(error, EngineError::ShardLost { .. }), "{error}");
    tpch::load(&session).await;
    let rows = common::run(&session, count).await.expect("runs on both");
    assert_eq!(common::rows(&rows), ["60175"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_end_with_their_lifeline() {
    let token = Token::random().expect("a token");
    let mut worker = Worker::start("127.0.0.1:0", &token, true);
    let cluster = join(&[&worker], &token).await.expect("joins");
    let session = cluster.session().expect("a session");
    tpch::load(&session).await;
    let mut batches = start_endless(&session).await;
    let running = tokio::time::timeout(Duration::from_millis(300), batches.next()).await;
    assert!(running.is_err(), "it was to run for long");

    drop(worker.child.stdin.take());
    let cut = Instant::now();
    while worker.child.try_wait().expect("it is ours").is_none() {
        assert!(cut.elapsed() < NOTICE_MAX, "it does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let prefix = format!("roundel-spill-{}-", worker.child.id());
    let left = std::fs::read_dir(std::env::temp_dir()).expect("a directory");
    let left = left
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix));
    assert_eq!(left.count(), 0, "it left its spill directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_cancels_the_query() {
    for design in Design::ALL {
        let options = ClusterOptions {
            design: DesignChoice::Of(design),
            ..common::options(2)
        };
        let cluster = Cluster::start(options).await.expect("starts");
        cancel_a_query(&cluster).await;
        cluster.stop().await.expect("stops");
    }
}

async fn cancel_a_query(cluster: &Cluster) {
    let session = cluster.session().expect("a session");
    tpch::load(&session).await;
    let mut batches = start_endless(&session).await;
    let running = tokio::time::timeout(Duration::from_millis(500), batches.next()).await;
    assert!(running.is_err(), "it was to run for long");
    let held = cluster.fabric_counters().await.expect("answers");
    let held = held.expect("there are verbs");
    assert!(held.buffer_bytes > 0, "the query has links");
    drop(batches);
    // Within a second on a machine that has nothing else to do.
    let dropped = Instant::now();
    let mut held = u64::MAX;
    while held > 0 && dropped.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let counters = cluster.fabric_counters().await.expect("answers");
        let counters = counters.expect("there are verbs");
        held = counters.buffer_bytes;
    }
    assert_eq!(held, 0, "buffers of a query that is gone");
    eprintln!("buffers were free {:?} after the end", dropped.elapsed());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let busy_before = cpu_ticks(cluster);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let busy = cpu_ticks(cluster) - busy_before;
    // 50 ticks would be one thread that never rests.
    assert!(busy < 10, "the workers are still busy: {busy} ticks");
}

/// Whatever ends early frees everything: a query whose LIMIT is reached, one that fails.
#[tokio::test(flavor = "multi_thread")]
async fn queries_that_end_early_leave_no_buffers() {
    let (cluster, session) = tpch::start(common::options(2)).await;
    for sql in [
        "SELECT l_orderkey FROM lineitem JOIN orders ON l_orderkey = o_orderkey LIMIT 3",
        "SELECT l_partkey, count(*) FROM lineitem GROUP BY l_partkey LIMIT 1",
        "SELECT sum(1 / (o_orderkey - 4097)) FROM orders JOIN lineitem ON o_orderkey = l_orderkey \
         GROUP BY o_custkey",
    ] {
        // The last one divides by zero, if the planner does not turn it around.
        let _ = common::run(&session, sql).await;
        let started = Instant::now();
        loop {
            let held = cluster.fabric_counters().await.expect("answers");
            let held = held.expect("there are verbs");
            if held.buffer_bytes == 0 {
                break;
            }
            assert!(
                started.elapsed() < Duration::from_secs(1),
                "{sql}: {held:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    cluster.stop().await.expect("stops");
}

/// Time on processors of all workers, in ticks of 10 ms.
fn cpu_ticks(cluster: &Cluster) -> u64 {
    let ticks = |pid: u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |field: usize| fields[field].parse::<u64>().expect("a number");
        number(11) + number(12)
    };
    cluster
        .workers()
        .iter()
        .filter_map(|worker| worker.pid)
        .map(ticks)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_one_clear_line() {
    let cluster = Cluster::start(common::options(1)).await.expect("starts");
    let session = cluster.session().expect("a session");
    for scale in [0.0, -1.0, f64::NAN] {
        let error = session
            .load_tpch_memory(scale, TpchLayout::Random, &())
            .await
            .expect_err("no such scale");
        assert!(error.is_usage(), "{error}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let corrupt = dir.path().join("corrupt.parquet");
    std::fs::write(&corrupt, "no parquet at all").expect("writes");
    let corrupt = corrupt.to_str().expect("a path");
    let mut errors = vec![
        session.sql("SELECT * FROM nowhere").await.err(),
        session.sql("SELEC 1").await.err(),
        session
            .register_file("t", "/nowhere/at/all.parquet")
            .await
            .err(),
        session.register_file("t", corrupt).await.err(),
        session
            .register_tpch_files(dir.path(), SCALE, &())
            .await
            .err(),
    ];
    let mut nowhere = common::options(1);
    nowhere.worker_program = "/nowhere/at/all".into();
    errors.push(Cluster::start(nowhere).await.err());
    let mut useless = common::options(1);
    useless.worker_program = "/bin/false".into();
    errors.push(Cluster::start(useless).await.err());
    for error in errors {
        let error = error.expect("an error").to_string();
        assert!(!error.contains('\n') && error.len() < 300, "{error}");
    }
    cluster.stop().await.expect("stops");
}
