//! Processes that end at any time, and strangers at the door.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{
    HandCluster, HandWorker, Program, TRANSPORTS, csv, eventually, finish, is_alive, program,
    signal, stderr, stdout, until_busy, workers_of,
};
use rustix::process::Signal;

/// Longest that a client may take to notice a dead worker, and a worker a dead coordinator.
const NOTICE_MAX: Duration = Duration::from_secs(5);
const FABRICS: [&str; 2] = ["shm", "grpc"];

/// A CSV file of rows `k,v` in which ten keys repeat, so that joining it with itself takes long.
fn table(roundel: &Program) -> String {
    let rows = (0..200_000).map(|k| format!("{},{k}\n", k % 10));
    csv(roundel, "t", "k,v", rows)
}

/// Four billion pairs of rows: it never ends by itself within a test.
const LONG_QUERY: &str = "SELECT sum(a.v % 7 + b.v % 5) FROM t a JOIN t b ON a.k = b.k";
/// The same of a ring.
const LONG_RING: &str = "SELECT sum(a.v + b.v) FROM t a JOIN t b ON a.k * b.v % 7 = 3";
const SHORT_QUERY: &str = "SELECT count(*) AS n, sum(v) AS s FROM t WHERE k = 3";
const SHORT_ANSWER: &str = "n,s\n20000,1999960000\n";

fn on_cluster(roundel: &Program, cluster: &HandCluster, table: &str, sql: &str) -> Child {
    cluster.sql(roundel, &[table.to_owned()], &[sql.to_owned()])
}

/// The two workers of a `tpch` whose queries have started.
fn workers_at_work(tpch: &mut Child) -> Vec<u32> {
    // The table's header comes when the tables are there.
    let mut header = [0; 16];
    let output = tpch.stdout.as_mut().unwrap();
    output.read_exact(&mut header).unwrap();
    workers_of(tpch.id(), 2)
}

