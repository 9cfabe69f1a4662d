//! SET, RESET and SHOW with real worker processes: what is accepted holds on every worker, and what cannot is refused.

use crate::common::{Program, csv_files, program, sql_arguments, stderr, stdout};

/// What carries the rows.
const FABRICS: [&str; 3] = ["shm", "tcp", "grpc"];

/// A directory of `files` CSV files of a few rows each, `k,g,s`: every worker reads some.
fn table(roundel: &Program, files: usize) -> String {
    let row = |k: usize| format!("{k},{},2024-01-01T00:00:{:02}\n", k % 7, k % 60);
    let files = (0..files).map(|file| (file * 30..(file + 1) * 30).map(row).collect());
    csv_files(roundel, "t", "k,g,s", files)
}

struct Told {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(roundel: &Program, fabric: &str, table: &str, statements: &[&str]) -> Told {
    let spread = "SET distributed.file_scan_config_bytes_per_partition = 1";
    let flags = format!("--workers 3 --fabric {fabric} --format csv");
    let statements = [&[spread][..], statements].concat();
    let output = roundel.run(&sql_arguments(&flags, &[table], &statements));
    Told {
        code: output.status.code(),
        out: stdout(&output),
        err: stderr(&output),
    }
}

fn rows(roundel: &Program, fabric: &str, table: &str, statements: &[&str]) -> String {
    let told = run(roundel, fabric, table, statements);
    assert_eq!(told.code, Some(0), "{fabric} {statements:?}: {}", told.err);
    told.out
}

#[test]
fn a_time_zone_holds_on_every_worker() {
    let roundel = program();
    let table = table(&roundel, 6);
    let query = "SELECT g, min(to_timestamp(s || '')) AS first FROM t WHERE k < 60
        GROUP BY g ORDER BY g LIMIT 2";
    for fabric in FABRICS {
        if fabric != "grpc" {
            // A plan that is not distributed would prove nothing.
            let plan = rows(&roundel, fabric, &table, &[&format!("EXPLAIN {query}")]);
            assert!(plan.contains("stage 2: "), "{fabric}: {plan}");
        }
        let utc = rows(&roundel, fabric, &table, &[query]);
        assert_eq!(
            utc,
            "g,first\n0,2024-01-01T00:00:00\n1,2024-01-01T00:00:01\n"
        );
        let zone = "SET datafusion.execution.time_zone = '+08:00'";
        let there = rows(&roundel, fabric, &table, &[zone, query]);
        let expected = "g,first\n0,2024-01-01T00:00:00+08:00\n1,2024-01-01T00:00:01+08:00\n";
        assert_eq!(there, expected, "{fabric}");
        let back = rows(
            &roundel,
            fabric,
            &table,
            &[zone, "RESET datafusion.execution.time_zone", query],
        );
        assert_eq!(back, utc, "{fabric}");
    }
}

#[test]
fn what_could_not_hold_is_refused_at_once() {
    let roundel = program();
    let table = table(&roundel, 2);
    for (set, says) in [
        (
            "SET roundel.join = 'bogus'",
            "auto, cyclo, repartition or broadcast",
        ),
        ("SET roundel.skew = 'bogus'", "auto or off"),
        ("SET roundel.spin = 'bogus'", "smaller or larger"),
        ("SET roundel.ring_elements = 0", "2 to 1024"),
        ("SET roundel.ring_element_bytes = 1", "4096 to"),
        ("SET roundel.pin_seconds = 1000000", "0 to 86400"),
        (
            "SET roundel.pin_seconds = 'long'",
            "roundel.pin_seconds cannot be \"long\"",
        ),
        ("SET roundel.fabric = 'tcp'", "--fabric"),
        (
            "SET roundel.stages = '1'",
            "there is no setting roundel.stages",
        ),
        ("SET roundel.bogus = 1", "there is no setting roundel.bogus"),
        (
            "SET distributed.partial_reduce = true",
            "distributed.partial_reduce cannot be true",
        ),
        (
            "SET distributed.dynamic_task_count = true",
            "distributed.dynamic_task_count cannot be true",
        ),
        (
            "SET distributed.children_isolator_unions = true",
            "distributed.children_isolator_unions cannot be true",
        ),
        ("SET distributed.compression = 'gzip'", "none, lz4 or zstd"),
        (
            "SET datafusion.runtime.memory_limit = '1G'",
            "--memory-limit",
        ),
        ("RESET datafusion.runtime.memory_limit", "--memory-limit"),
        ("SET datafusion.bogus = 1", "bogus"),
        (
            "SET datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery = true",
            "cannot be sent to workers",
        ),
        (
            "SET distributed.max_tasks_per_stage = 100000",
            "use 0 to 16",
        ),
        (
            "SET distributed.worker_connection_buffer_budget_bytes = 0",
            "use 1 or more",
        ),
    ] {
        let told = run(&roundel, "shm", &table, &[set, "SELECT 1"]);
        assert_eq!(told.code, Some(1), "{set}: {}", told.out);
        assert_eq!(
            (told.out.as_str(), told.err.lines().count()),
            ("", 1),
            "{set}: {}",
            told.err
        );
        assert!(told.err.contains(says), "{set}: {}", told.err);
    }
}

#[test]
fn show_knows_all_settings_and_reset_goes_back() {
    let roundel = program();
    let table = table(&roundel, 2);
    let shown = rows(
        &roundel,
        "tcp",
        &table,
        &[
            "SHOW roundel.join",
            "SET roundel.join = 'cyclo'",
            "SHOW roundel.join",
            "RESET roundel.join",
            "SHOW roundel.join",
            "SHOW roundel.fabric",
            "SHOW distributed.compression",
            "SET datafusion.execution.target_partitions = 7",
            "RESET datafusion.execution.target_partitions",
            "SHOW datafusion.execution.target_partitions",
            "SELECT count(*) AS n FROM information_schema.df_settings WHERE name IN
                ('roundel.skew', 'roundel.stages', 'distributed.max_tasks_per_stage', 'stages')",
        ],
    );
    let values: Vec<&str> = shown
        .split("\n\n")
        .map(|result| result.trim_end())
        .collect();
    assert_eq!(
        values,
        [
            "name,value\nroundel.join,auto",
            "name,value\nroundel.join,cyclo",
            "name,value\nroundel.join,auto",
            "name,value\nroundel.fabric,tcp",
            "name,value\ndistributed.compression,none",
            "name,value\ndatafusion.execution.target_partitions,2",
            "n\n2",
        ]
    );
    let all = rows(&roundel, "tcp", &table, &["SHOW ALL"]);
    for name in [
        "roundel.skew,auto",
        "distributed.",
        "datafusion.execution.batch_size,8192",
    ] {
        assert!(
            all.lines().any(|line| line.starts_with(name)),
            "{name}: {all}"
        );
    }
}

#[test]
fn queries_are_right_with_whatever_is_accepted() {
    let roundel = program();
    let table = table(&roundel, 6);
    let queries = [
        "SELECT g, count(*) AS n, sum(k) AS k FROM t GROUP BY g ORDER BY g",
        "SELECT count(*) AS n, sum(a.k) AS k FROM t a JOIN t b ON a.k = b.k",
        "SELECT g, max(r) AS r FROM (SELECT g, row_number() OVER (PARTITION BY g ORDER BY k) AS r FROM t) GROUP BY g ORDER BY g",
        "SELECT count(DISTINCT g) AS n FROM t WHERE k < (SELECT max(k) FROM t)",
        "SELECT sum(n) AS n FROM (SELECT count(*) AS n FROM t UNION ALL SELECT k AS n FROM t)",
    ];
    for fabric in ["shm", "grpc"] {
        let right = rows(&roundel, fabric, &table, &queries);
        assert!(right.starts_with("g,n,k\n0,26,2275\n"), "{right}");
        assert!(right.contains("n,k\n180,16110\n"), "{right}");
        for set in [
            "SET datafusion.execution.batch_size = 3",
            "SET datafusion.execution.target_partitions = 5",
            "SET datafusion.optimizer.prefer_hash_join = false",
            "SET distributed.broadcast_joins = false",
            "SET distributed.max_tasks_per_stage = 2",
            "SET distributed.compression = 'zstd'",
            "SET distributed.shuffle_batch_size = 4",
            "SET distributed.worker_connection_buffer_budget_bytes = 1",
            "SET datafusion.execution.target_partitions = 1",
            "SET distributed.max_tasks_per_stage = 8",
            "SET distributed.collect_metrics = false",
            "SET datafusion.execution.parquet.created_by = 'Käse; & =\n'",
            "SET roundel.join = 'repartition'",
            "SET roundel.join = 'broadcast'",
            "SET roundel.skew = 'off'",
        ] {
            let all: Vec<&str> = [set].into_iter().chain(queries).collect();
            assert_eq!(
                rows(&roundel, fabric, &table, &all),
                right,
                "{fabric}: {set}"
            );
        }
    }
}
