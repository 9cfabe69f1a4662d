//! Wrong usage and bad input: one clear line, an exit code of 1 or 2, and nothing left behind.

use std::fs;
use std::net::TcpListener;

use crate::common::{HandCluster, TRANSPORTS, fails, program, stderr, write_token};

#[test]
fn wrong_usage_is_told_in_one_line() {
    let roundel = program();
    let multiplexed = |design| vec!["tpch", "--exchange", "multiplexer", "--design", design];
    for (arguments, told) in [
        (vec!["perf", "--help"], "`roundel-lab perf` now"),
        (vec!["experiment", "scorecard"], "`roundel-lab scorecard`"),
        (vec!["tpch", "--scale", "0"], "scale factor"),
        (vec!["tpch", "--scale", "-1"], "scale factor"),
        (vec!["tpch", "--scale", "much"], "scale factor"),
        (vec!["tpch", "--workers", "0"], "--workers"),
        (vec!["tpch", "--threads", "0"], "--threads"),
        (vec!["tpch", "--iterations", "0"], "--iterations"),
        (vec!["tpch", "--design", "XXXX/YY"], "MESQ/SR"),
        (vec!["tpch", "--skew", "some"], "use off or auto"),
        (vec!["tpch", "--endpoints", "0"], "--endpoints"),
        (vec!["tpch", "--endpoints", "3"], "from 1 to 2"),
        (
            vec!["tpch", "--design", "SESQ/SR", "--endpoints", "2"],
            "from 1 to 1",
        ),
        (
            multiplexed("MEMQ/WR:mq"),
            "one endpoint for all threads of its node; use SEMQ/WR:mq, or --exchange endpoint",
        ),
        (
            multiplexed("SESQ/SR"),
            "a reliable connection to each other node; use SEMQ/SR, or --exchange endpoint",
        ),
        (vec!["tpch", "--buffers", "fixed:1"], "adaptive"),
        (vec!["tpch", "--buffers", "many"], "adaptive"),
        (vec!["tpch", "--fabric", "pigeon"], "pigeon"),
        (vec!["tpch", "--compare", "pigeon"], "grpc"),
        (vec!["tpch", "--queries", "23"], "1 to 22"),
        (vec!["tpch", "--queries", "5-3"], "ends before"),
        (vec!["tpch", "--streams", "0"], "1..=256"),
        (vec!["tpch", "--seconds", "5"], "--streams"),
        (
            vec!["tpch", "--streams", "2", "--seconds", "-1"],
            "number of seconds",
        ),
        (
            vec!["tpch", "--streams", "2", "--iterations", "3"],
            "cannot be used with",
        ),
        (
            vec!["tpch", "--streams", "2", "--compare", "grpc"],
            "cannot be used with",
        ),
        (vec!["tpch", "--registered-memory", "0"], "64MiB"),
        (vec!["tpch", "--memory-limit", "some"], "64MiB"),
        (vec!["sql", "--table", "t", "-c", "SELECT 1"], "NAME=PATH"),
        (
            vec![
                "sql", "--table", "t=a.csv", "--table", "T=b.csv", "-c", "SELECT 1",
            ],
            "table T is given twice: as a.csv and as b.csv",
        ),
        (
            vec![
                "sql", "--format", "csv", "--format", "json", "-c", "SELECT 1",
            ],
            "multiple times",
        ),
        (
            vec!["sql", "--cluster", "h:1", "-c", "SELECT 1"],
            "--token-file",
        ),
        (
            vec![
                "sql",
                "--cluster",
                "h",
                "--token-file",
                "t",
                "-c",
                "SELECT 1",
            ],
            "HOST:PORT",
        ),
        (
            vec!["sql", "-c", "SELECT 1", "-f", "x.sql"],
            "cannot be used with",
        ),
        (vec!["sql", "-c", "SELECT 1", "--format", "xml"], "json"),
        (vec!["worker", "--listen", "127.0.0.1:0"], "--token-file"),
        (vec!["worker", "--listen", "nowhere"], "HOST:PORT"),
        (vec!["dance"], "dance"),
    ] {
        fails(&roundel, &arguments, 2, told);
    }
}

