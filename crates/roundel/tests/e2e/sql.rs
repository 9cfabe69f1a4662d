//! `roundel sql` with real worker processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{
    HandCluster, HandWorker, Program, csv, finish, program, signal, stderr, stdout, until_busy,
    wait,
};

fn sql(roundel: &Program, arguments: &[&str]) -> String {
    let output = roundel.run(&[&["sql", "--fabric", "shm"], arguments].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    stdout(&output)
}

/// A CSV file of `rows` rows `k,v`, where `k` counts and `v` is `k % 10`.
fn table(roundel: &Program, rows: usize) -> String {
    let rows = (0..rows).map(|k| format!("{k},{}\n", k % 10));
    csv(roundel, "t", "k,v", rows)
}

const SHUFFLES: &str = "SELECT a.v, count(*) AS n FROM t a JOIN t b ON a.k = b.k GROUP BY a.v";

#[test]
fn statements_come_from_the_command_line_a_file_or_standard_input() {
    let roundel = program();
    let table = table(&roundel, 1000);
    let query = "SELECT v, count(*) AS n FROM t WHERE v < 2 GROUP BY v ORDER BY v";
    let csv = ["--table", &table, "--format", "csv"];
    let want = "v,n\n0,100\n1,100\n";
    assert_eq!(sql(&roundel, &[&csv[..], &["-c", query]].concat()), want);
    let both = [want, want].join("\n");
    assert_eq!(
        sql(&roundel, &[&csv[..], &["-c", query, "-c", query]].concat()),
        both
    );

    let file = roundel.temp().join("q.sql");
    fs::write(&file, format!("-- both; of them\n{query};\n{query};")).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(sql(&roundel, &[&csv[..], &["-f", file]].concat()), both);

    let mut command = roundel.command([&["sql", "--fabric", "shm"], &csv[..]].concat());
    let output = command
        .stdin(fs::File::open(file).unwrap())
        .output()
        .unwrap();
    assert_eq!(stdout(&output), both, "{}", stderr(&output));
    roundel.assert_nothing_left();
}

#[test]
fn long_expressions_are_right_or_refused_and_end_no_process() {
    let roundel = program();
    let table = table(&roundel, 20_000);
    let sum = |terms: usize| format!("SELECT sum({}) AS s FROM t", vec!["v"; terms].join("+"));
    let write = |name: &str, query: String| {
        let path = roundel.temp().join(name);
        fs::write(&path, query).unwrap();
        path.display().to_string()
    };
    // More than a stack of the usual size takes.
    let long = write("long.sql", sum(2600));
    let csv = ["--table", &table, "--format", "csv"];
    let got = sql(&roundel, &[&csv[..], &["-f", &long]].concat());
    assert_eq!(got, format!("s\n{}\n", 2600 * 90_000));
    let conditions: Vec<String> = (0..8000)
        .map(|k| format!("(k = {k} AND v <> {k})"))
        .collect();
    let query = format!("SELECT count(*) FROM t WHERE {}", conditions.join(" OR "));
    let too_long = write("too_long.sql", query);
    let refused = roundel.run(&[&["sql"], &csv[..], &["-f", &too_long]].concat());
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("more than 5000 operators"), "{said}");
    roundel.assert_nothing_left();
}

#[test]
fn results_have_three_forms() {
    let roundel = program();
    let table = table(&roundel, 100);
    let query = [
        "--workers",
        "1",
        "--table",
        &table,
        "-c",
        "SELECT k, v FROM t ORDER BY k LIMIT 50",
    ];
    let json = sql(&roundel, &[&query[..], &["--format", "json"]].concat());
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 50);
    assert_eq!(rows[11], serde_json::json!({"k": 11, "v": 1}));

    let text = sql(&roundel, &query);
    assert!(
        text.contains("| k  | v |") && text.contains("... and 10 more rows"),
        "{text}"
    );
    let text = sql(&roundel, &[&query[..], &["--max-rows", "all"]].concat());
    assert!(
        text.contains("| 49 | 9 |") && !text.contains("more rows"),
        "{text}"
    );
    assert!(sql(&roundel, &[&query[..4], &["-c", "SHOW TABLES"]].concat()).contains("| t "));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let roundel = program();
    let table = table(&roundel, 1000);
    // A billion rows, if anyone read them.
    let many = "SELECT a.k, b.k AS l, c.k AS m FROM t a CROSS JOIN t b CROSS JOIN t c";
    let csv = [
        "sql", "--fabric", "shm", "--table", &table, "--format", "csv", "-c", many,
    ];
    let mut child = roundel.spawn(&csv);
    let mut header = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut header)
        .unwrap();
    assert_eq!(header, "k,l,m\n");
    assert_eq!(wait(&mut child).code(), Some(0));
    roundel.assert_nothing_left();
}

