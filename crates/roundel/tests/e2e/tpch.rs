//! `roundel tpch` with real worker processes.

use crate::common::{Program, TRANSPORTS, program, stderr, stdout};
use serde_json::{Value, json};

fn tpch(roundel: &Program, arguments: &[&str]) -> Value {
    let output = roundel.run(&[&["tpch", "--scale", "0.01"], arguments].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    roundel.assert_nothing_left();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn assert_all_verified(report: &Value, count: usize) {
    let queries = report["queries"].as_array().unwrap();
    assert_eq!(queries.len(), count);
    let mut total = 0.0;
    for query in queries {
        assert_eq!(query["verified"], true, "{query}");
        total += query["seconds"].as_f64().unwrap();
    }
    assert!((report["total_seconds"].as_f64().unwrap() - total).abs() < 1e-9);
}

#[test]
fn every_query_is_right_on_memory_tables() {
    let roundel = program();
    for transport in TRANSPORTS {
        let report = tpch(&roundel, &[transport, &["--json"]].concat());
        assert_all_verified(&report, 22);
        assert!(report["ratio"].is_null() && report["baseline_total_seconds"].is_null());
        assert_eq!(report["settings"]["workers"], 2);
    }
}

/// Whatever joins are done by: with a ring wherever there can be one, over tables that the workers hold and over files.
#[test]
fn every_query_is_right_however_joins_are_done() {
    let roundel = program();
    let tables = roundel.temp().join("tpch");
    let files = tables.to_str().unwrap();
    for join in ["cyclo", "repartition", "broadcast"] {
        for tables in [["--tables", "memory"], ["--tables", files]] {
            let arguments = ["--workers", "3", "--join", join, "--json"];
            let report = tpch(&roundel, &[&tables[..], &arguments].concat());
            assert_all_verified(&report, 22);
            assert_eq!(report["settings"]["join"], join);
        }
    }
}

#[test]
fn skew_is_handled_unless_it_is_off() {
    let roundel = program();
    let flags = ["--join", "repartition", "--queries", "3,10", "--json"];
    for exchange in ["endpoint", "multiplexer"] {
        for (skew, told) in [(&[][..], "auto"), (&["--skew", "off"], "off")] {
            let flags = [&flags[..], skew, &["--exchange", exchange]].concat();
            let report = tpch(&roundel, &flags);
            assert_all_verified(&report, 2);
            assert_eq!(report["settings"]["skew"], told);
        }
    }
}

/// Liu, Yin, Blanas 2019, Table 1: queue pairs per node; and all rows go by the verb of the name,
/// besides which WRITEs say what is free or full.
#[test]
fn every_design_uses_the_queue_pairs_and_the_verb_of_its_name() {
    let roundel = program();
    let sent = ["send", "receive"].as_slice();
    let read = ["read", "write"].as_slice();
    for (design, queue_pairs, opcodes) in [
        ("MESQ/SR", 2, sent),
        ("SESQ/SR", 1, sent),
        ("MEMQ/SR", 3 * 2, sent),
        ("SEMQ/SR", 3, sent),
        ("MEMQ/RD", 3 * 2, read),
        ("SEMQ/RD", 3, read),
        (
            "MEMQ/WR",
            3 * 2,
            &["write_with_immediate", "write", "receive"],
        ),
        (
            "SEMQ/WR:cq",
            3,
            &["write_with_immediate", "write", "receive"],
        ),
        ("MEMQ/WR:mq", 3 * 2, &["write"]),
        ("SEMQ/WR:buffers", 3, &["write"]),
    ] {
        // Rings, and measuring them, would take connections of their own.
        let arguments = ["--workers", "3", "--threads", "2", "--join", "repartition"];
        let report = tpch(
            &roundel,
            &[&arguments[..], &["--design", design, "--json"]].concat(),
        );
        assert_all_verified(&report, 22);
        let fabric = &report["fabric"];
        assert_eq!(fabric["queue_pairs"], queue_pairs, "{design}: {fabric}");
        let bytes = |opcode: &str| fabric["bytes"][opcode].as_u64().unwrap();
        for opcode in fabric["bytes"].as_object().unwrap().keys() {
            let carries = opcodes.contains(&opcode.as_str());
            assert_eq!(bytes(opcode) > 0, carries, "{design}: {fabric}");
        }
        // What the other WRITEs say is an entry of 32 bytes for each message.
        for (rows, opcode) in [("read", "write"), ("write_with_immediate", "write")] {
            let about = bytes(opcode);
            assert!(
                bytes(rows) == 0 || about * 4 < bytes(rows),
                "{design}: {fabric}"
            );
        }
    }
}

/// One connection to each other process, whatever the number of operators, threads and queries: two other workers and
/// the coordinator.
#[test]
fn multiplexers_have_one_connection_for_each_pair_of_processes() {
    let roundel = program();
    for transport in ["--fabric=shm", "--fabric=tcp"] {
        let arguments = ["--workers", "3", "--exchange", "multiplexer"];
        // Rings, and measuring them, would take connections of their own.
        let joins = ["--join", "repartition", "--json", transport];
        let report = tpch(&roundel, &[arguments, joins].concat());
        assert_all_verified(&report, 22);
        assert_eq!(report["settings"]["exchange"], "multiplexer");
        let fabric = &report["fabric"];
        assert_eq!(fabric["device_queue_pairs"], 3, "{transport}: {fabric}");
    }
}

/// All rows of all operators go by the verb of the design, over the same connections.
#[test]
fn multiplexers_use_the_verb_of_their_design() {
    let roundel = program();
    for (design, opcodes) in [
        ("SEMQ/SR", &["send", "receive"][..]),
        ("SEMQ/WR", &["write_with_immediate", "receive", "write"]),
        ("SEMQ/WR:mq", &["write"]),
        ("SEMQ/WR:buffers", &["write"]),
        ("SEMQ/RD", &["read", "write"]),
    ] {
        let arguments = ["--workers", "3", "--threads", "2", "--json"];
        let how = ["--exchange", "multiplexer", "--design", design];
        // Rings, and measuring them, would take connections of their own.
        let joins = ["--join", "repartition"];
        let report = tpch(&roundel, &[&arguments[..], &how, &joins].concat());
        assert_all_verified(&report, 22);
        assert_eq!(report["settings"]["design"], design);
        let fabric = &report["fabric"];
        assert_eq!(fabric["device_queue_pairs"], 3, "{design}: {fabric}");
        let bytes = |opcode: &str| fabric["bytes"][opcode].as_u64().unwrap();
        for opcode in fabric["bytes"].as_object().unwrap().keys() {
            let carries = opcodes.contains(&opcode.as_str());
            assert_eq!(bytes(opcode) > 0, carries, "{design}: {fabric}");
        }
        // Besides rows, which the first verb carries, a few words of queues.
        for words in &opcodes[1..] {
            let few = *words == "receive" || bytes(words) < bytes(opcodes[0]) / 10;
            assert!(few, "{design}: {fabric}");
        }
    }
}

/// Many queries of one coordinator at once: all right, over one connection for each pair of processes, within the quota.
#[test]
fn streams_share_the_connections_of_multiplexers() {
    let roundel = program();
    // Rings, and measuring them, would take connections of their own.
    let joins = ["--join", "repartition"];
    let flags = ["--workers", "3", "--registered-memory", "32MiB"];
    let streams = ["--exchange", "multiplexer", "--streams", "4"];
    let report = tpch(
        &roundel,
        &[&flags[..], &streams, &joins, &["--json"]].concat(),
    );
    let queries = report["queries"].as_array().unwrap();
    assert_eq!(queries.len(), 22);
    for query in queries {
        assert_eq!(
            (&query["verified"], &query["runs"]),
            (&json!(true), &json!(4))
        );
        assert_eq!(query["runs_seconds"].as_array().unwrap().len(), 4);
    }
    assert_eq!(report["queries_done"], 4 * 22);
    let (fabric, settings) = (&report["fabric"], &report["settings"]);
    assert_eq!(
        (&report["processes"], &settings["streams"]),
        (&json!(4), &json!(4))
    );
    assert_eq!(fabric["device_queue_pairs"], 3, "{fabric}");
    let bytes = |of: &Value, what: &str| of[what].as_u64().unwrap();
    let most = bytes(fabric, "registered_bytes_max");
    assert!(
        most > 0 && most <= bytes(settings, "registered_memory_bytes"),
        "{fabric}"
    );
    let sum = bytes(fabric, "registered_bytes_sum");
    assert!((most..=4 * most).contains(&sum), "{fabric}");
}

#[test]
fn streams_end_with_the_query_they_are_in_when_the_time_is_over() {
    let roundel = program();
    let streams = [
        "--streams",
        "3",
        "--seconds",
        "0.001",
        "--queries",
        "1,6,14",
    ];
    let report = tpch(&roundel, &[&streams[..], &["--json"]].concat());
    assert_eq!(report["queries_done"], 3);
    for query in report["queries"].as_array().unwrap() {
        assert_eq!(query["runs"], 1, "each stream begins with another: {query}");
    }
    // For people.
    let output = roundel.run(&[&["tpch", "--scale", "0.01"], &streams[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stdout(&output);
    assert!(
        told.contains("3 queries of 3 streams in ") && told.contains("3 of 3 verified"),
        "{told}"
    );
    assert!(
        told.contains("3 processes with ") && output.stderr.is_empty(),
        "{told}"
    );
    roundel.assert_nothing_left();
}

#[test]
fn every_setting_of_an_exchange_runs() {
    let roundel = program();
    let common = ["--workers", "3", "--threads", "2", "--json"];
    for (setting, queue_pairs) in [
        (&["--design", "MESQ/SR", "--endpoints", "1"][..], Some(1)),
        (&["--design", "MEMQ/SR", "--endpoints", "1"], Some(3)),
        (&["--design", "MESQ/SR", "--buffers", "fixed:2"], Some(2)),
        (&["--design", "MEMQ/WR", "--buffers", "bdp"], Some(6)),
        // Every unit of 3 processes with both units of this one.
        (&["--exchange", "classic"], Some(3 * 2 * 2)),
        (&["--exchange", "classic", "--design", "MEMQ/WR"], Some(12)),
        (&["--exchange", "multiplexer", "--schedule", "on"], None),
        (&[], None),
        (&["--buffers", "bdp"], None),
    ] {
        let report = tpch(&roundel, &[setting, &common].concat());
        assert_all_verified(&report, 22);
        let used = &report["fabric"]["queue_pairs"];
        assert!(
            queue_pairs.is_none_or(|count| used == count),
            "{setting:?}: {used}"
        );
    }
}

#[test]
fn every_query_is_right_on_files_that_are_made_once() {
    let roundel = program();
    let directory = roundel.temp().join("tables");
    let tables = [
        "--tables",
        directory.to_str().unwrap(),
        "--workers",
        "3",
        "--json",
    ];
    let made = || std::fs::metadata(&directory).unwrap().modified().unwrap();
    for (round, transport) in TRANSPORTS.into_iter().chain(TRANSPORTS).enumerate() {
        let before = (round > 0).then(made);
        let report = tpch(&roundel, &[transport, &tables].concat());
        assert_all_verified(&report, 22);
        assert!(before.is_none_or(|before| before == made()));
    }
}

#[test]
fn the_baseline_runs_on_the_same_workers() {
    let roundel = program();
    for transport in TRANSPORTS {
        let compare = [
            "--compare",
            "grpc",
            "--iterations",
            "3",
            "--queries",
            "1,3-5",
            "--json",
        ];
        let report = tpch(&roundel, &[transport, &compare].concat());
        assert_all_verified(&report, 4);
        assert!(report["baseline_total_seconds"].as_f64().unwrap() > 0.0);
        assert!(report["ratio"].as_f64().unwrap() > 0.0);
        for query in report["queries"].as_array().unwrap() {
            assert!(query["baseline_seconds"].as_f64().unwrap() > 0.0, "{query}");
        }
    }
}

#[test]
fn people_get_a_table_and_machines_a_file() {
    let roundel = program();
    let file = roundel.temp().join("report.json");
    let arguments = [
        "tpch",
        "--scale",
        "0.01",
        "--queries",
        "6,14",
        "--workers",
        "1",
    ];
    let arguments = [&arguments[..], TRANSPORTS[0]].concat();
    let output = roundel.run(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output).matches(" verified").count(),
        3,
        "{}",
        stdout(&output)
    );
    assert!(
        stdout(&output).contains("2 of 2 verified"),
        "{}",
        stdout(&output)
    );
    assert!(output.stderr.is_empty(), "{}", stderr(&output));

    let json = ["--no-verify", "--json", file.to_str().unwrap()];
    let output = roundel.run(&[&arguments[..], &json].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout.is_empty() && stderr(&output).contains("not verified"));
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["queries"][1]["verified"], false);
}
