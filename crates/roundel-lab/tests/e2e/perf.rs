//! `roundel-lab perf` with two real processes.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::common::{
    Program, eventually, fails, finish, is_alive, program, signal, stderr, stdout, until_busy,
    workers_of,
};
use roundel_testbed::{Machine, command};
use rustix::process::Signal;
use serde_json::Value;

/// Longest that an end may take to notice that the other is gone.
const NOTICE_MAX: Duration = Duration::from_secs(5);
/// Runs that do not end by themselves within a test.
const LONG: [&str; 4] = ["--seconds", "600", "--measure", "bandwidth"];

fn perf(lab: &Program, arguments: &[&str]) -> Value {
    let output = lab.run(&[&["perf", "--json"], arguments].concat());
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    lab.assert_nothing_left();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts what holds of every measurement of so many messages.
fn assert_measured(report: &Value, expected: &[(&str, &str, u64)], messages: u64, runs: usize) {
    let measurements = report["measurements"].as_array().unwrap();
    let found: Vec<(&str, &str, u64)> = measurements
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap();
            let bytes = one["bytes"].as_u64().unwrap();
            (text("measure"), text("verb"), bytes)
        })
        .collect();
    assert_eq!(found, expected);
    for one in measurements {
        assert_eq!(one["timed_runs"], runs, "{one}");
        assert_eq!(one["runs"].as_array().unwrap().len(), runs, "{one}");
        for run in one["runs"].as_array().unwrap() {
            let count = |key: &str| run[key].as_u64().unwrap();
            assert_eq!(count("messages"), messages, "{one}");
            let what = ["transport", "verb", "measure"].map(|key| one[key].as_str().unwrap());
            if what == ["uc", "write", "bandwidth"] {
                // Nobody sees them arrive.
                assert!(run["received"].is_null() && run["lost"].is_null(), "{one}");
            } else {
                assert_eq!(count("received") + count("lost"), messages, "{one}");
            }
            if one["transport"] == "rc" {
                assert_eq!(count("lost"), 0, "{one}");
            }
            let cpu = &run["cpu_seconds"];
            assert!(cpu["initiator"].as_f64().unwrap() > 0.0, "{one}");
            assert!(cpu["responder"].as_f64().unwrap() >= 0.0, "{one}");
            let is_latency = one["measure"] == "latency";
            assert_eq!(run["latency_microseconds"].is_object(), is_latency, "{one}");
        }
        assert!(one["median"]["messages_per_second"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn every_verb_is_measured_by_default() {
    let lab = program();
    let report = perf(&lab, &["--iterations", "300", "--runs", "3"]);
    let verbs = ["send", "write", "read", "write-imm"];
    let bandwidth = verbs
        .iter()
        .flat_map(|verb| [8, 64 << 10].map(|bytes| ("bandwidth", *verb, bytes)));
    let latency = verbs.iter().map(|verb| ("latency", *verb, 8));
    let atomics = |measure| ["compare-and-swap", "fetch-and-add"].map(|verb| (measure, verb, 8));
    let expected: Vec<_> = bandwidth
        .chain(atomics("bandwidth"))
        .chain(latency)
        .chain(atomics("latency"))
        .collect();
    assert_measured(&report, &expected, 300, 3);
    assert_eq!(report["initiator"]["device"]["atomics"], true);
    assert_eq!(report["initiator"]["device"]["provider"], "shm");
    assert_eq!(report["initiator"]["host"], report["responder"]["host"]);
    assert_ne!(
        report["initiator"]["process"],
        report["responder"]["process"]
    );
    assert!(report["error"].is_null(), "{report}");
}

#[test]
fn datagrams_are_measured() {
    let lab = program();
    let report = perf(&lab, &["--transport", "ud", "--iterations", "300"]);
    let expected = [
        ("bandwidth", "send", 8),
        ("bandwidth", "send", 4096),
        ("latency", "send", 8),
    ];
    assert_measured(&report, &expected, 300, 1);
}

#[test]
fn unreliable_connections_are_measured() {
    let lab = program();
    let report = perf(&lab, &["--transport", "uc", "--iterations", "300"]);
    let verbs = ["send", "write", "write-imm"];
    let bandwidth = verbs
        .iter()
        .flat_map(|verb| [8, 64 << 10].map(|bytes| ("bandwidth", *verb, bytes)));
    let latency = verbs.iter().map(|verb| ("latency", *verb, 8));
    let expected: Vec<_> = bandwidth.chain(latency).collect();
    assert_measured(&report, &expected, 300, 1);
    assert_eq!(report["settings"]["transport"], "uc");
}

#[test]
fn atomics_have_one_size() {
    let lab = program();
    let arguments = ["--iterations", "300", "--measure", "bandwidth"];
    let report = perf(
        &lab,
        &[&arguments[..], &["--verb", "fetch-and-add"]].concat(),
    );
    assert_measured(&report, &[("bandwidth", "fetch-and-add", 8)], 300, 1);
    // Of all verbs, those that have the size.
    let report = perf(&lab, &[&arguments[..], &["--size", "16"]].concat());
    let expected = ["send", "write", "read", "write-imm"].map(|verb| ("bandwidth", verb, 16));
    assert_measured(&report, &expected, 300, 1);
}

#[test]
#[ignore = "needs the virtual machine: vm/run prepare"]
fn verbs_of_a_device_are_measured() {
    let perf = format!(
        "{} perf --fabric rdma:rxe0 --json --iterations 300",
        env!("CARGO_BIN_EXE_roundel-lab")
    );
    // The last one is of messages whose buffers come back late, as they do on no other provider.
    let script = format!(
        "set -e; for transport in rc uc ud; do {perf} --transport $transport; done; \
         {perf} --verb write --measure latency --inline 0 --runs 5"
    );
    let output = command(Machine::default())
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let reports: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text)
        .into_iter()
        .collect();
    let reports = reports.unwrap();
    let expected = [
        (2 * 4 + 2 + 6, 1), // Four verbs of two sizes, two atomics; and the latencies of all.
        (2 * 3 + 3, 1),
        (2 + 1, 1),
        (1, 5),
    ];
    assert_eq!(reports.len(), expected.len(), "{text}");
    for (report, (measurements, runs)) in reports.iter().zip(expected) {
        assert!(report["error"].is_null(), "{report}");
        assert_eq!(report["initiator"]["device"]["provider"], "rdma");
        let found = report["measurements"].as_array().unwrap();
        assert_eq!(found.len(), measurements, "{report}");
        for one in found {
            assert_eq!(one["runs"].as_array().unwrap().len(), runs, "{one}");
            assert_eq!(one["median"]["messages"], 300, "{one}");
            assert!(one["median"]["messages_per_second"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn sleepers_are_measured() {
    let lab = program();
    let arguments = ["--poll", "event", "--iterations", "100", "--size", "7"];
    let report = perf(&lab, &[&arguments[..], &["--verb", "write"]].concat());
    let expected = [("bandwidth", "write", 7), ("latency", "write", 7)];
    assert_measured(&report, &expected, 100, 1);
    let arguments = ["--poll", "event", "--iterations", "100"];
    let report = perf(
        &lab,
        &[&arguments[..], &["--verb", "compare-and-swap"]].concat(),
    );
    let expected = ["bandwidth", "latency"].map(|measure| (measure, "compare-and-swap", 8));
    assert_measured(&report, &expected, 100, 1);
}

/// An end that listens, and its address.
fn listen(lab: &Program) -> (Child, String) {
    let mut child = lab.spawn(&["perf", "--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("roundel-lab perf listening on ");
    let address = address.unwrap_or_else(|| panic!("it said {line:?}"));
    (child, address.to_owned())
}

#[test]
fn an_end_listens_and_the_other_says_what_is_measured() {
    let lab = program();
    let (listener, address) = listen(&lab);
    // Strangers change nothing.
    let mut stranger = TcpStream::connect(&address).unwrap();
    stranger.write_all(&[0xa5; 1000]).unwrap();
    let file = lab.temp().join("perf.json");
    let output = lab.run(&[
        "perf",
        "--connect",
        &address,
        "--verb",
        "read,send",
        "--measure",
        "bandwidth",
        "--size",
        "1,100KB",
        "--depth",
        "3",
        "--iterations",
        "50",
        "--json",
        file.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
    assert!(stderr(&output).contains("rc over shm"));
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let expected = [
        ("bandwidth", "read", 1),
        ("bandwidth", "read", 100_000),
        ("bandwidth", "send", 1),
        ("bandwidth", "send", 100_000),
    ];
    assert_measured(&report, &expected, 50, 1);
    assert_eq!(report["responder"]["process"], listener.id());
    let listener = finish(listener);
    assert!(listener.status.success(), "{}", stderr(&listener));
    assert!(listener.stderr.is_empty(), "{}", stderr(&listener));
    lab.assert_nothing_left();
}

#[test]
fn people_get_a_table() {
    let lab = program();
    let arguments = ["--measure", "bandwidth", "--iterations", "100"];
    let writes = [
        &["perf", "--transport", "uc", "--verb", "write"],
        &arguments[..],
    ];
    let output = lab.run(&writes.concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    let unknown = |row: &&str| row.starts_with("write") && row.contains(" - ");
    assert_eq!(said.lines().filter(unknown).count(), 2, "{said}");
    let output = lab.run(&["perf", "--iterations", "100", "--verb", "send"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let said = stdout(&output);
    let first = |word: &str| said.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(
        (first("send"), first("bandwidth"), first("latency")),
        (3, 1, 1),
        "{said}"
    );
    lab.assert_nothing_left();
}

#[test]
fn what_cannot_be_measured_is_told_in_one_line() {
    let lab = program();
    for (arguments, told) in [
        (vec!["--verb", "dance"], "write-imm"),
        (vec!["--transport", "xrc"], "uc"),
        (
            vec!["--transport", "uc", "--verb", "read"],
            "uc queue pairs have no read",
        ),
        (
            vec!["--transport", "uc", "--verb", "fetch-and-add"],
            "uc queue pairs have no fetch-and-add",
        ),
        (
            vec!["--verb", "all,compare-and-swap", "--size", "8,16"],
            "compare-and-swap of 16 bytes: it has 8",
        ),
        (vec!["--fabric", "pigeon"], "pigeon"),
        (vec!["--transport", "ud", "--size", "4097"], "1 to 4096"),
        (
            vec!["--transport", "ud", "--verb", "write"],
            "have no write",
        ),
        (vec!["--size", "0"], "above 0"),
        (vec!["--size", "2GiB"], "1073741824"),
        (vec!["--depth", "0"], "depth"),
        (vec!["--depth", "8", "--batch", "9"], "1 to the depth, 8"),
        (vec!["--iterations", "0"], "at least one"),
        (vec!["--seconds", "-1"], "more than 0"),
        (
            vec!["--iterations", "1", "--seconds", "1"],
            "cannot be used",
        ),
        (vec!["--runs", "0"], "runs"),
        (vec!["--inline", "129"], "128"),
        (vec!["--listen", "1", "--verb", "send"], "cannot be used"),
        (vec!["--listen", "1", "--connect", "1"], "cannot be used"),
        (vec!["--connect", "nowhere"], "HOST:PORT"),
    ] {
        fails(&lab, &[&["perf"], &arguments[..]].concat(), 2, told);
    }
}

#[test]
fn an_end_without_another_says_so() {
    let lab = program();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(&lab, &["perf", "--listen", &address], 1, &address);
    // It accepts, and says nothing.
    fails(&lab, &["perf", "--connect", &address], 1, &address);
    drop(taken);
    fails(&lab, &["perf", "--connect", &address], 1, &address);
}

#[test]
fn an_end_that_is_killed_is_named() {
    let lab = program();
    // Over uc, where what goes to the dead succeeds, too.
    for arguments in [
        ["--verb", "send"],
        ["--verb", "read"],
        ["--transport", "uc"],
    ] {
        let first = lab.spawn(&[&["perf"], &arguments[..], &LONG[..]].concat());
        until_busy(first.id());
        let second = workers_of(first.id(), 1)[0];
        signal(second, Signal::KILL);
        let killed = Instant::now();
        let output = finish(first);
        let (took, said) = (killed.elapsed(), stderr(&output));
        assert!(took < NOTICE_MAX, "{arguments:?}: it took {took:?}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(
            said.contains(&format!("process {second} ")),
            "{arguments:?}: {said}"
        );
        lab.assert_nothing_left();
    }
}

#[test]
fn the_end_that_listens_names_the_one_that_is_killed() {
    let lab = program();
    let (listener, address) = listen(&lab);
    let arguments = ["perf", "--connect", &address];
    let mut first = lab.spawn(&[&arguments[..], &LONG].concat());
    until_busy(first.id());
    let pid = first.id();
    signal(pid, Signal::KILL);
    let killed = Instant::now();
    first.wait().unwrap();
    let output = finish(listener);
    let (took, said) = (killed.elapsed(), stderr(&output));
    assert!(took < NOTICE_MAX, "it took {took:?}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&format!("process {pid} ")), "{said}");
    lab.assert_nothing_left();
}

#[test]
fn the_second_process_ends_with_the_first() {
    let lab = program();
    for (ended_by, code) in [
        (Signal::INT, Some(130)),
        (Signal::TERM, Some(143)),
        (Signal::KILL, None),
    ] {
        let first = lab.spawn(&[&["perf"], &LONG[..]].concat());
        until_busy(first.id());
        let second = workers_of(first.id(), 1)[0];
        signal(first.id(), ended_by);
        let output = finish(first);
        assert_eq!(output.status.code(), code, "{ended_by:?}");
        assert!(output.stderr.is_empty(), "{}", stderr(&output));
        assert!(eventually(NOTICE_MAX, || !is_alive(second)), "{ended_by:?}");
        lab.assert_nothing_left();
    }
}
