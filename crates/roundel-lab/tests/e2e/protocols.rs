//! `roundel-lab perf protocols` and `roundel-lab advise`, with a real process for each node.

use std::fs;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crate::common::{
    PATIENCE, Program, eventually, fails, finish, is_alive, program, signal, stderr, stdout,
    workers_of,
};
use rustix::process::Signal;
use serde_json::Value;

/// Longest that a node may take to notice that another is gone.
const NOTICE_MAX: Duration = Duration::from_secs(8);
/// Nodes begin to call soon after their threads have started.
const BEGIN_MAX: Duration = Duration::from_millis(200);
const SHORT: [&str; 4] = ["--seconds", "0.05", "--warm-up", "0.02"];

fn measure(lab: &Program, arguments: &[&str]) -> Vec<Value> {
    let output = lab.run(&[&["perf", "protocols", "--json"], arguments, &SHORT].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    lab.assert_nothing_left();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["measurements"].as_array().unwrap().clone()
}

/// Asserts that calls were answered, and that nodes did what the setting says.
fn assert_measured(one: &Value, nodes: usize) {
    assert!(one["calls_per_second"].as_f64().unwrap() > 0.0, "{one}");
    assert!(one["latency"]["p50"].as_f64().unwrap() > 0.0, "{one}");
    let all = one["nodes"].as_array().unwrap();
    assert_eq!(all.len(), nodes, "{one}");
    let sum = |key: &str| -> u64 { all.iter().map(|node| node[key].as_u64().unwrap()).sum() };
    assert_eq!((sum("errors"), sum("wrong")), (0, 0), "{one}");
    assert!(sum("calls") > 0, "{one}");
    // Those of the warm-up were answered, too. Nobody answers a READ.
    let answered = sum("answered");
    match one["setting"]["protocol"].as_str() {
        Some("READ") => assert_eq!(answered, 0, "{one}"),
        _ => assert!(answered >= sum("calls"), "{one}"),
    }
    assert!(
        one["cpu_seconds_per_million"].as_f64().unwrap() > 0.0,
        "{one}"
    );
}

#[test]
fn every_protocol_is_measured_in_every_paradigm() {
    let lab = program();
    for fabric in ["shm", "tcp"] {
        for (paradigm, nodes) in [("M:1", 3), ("1:M", 3), ("M:M", 2)] {
            let arguments = ["--fabric", fabric, "--paradigm", paradigm, "--nodes", "2"];
            let measured = measure(&lab, &arguments);
            assert_eq!(measured.len(), 10, "{fabric} {paradigm}");
            for one in &measured {
                assert_measured(one, nodes);
            }
        }
    }
}

#[test]
fn threads_pending_calls_and_sizes_are_as_asked_for() {
    let lab = program();
    let measured = measure(
        &lab,
        &[
            "--protocol",
            "write/send,SEND/SEND-UD",
            "--threads",
            "2",
            "--pending",
            "1,5",
            "--request",
            "100",
            "--value",
            "1,3KB",
            "--rate",
            "500",
            "--runs",
            "2",
        ],
    );
    assert_eq!(measured.len(), 8);
    for one in &measured {
        assert_measured(one, 2);
        assert_eq!(one["runs"].as_array().unwrap().len(), 2);
        let setting = &one["setting"];
        assert_eq!(setting["request_bytes"], 100);
        assert_eq!(setting["load"]["open"], 500.0);
    }
    let first = &measured[0]["setting"];
    assert_eq!(
        (&first["pending"], &first["response_bytes"]),
        (&1.into(), &1.into())
    );
    // A thread has a queue pair for each of two connections, or one of datagrams for all.
    assert_eq!(measured[0]["queue_pairs"], 2);
}

#[test]
fn simulated_nodes_need_no_processes() {
    let lab = program();
    let output = lab.run(&[
        "perf",
        "protocols",
        "--fabric",
        "sim:fdr",
        "--paradigm",
        "1:M",
        "--nodes",
        "8",
        "--protocol",
        "READ,WRITE/WRITE",
        "--pending",
        "1,16",
        "--plot",
        lab.temp().join("plots").to_str().unwrap(),
        "--json",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["measurements"].as_array().unwrap().len(), 4);
    let plot = std::fs::read_to_string(
        lab.temp()
            .join("plots/1m-pending-nodes8-threads1-value365.svg"),
    );
    let plot = plot.unwrap();
    assert!(
        plot.contains("WRITE/WRITE") && plot.contains("READ"),
        "{plot}"
    );
}

#[test]
fn people_get_a_table_of_protocols() {
    let lab = program();
    let arguments = ["perf", "protocols", "--protocol", "SEND/SEND,READ"];
    let output = lab.run(&[&arguments[..], &SHORT].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let said = stdout(&output);
    let rows = said.lines().filter(|line| line.contains("M:1")).count();
    assert_eq!(rows, 2, "{said}");
    lab.assert_nothing_left();
}

#[test]
fn nodes_of_several_hosts_are_started_by_hand() {
    let lab = program();
    let arguments = [
        "--paradigm",
        "M:1",
        "--nodes",
        "2",
        "--protocol",
        "WRITE/WRITE",
    ];
    let listens = ["perf", "protocols", "--listen", "127.0.0.1:0"];
    let mut first = lab.spawn(&[&listens[..], &arguments, &SHORT].concat());
    let mut line = String::new();
    let mut said = BufReader::new(first.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    let others = ["1", "2"].map(|node| {
        let connects = ["perf", "protocols", "--connect", &address, "--of", "3"];
        lab.spawn(&[&connects[..], &["--node", node]].concat())
    });
    for other in others {
        let other = finish(other);
        assert!(other.status.success(), "{}", stderr(&other));
        assert!(other.stdout.is_empty() && other.stderr.is_empty());
    }
    let status = first.wait().unwrap();
    assert!(status.success());
    lab.assert_nothing_left();
}

/// Waits until a node takes part in a measurement: then it has a thread for that. How much processor time it has used
/// does not tell: its threads stay on one processor, and whenever they find nothing let all others there go first. Beside
/// a build that is a hundredth of the time.
fn until_calling(node: u32) {
    let has_thread = || {
        let threads = fs::read_dir(format!("/proc/{node}/task"));
        let mut threads = threads.into_iter().flatten().flatten();
        threads.any(|thread| {
            let name = fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| name.trim() == "protocol")
        })
    };
    assert!(eventually(PATIENCE, has_thread), "node {node} never began");
    std::thread::sleep(BEGIN_MAX);
}

#[test]
fn a_node_that_is_killed_is_named() {
    let lab = program();
    for protocol in ["SEND/SEND", "WRITE/WRITE", "SEND/SEND-UD", "READ", "TCP"] {
        let arguments = ["perf", "protocols", "--nodes", "2", "--seconds", "600"];
        let first = lab.spawn(&[&arguments[..], &["--protocol", protocol]].concat());
        let nodes = workers_of(first.id(), 2);
        until_calling(nodes[1]);
        signal(nodes[1], Signal::KILL);
        let killed = Instant::now();
        let output = finish(first);
        let (took, said) = (killed.elapsed(), stderr(&output));
        assert!(took < NOTICE_MAX, "{protocol}: it took {took:?}");
        assert_eq!(output.status.code(), Some(1), "{protocol}: {said}");
        assert_eq!(said.lines().count(), 1, "{protocol}: {said}");
        assert!(said.contains("node 2"), "{protocol}: {said}");
        lab.assert_nothing_left();
    }
}

#[test]
fn the_other_nodes_end_with_the_first() {
    let lab = program();
    for (ended_by, code) in [
        (Signal::INT, Some(130)),
        (Signal::TERM, Some(143)),
        (Signal::KILL, None),
    ] {
        let arguments = ["perf", "protocols", "--nodes", "2", "--seconds", "600"];
        let first = lab.spawn(&[&arguments[..], &["--protocol", "WRITE/SEND"]].concat());
        let nodes = workers_of(first.id(), 2);
        until_calling(nodes[0]);
        signal(first.id(), ended_by);
        let output = finish(first);
        assert_eq!(output.status.code(), code, "{ended_by:?}");
        let gone = || nodes.iter().all(|node| !is_alive(*node));
        assert!(eventually(NOTICE_MAX, gone), "{ended_by:?}");
        lab.assert_nothing_left();
    }
}

#[test]
fn what_cannot_be_asked_of_protocols_is_told_in_one_line() {
    let lab = program();
    for (arguments, told) in [
        (vec!["--protocol", "SHOUT"], "SEND/WRITE"),
        (vec!["--paradigm", "1:1"], "M:M"),
        (vec!["--paradigm", "M:M", "--nodes", "1"], "M:M has 2"),
        (vec!["--threads", "0"], "1 to"),
        (vec!["--pending", "0"], "1 to"),
        (vec!["--rate", "0"], "more than 0"),
        (vec!["--seconds", "0"], "more than 0"),
        (
            vec!["--protocol", "SEND/SEND-UD", "--value", "5000"],
            "at most",
        ),
        (vec!["--fabric", "sim:fdr", "--protocol", "TCP"], "TCP"),
        (vec!["--fabric", "sim:fdr", "--listen", "1"], "one process"),
        (
            vec![
                "--plot",
                "plots",
                "--fabric",
                "sim:fdr",
                "--protocol",
                "READ",
            ],
            "several values",
        ),
        (vec!["--connect", "1"], "--node"),
    ] {
        fails(
            &lab,
            &[&["perf", "protocols"], &arguments[..]].concat(),
            2,
            told,
        );
    }
}

#[test]
fn advice_says_which_protocol_and_why() {
    let lab = program();
    let arguments = ["advise", "protocol", "--paradigm", "1:M", "--nodes", "28"];
    let more = [
        "--threads",
        "16",
        "--pending",
        "128",
        "--nic",
        "fdr",
        "--json",
    ];
    let output = lab.run(&[&arguments[..], &more, &["--fixed"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    let others = advice["others"].as_array().unwrap();
    let read = others.iter().find(|other| other[0]["protocol"] == "READ");
    assert_eq!(read.unwrap()[1]["limit"], "outstanding_reads");
    assert!(stderr(&output).contains("use "), "{}", stderr(&output));
    // For what writes, READ is not even considered.
    let output = lab.run(&["advise", "protocol", "--writes"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stdout(&output).contains("\nREAD "), "{}", stdout(&output));
}

#[test]
fn advice_for_this_host_is_measured_first() {
    let lab = program();
    let output = lab.run(&["advise", "protocol", "--measure", "--protocol", "READ,TCP"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("use READ"), "{}", stdout(&output));
    lab.assert_nothing_left();
}

#[test]
fn advice_for_a_shuffle_keeps_to_its_limits() {
    let lab = program();
    let arguments = [
        "advise",
        "shuffle",
        "--nodes",
        "2",
        "--threads",
        "2",
        "--json",
    ];
    let limits = ["--memory-limit", "512KiB", "--ordered"];
    let output = lab.run(&[&arguments[..], &limits].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    let registered = advice["advised"]["registered_bytes"].as_u64().unwrap();
    assert!(registered <= 512 << 10, "{advice}");
    assert!(!advice["reasons"].as_array().unwrap().is_empty());
    fails(&lab, &["advise", "shuffle", "--nodes", "0"], 2, "0");
    lab.assert_nothing_left();
}

#[test]
fn advice_is_checked_and_too_little_that_is_good_is_a_failure() {
    let lab = program();
    let check = [
        "advise",
        "check",
        "--nic",
        "fdr",
        "--settings",
        "3",
        "--seed",
        "3",
    ];
    let output = lab.run(&[&check[..], &["--at-least", "0", "--json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["of"], 3);
    assert_eq!(report["verdicts"].as_array().unwrap().len(), 3);
    // More than all of it cannot be good.
    let output = lab.run(&[&check[..], &["--at-least", "1.1"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}