/// A killed process cannot clean up after itself; the next one does.
fn run_once_more(roundel: &Program) {
    let arguments = [
        "tpch",
        "--scale",
        "0.01",
        "--queries",
        "6",
        "--fabric",
        "shm",
    ];
    let output = roundel.run(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_worker_killed_in_mid_query_is_named() {
    let roundel = program();
    let table = table(&roundel);
    for fabric in FABRICS {
        let cluster = HandCluster::start(&roundel, 2, fabric);
        let client = on_cluster(&roundel, &cluster, &table, LONG_QUERY);
        let victim = &cluster.workers[1];
        until_busy(victim.child.id());
        signal(victim.child.id(), Signal::KILL);
        let killed = Instant::now();
        let output = finish(client);
        assert!(
            killed.elapsed() < NOTICE_MAX,
            "it took {:?}",
            killed.elapsed()
        );
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(&victim.address), "{said}");
    }
}

#[test]
fn a_worker_killed_behind_multiplexers_is_named() {
    let roundel = program();
    let table = table(&roundel);
    for design in [
        "SEMQ/SR",
        "SEMQ/WR",
        "SEMQ/WR:mq",
        "SEMQ/WR:buffers",
        "SEMQ/RD",
    ] {
        let cluster = HandCluster::start(&roundel, 3, "shm");
        let flags = ["--exchange", "multiplexer", "--design", design];
        let run = |query: &str| {
            let (tables, statements) = ([table.clone()], [query.to_owned()]);
            cluster.sql_with(&roundel, &flags, &tables, &statements)
        };
        let whole = finish(run(SHORT_QUERY));
        assert_eq!(stdout(&whole), SHORT_ANSWER, "{design}: {}", stderr(&whole));
        let client = run(LONG_QUERY);
        let victim = &cluster.workers[1];
        until_busy(victim.child.id());
        signal(victim.child.id(), Signal::KILL);
        let killed = Instant::now();
        let output = finish(client);
        let (took, said) = (killed.elapsed(), stderr(&output));
        assert!(took < NOTICE_MAX, "{design}: it took {took:?}");
        assert!(said.contains(&victim.address), "{design}: {said}");
    }
}

/// On the same workers, which have a multiplexer of each design that coordinators ask for.
#[test]
fn coordinators_with_multiplexers_of_other_designs_share_workers() {
    let roundel = program();
    let table = table(&roundel);
    let cluster = HandCluster::start(&roundel, 3, "shm");
    let clients = ["SEMQ/SR", "SEMQ/WR", "SEMQ/RD", "SEMQ/SR"].map(|design| {
        let flags = ["--exchange", "multiplexer", "--design", design];
        let (tables, statements) = ([table.clone()], [SHORT_QUERY.to_owned()]);
        cluster.sql_with(&roundel, &flags, &tables, &statements)
    });
    for client in clients {
        let output = finish(client);
        assert_eq!(stdout(&output), SHORT_ANSWER, "{}", stderr(&output));
    }
}

/// At any moment: before the tasks of a join have agreed on its heavy keys, while they do, and after. The query fails,
/// or runs again without the worker.
#[test]
fn a_worker_killed_while_heavy_keys_are_found_hangs_nobody() {
    let roundel = program();
    let table = table(&roundel);
    // Each of the ten keys is heavy on both sides.
    let query = "SET roundel.join = 'repartition'; SET roundel.skew = 'auto'; \
                 SELECT count(*) AS n FROM t a JOIN t b ON a.k = b.k WHERE b.v < 10000";
    let answer = "n\n200000000\n";
    let mut cluster = HandCluster::start(&roundel, 3, "shm");
    let whole = finish(on_cluster(&roundel, &cluster, &table, query));
    assert_eq!(stdout(&whole), answer, "{}", stderr(&whole));
    for wait_ms in (0..160).step_by(10) {
        let client = on_cluster(&roundel, &cluster, &table, query);
        std::thread::sleep(Duration::from_millis(wait_ms));
        let victim = cluster.workers.remove(wait_ms as usize / 10 % 3);
        let address = victim.address.clone();
        drop(victim);
        let killed = Instant::now();
        let output = finish(client);
        let (took, said) = (killed.elapsed(), stderr(&output));
        assert!(took < 2 * NOTICE_MAX, "{wait_ms} ms: it took {took:?}");
        match output.status.success() {
            true => assert_eq!(stdout(&output), answer, "{wait_ms} ms"),
            false => assert!(said.contains(&address), "{wait_ms} ms: {said}"),
        }
        let again = HandWorker::start(&roundel, &cluster.token_file, &address, "shm");
        cluster.workers.push(again);
    }
}

/// A ring goes on without it, as others can read its part of the files; with those that are left, and at last without a
/// ring.
#[test]
fn a_join_on_a_ring_outlives_its_workers() {
    let roundel = program();
    let table = table(&roundel);
    // A fifth of the rows, of each worker: so many pairs that it takes seconds.
    let of = |divisor, rest| {
        let some = (0..200_000).filter(|v| v % 5 == 3);
        some.filter(|v| v % divisor == rest).count()
    };
    let pairs = (0..10).flat_map(|k| (0..7).map(move |v| (k, v)));
    let pairs = pairs.filter(|(k, v)| k * v % 7 == 3);
    let count: usize = pairs.map(|(k, v)| of(10, k) * of(7, v)).sum();
    let query = "SELECT count(*) AS n FROM t a JOIN t b ON a.k * b.v % 7 = 3 AND a.v % 5 = 3 AND b.v % 5 = 3";
    for (fabric, pin) in [("shm", 0), ("tcp", 60)] {
        let mut cluster = HandCluster::start(&roundel, 3, fabric);
        for left in [2, 1] {
            let set = format!("SET roundel.pin_seconds = {pin}; SET roundel.join = 'cyclo'; ");
            let client = on_cluster(&roundel, &cluster, &table, &format!("{set}{query}"));
            let victim = cluster.workers.remove(1);
            until_busy(victim.child.id());
            signal(victim.child.id(), Signal::KILL);
            let output = finish(client);
            assert!(
                output.status.success(),
                "{left} left, {fabric}: {}",
                stderr(&output)
            );
            assert_eq!(stdout(&output), format!("n\n{count}\n"), "{fabric}");
        }
    }
}

#[test]
fn the_other_workers_serve_on_and_one_that_comes_back_is_used() {
    let roundel = program();
    let table = table(&roundel);
    for fabric in FABRICS {
        let mut cluster = HandCluster::start(&roundel, 2, fabric);
        let answer = |cluster: &HandCluster| {
            let output = finish(on_cluster(&roundel, cluster, &table, SHORT_QUERY));
            assert_eq!(stdout(&output), SHORT_ANSWER, "{}", stderr(&output));
        };
        answer(&cluster);
        let victim = cluster.workers.remove(1);
        let address = victim.address.clone();
        signal(victim.child.id(), Signal::KILL);
        drop(victim);
        answer(&cluster);
        let again = HandWorker::start(&roundel, &cluster.token_file, &address, fabric);
        cluster.workers.push(again);
        answer(&cluster);
    }
}

#[test]
fn a_worker_of_tpch_killed_in_mid_run_ends_the_run() {
    let roundel = program();
    // Nobody else has the rows of a worker, not on a ring either.
    let ring: &[&str] = &["--join", "cyclo"];
    for transport in TRANSPORTS.into_iter().chain([ring]) {
        let run = [
            "tpch",
            "--scale",
            "0.1",
            "--iterations",
            "1000",
            "--queries",
            "9,18,21",
        ];
        let mut child = roundel.spawn(&[&run[..], &["--no-verify"], transport].concat());
        let workers = workers_at_work(&mut child);
        std::thread::sleep(Duration::from_millis(700));
        signal(workers[0], Signal::KILL);
        let killed = Instant::now();
        let output = finish(child);
        assert!(
            killed.elapsed() < NOTICE_MAX,
            "it took {:?}",
            killed.elapsed()
        );
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(
            stderr(&output).contains("127.0.0.1:"),
            "{}",
            stderr(&output)
        );
        assert!(workers.iter().all(|worker| !is_alive(*worker)));
        run_once_more(&roundel);
        roundel.assert_nothing_left();
    }
}

#[test]
fn workers_end_when_their_coordinator_is_killed() {
    let roundel = program();
    for transport in TRANSPORTS {
        let run = [
            "tpch",
            "--scale",
            "0.1",
            "--iterations",
            "1000",
            "--no-verify",
        ];
        let mut child = roundel.spawn(&[&run[..], transport].concat());
        let workers = workers_at_work(&mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = || workers.iter().all(|worker| !is_alive(*worker));
        assert!(eventually(NOTICE_MAX, gone), "workers {workers:?} live on");
        run_once_more(&roundel);
        roundel.assert_nothing_left();
    }
}

#[test]
fn processes_killed_all_at_once_leave_nothing() {
    let roundel = program();
    for transport in TRANSPORTS {
        let run = ["tpch", "--scale", "0.01", "--iterations", "1000"];
        let mut child = roundel.spawn(&[&run[..], transport].concat());
        let workers = workers_at_work(&mut child);
        for pid in [&workers[..], &[child.id()]].concat() {
            signal(pid, Signal::KILL);
        }
        child.wait().unwrap();
        let gone = || workers.iter().all(|worker| !is_alive(*worker));
        assert!(eventually(NOTICE_MAX, gone), "workers {workers:?} live on");
        run_once_more(&roundel);
        roundel.assert_nothing_left();
    }
}

#[test]
fn interrupted_commands_leave_nothing() {
    let roundel = program();
    let table = table(&roundel);
    let tpch: &[&str] = &["tpch", "--scale", "0.1", "--iterations", "1000"];
    let streams = &[&tpch[..3], &["--streams", "4", "--seconds", "600"]].concat()[..];
    let sql: &[&str] = &["sql", "--table", &table, "-c", LONG_QUERY];
    let ring: &[&str] = &["sql", "--table", &table, "-c", LONG_RING];
    for (arguments, kind, code) in [
        (tpch, Signal::INT, 130),
        (tpch, Signal::TERM, 143),
        (streams, Signal::INT, 130),
        (sql, Signal::INT, 130),
        (ring, Signal::INT, 130),
    ] {
        for transport in TRANSPORTS {
            let child = roundel.spawn(&[arguments, transport].concat());
            let workers = workers_of(child.id(), 2);
            until_busy(workers[0]);
            signal(child.id(), kind);
            let output = finish(child);
            assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
            assert!(output.stderr.is_empty(), "{}", stderr(&output));
            assert!(workers.iter().all(|worker| !is_alive(*worker)));
            roundel.assert_nothing_left();
        }
    }
}

#[test]
fn garbage_at_the_door_changes_nothing() {
    let roundel = program();
    let table = table(&roundel);
    let mut cluster = HandCluster::start(&roundel, 2, "shm");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let noise: Vec<u8> = (0..64 << 10_u32)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let garbage: [Vec<u8>; 5] = [
        noise.clone(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 4096],
        [&preface[..], &noise].concat(),
        // A frame that announces 16 MiB and then says nothing more.
        [&preface[..], &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
    ];
    let mut held = Vec::new();
    for bytes in &garbage {
        for worker in &cluster.workers {
            let mut stream = TcpStream::connect(&worker.address).unwrap();
            // The worker may hang up before it has read everything.
            let _ = stream.write_all(bytes);
            held.push(stream);
        }
        let output = finish(on_cluster(&roundel, &cluster, &table, SHORT_QUERY));
        assert_eq!(stdout(&output), SHORT_ANSWER, "{}", stderr(&output));
    }
    for worker in &mut cluster.workers {
        assert!(worker.child.try_wait().unwrap().is_none(), "a worker ended");
    }
}

#[test]
fn a_worker_ends_on_request() {
    let roundel = program();
    for kind in [Signal::INT, Signal::TERM] {
        let mut cluster = HandCluster::start(&roundel, 1, "shm");
        let worker = &mut cluster.workers[0];
        signal(worker.child.id(), kind);
        assert!(eventually(NOTICE_MAX, || worker
            .child
            .try_wait()
            .unwrap()
            .is_some()));
    }
    let lifeline = ["worker", "--lifeline", "--fabric", "shm"];
    let mut command = roundel.command(lifeline);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", "c".repeat(64)).unwrap();
    let mut greeting = [0; 8];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut greeting)
        .unwrap();
    drop(stdin);
    assert!(eventually(NOTICE_MAX, || child
        .try_wait()
        .unwrap()
        .is_some()));
    roundel.assert_nothing_left();
}