/// A join of any predicate runs again without a worker that is lost.
#[test]
fn a_query_that_ran_on_fewer_workers_says_so() {
    let roundel = program();
    let table = table(&roundel, 150);
    let mut cluster = HandCluster::start(&roundel, 2, "shm");
    let statements = [
        "SET distributed.file_scan_config_bytes_per_partition = 1",
        "SELECT sum(a.k + b.k + c.k + d.k) AS n
            FROM t a CROSS JOIN t b CROSS JOIN t c CROSS JOIN t d",
    ];
    let child = cluster.sql(&roundel, &[table], &statements.map(str::to_owned));
    let stopped = &mut cluster.workers[0];
    until_busy(stopped.child.id());
    signal(stopped.child.id(), Signal::TERM);
    wait(&mut stopped.child);
    let output = finish(child);
    let (out, said) = (stdout(&output), stderr(&output));
    assert_eq!(out, "n\n150862500000\n", "{said}");
    let notes: Vec<&str> = said.lines().filter(|l| l.starts_with("note: ")).collect();
    assert_eq!(notes.len(), 1, "{said}");
    let told = "note: the query ran on 1 of 2 workers: ";
    assert!(
        notes[0].starts_with(told) && notes[0].contains(&stopped.address),
        "{said}"
    );
}

#[test]
fn an_error_of_a_worker_names_it() {
    let roundel = program();
    let table = table(&roundel, 20_000);
    for fabric in ["shm", "grpc"] {
        let cluster = HandCluster::start(&roundel, 2, fabric);
        let failing = "SELECT v, sum(1 / (k - 19000)) FROM t GROUP BY v".to_owned();
        let output = finish(cluster.sql(&roundel, std::slice::from_ref(&table), &[failing]));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{fabric}: {said}");
        assert_eq!(
            said.matches("worker http://").count(),
            1,
            "{fabric}: {said}"
        );
        let named = |w: &HandWorker| said.contains(&format!("worker http://{}/: ", w.address));
        assert!(cluster.workers.iter().any(named), "{fabric}: {said}");
        assert!(said.contains("Divide by zero"), "{fabric}: {said}");
    }
}

#[test]
fn a_cluster_that_was_started_by_hand_serves_several_clients() {
    let roundel = program();
    let tables = [table(&roundel, 20_000)];
    let cluster = HandCluster::start(&roundel, 2, "shm");
    let query = ["SELECT v, sum(k) AS s FROM t GROUP BY v ORDER BY v".to_owned()];
    let clients = [(); 4].map(|()| cluster.sql(&roundel, &tables, &query));
    for client in clients {
        let output = finish(client);
        assert!(output.status.success());
        assert!(
            stdout(&output).starts_with("v,s\n0,19990000\n1,19992000\n"),
            "{}",
            stdout(&output)
        );
    }
}

#[test]
fn a_worker_in_an_endless_join_answers_others_and_leaves_it() {
    let roundel = program();
    let tables = [table(&roundel, 100_000)];
    let mut cluster = HandCluster::start(&roundel, 1, "shm");
    // By a key that a tenth of the rows have: 10^13 rows, which are only counted.
    let endless = "SELECT count(*) FROM t a JOIN t b ON a.v = b.v JOIN t c ON a.v = c.v";
    let mut first = cluster.sql(&roundel, &tables, &[endless.into()]);
    std::thread::sleep(Duration::from_secs(2));
    let count = || {
        let counted = cluster.sql(&roundel, &tables, &["SELECT count(*) AS n FROM t".into()]);
        let output = finish(counted);
        assert_eq!(stdout(&output), "n\n100000\n", "{}", stderr(&output));
    };
    count();
    signal(first.id(), Signal::INT);
    assert_eq!(wait(&mut first).code(), Some(130));
    count();
    let worker = &mut cluster.workers[0].child;
    signal(worker.id(), Signal::TERM);
    wait(worker);
    roundel.assert_nothing_left();
}