#[test]
fn bad_sql_and_bad_tables_are_told_in_one_line() {
    let roundel = program();
    let file = |name: &str, bytes: &[u8]| {
        let path = roundel.temp().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let corrupt = format!(
        "t={}",
        file("corrupt.parquet", b"PAR1 this is no footer PAR1")
    );
    let empty = format!("t={}", file("empty.parquet", b""));
    let open_string = file("open.sql", b"SELECT 'open");
    for (arguments, told) in [
        (vec!["-c", "SELECT * FROM nowhere"], "nowhere"),
        (vec!["-c", "SELECT nothing"], "nothing"),
        (vec!["-c", "SELEC 1"], "SELEC"),
        (vec!["-c", "SELECT 1; SELECT 1 +"], "EOF"),
        (vec!["-f", &open_string], "bad SQL"),
        (vec!["-f", "/nowhere/x.sql"], "/nowhere/x.sql"),
        (
            vec!["--table", "t=/nowhere/x.parquet", "-c", "SELECT * FROM t"],
            "/nowhere/x.parquet",
        ),
        (
            vec!["--table", &corrupt, "-c", "SELECT * FROM t"],
            "corrupt.parquet",
        ),
        (
            vec!["--table", &empty, "-c", "SELECT * FROM t"],
            "empty.parquet",
        ),
    ] {
        let start = [
            "sql",
            "--workers",
            "1",
            "--fabric",
            "shm",
            "--format",
            "csv",
        ];
        let arguments: Vec<&str> = start.into_iter().chain(arguments).collect();
        let output = roundel.run(&arguments);
        let said = stderr(&output);
        assert!(
            matches!(output.status.code(), Some(1 | 2)),
            "{arguments:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(
            said.starts_with("error: ") && said.contains(told),
            "{arguments:?}: {said}"
        );
        roundel.assert_nothing_left();
    }
}

#[test]
fn a_directory_of_other_files_is_not_filled() {
    let roundel = program();
    let directory = roundel.temp().join("tables");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("diary.txt"), "dear diary").unwrap();
    for transport in TRANSPORTS {
        let mut arguments = vec!["tpch", "--scale", "0.01", "--queries", "6", "--tables"];
        arguments.push(directory.to_str().unwrap());
        arguments.extend(transport);
        let output = roundel.run(&arguments);
        assert!(
            matches!(output.status.code(), Some(1 | 2)),
            "{}",
            stderr(&output)
        );
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    roundel.assert_nothing_left();
}

#[test]
fn a_worker_says_when_its_port_is_taken_or_its_token_is_none() {
    let roundel = program();
    let token = roundel.temp().join("token");
    write_token(&token, 'a');
    let token = token.to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let worker = [
        "worker",
        "--fabric",
        "shm",
        "--listen",
        &address,
        "--token-file",
    ];
    fails(&roundel, &[&worker[..], &[token]].concat(), 1, &address);
    fails(
        &roundel,
        &[&worker[..], &["/nowhere/token"]].concat(),
        1,
        "/nowhere/token",
    );
    let none = roundel.temp().join("none");
    write_token(&none, 'x');
    fails(
        &roundel,
        &[&worker[..], &[none.to_str().unwrap()]].concat(),
        2,
        "hexadecimal",
    );
}

#[test]
fn a_cluster_refuses_another_token_and_says_when_nobody_is_there() {
    let roundel = program();
    let cluster = HandCluster::start(&roundel, 1, "shm");
    let other = roundel.temp().join("other");
    write_token(&other, 'b');
    let sql = |address: &str, token: &str, told: &str| {
        let join = [
            "sql",
            "--fabric",
            "shm",
            "--cluster",
            address,
            "--token-file",
            token,
        ];
        let output = roundel.run(&[&join[..], &["-c", "SELECT 1"]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    };
    sql(&cluster.addresses(), other.to_str().unwrap(), "token");
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    sql(&free, cluster.token_file(), &free);
}