#[test]
fn explain_tells_why_each_exchange_runs_as_it_does() {
    let roundel = program();
    let table = table(&roundel, 50_000);
    for explain in ["EXPLAIN", "EXPLAIN ANALYZE"] {
        let statement = format!("{explain} {SHUFFLES}");
        let flags = ["--buffers", "fixed:4", "--threads", "2"];
        let plan = sql(
            &roundel,
            &[&flags[..], &["--table", &table, "-c", &statement]].concat(),
        );
        assert!(plan.contains("Exchanges"), "{plan}");
        let stages: Vec<&str> = plan
            .lines()
            .filter(|line| line.contains("buffers fixed:4: "))
            .collect();
        assert!(stages.len() >= 2, "{plan}");
        assert!(
            stages.iter().all(|stage| stage.contains("per node")),
            "{plan}"
        );
    }
    let plan = sql(
        &roundel,
        &[
            "--design",
            "MESQ/SR",
            "--table",
            &table,
            "-c",
            &format!("EXPLAIN {SHUFFLES}"),
        ],
    );
    assert!(
        plan.contains("MESQ/SR, endpoints 2, buffers adaptive: asked for"),
        "{plan}"
    );
    for (design, told) in [
        ("SEMQ/RD", "multiplexer, SEMQ/RD: asked for"),
        (
            "auto",
            "multiplexer, SEMQ/SR: what multiplexers do by default",
        ),
    ] {
        let how = ["--exchange", "multiplexer", "--design", design];
        let statement = format!("EXPLAIN ANALYZE {SHUFFLES}");
        let table = ["--table", &table, "-c", &statement];
        let plan = sql(&roundel, &[how, table].concat());
        let ran = design.replace("auto", "SEMQ/SR") + "=";
        assert!(plan.contains(told) && plan.contains(&ran), "{plan}");
    }
}

#[test]
fn explain_analyze_tells_of_each_exchange() {
    let roundel = program();
    let table = table(&roundel, 50_000);
    for design in ["MESQ/SR", "SEMQ/SR"] {
        let explain = format!("EXPLAIN ANALYZE {SHUFFLES}");
        let plan = sql(
            &roundel,
            &["--design", design, "--table", &table, "-c", &explain],
        );
        let exchanges: Vec<&str> = plan
            .lines()
            .filter(|line| line.contains("=> Network"))
            .collect();
        assert!(exchanges.len() >= 2, "{plan}");
        let first = plan.find("of which were spent").expect(&plan);
        assert!(plan.find("Network") > Some(first), "{plan}");
        for exchange in exchanges {
            for measure in [
                &format!("{design}="),
                "messages=",
                "bytes=",
                "blocked_for_credit=",
                "sender_computing=",
                "reader_waiting_for_rows=",
                "registered_bytes=",
                "max_buffered_bytes=",
            ] {
                let value = exchange.split(measure).nth(1);
                let value = value.unwrap_or_else(|| panic!("no {measure} in {exchange}"));
                let nothing = value.starts_with("0,") || value.starts_with("0]");
                assert!(!nothing, "{measure}0 in {exchange}");
            }
        }
    }
    roundel.assert_nothing_left();
}

#[test]
fn memory_that_runs_out_is_told_in_one_line() {
    let roundel = program();
    let table = table(&roundel, 50_000);
    for fabric in ["shm", "grpc"] {
        let run = ["sql", "--fabric", fabric, "--table", &table, "-c", SHUFFLES];
        let output = roundel.run(&[&run[..], &["--memory-limit", "200KB"]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("error: out of memory: "), "{said}");
        assert!(said.contains("--memory-limit"), "{said}");
    }
    roundel.assert_nothing_left();
}
