//! `roundel-lab experiment`: what it writes, what it refuses, and that nothing outlives it.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{
    eventually, fails, finish, is_alive, program, signal, stderr, stdout, workers_of,
};

/// One that takes a few seconds.
const SHORT: [&str; 6] = ["experiment", "run", "setup", "--quick", "--runs", "1"];

#[test]
fn a_run_is_told_to_people_and_to_machines() {
    let lab = program();
    let plots = lab.temp().join("plots");
    let plots = plots.to_str().unwrap();
    let output = lab.run(&[&SHORT[..], &["--json", "--plot", plots]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("fig21"), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let figures = report["outcomes"][0]["figures"].as_array().unwrap();
    assert!(!figures.is_empty());
    let command = report["runs"][0]["command"].as_str().unwrap();
    assert!(
        command.starts_with("roundel-lab experiment run setup"),
        "{command}"
    );
    assert_eq!(report["outcomes"][0]["threads"], serde_json::json!([1, 2]));
    let page = fs::read_to_string(format!("{plots}/report.html")).unwrap();
    let points = fs::read_to_string(format!("{plots}/report.csv")).unwrap();
    assert!(points.contains("\nsetup,fig21,MESQ/SR,2,none,"), "{points}");
    for figure in figures {
        let id = figure["id"].as_str().unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
        let drawn = fs::read_to_string(format!("{plots}/{id}.svg")).unwrap();
        assert!(drawn.contains("<svg"), "{id}");
        let points = figure["series"][0]["points"].as_array().unwrap();
        assert!(
            points
                .iter()
                .all(|point| point["median"].as_f64() > Some(0.0))
        );
    }
    // Of the same results, the same page.
    let again = lab.temp().join("again");
    let again = again.to_str().unwrap();
    let json = format!("{plots}/report.json");
    let output = lab.run(&["experiment", "report", &json, &json, "--out", again]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        fs::read_to_string(format!("{again}/report.html")).unwrap(),
        page
    );
    fs::remove_dir_all(plots).unwrap();
    fs::remove_dir_all(again).unwrap();
    lab.assert_nothing_left();
}

#[test]
fn a_simulated_run_is_the_same_again_and_needs_no_other_process() {
    let lab = program();
    let of = |names: &[&str], nodes: &str| {
        let flags = ["--quick", "--fabric", "sim:edr", "--threads", "2"];
        let run = [
            &["experiment", "run"][..],
            names,
            &flags,
            &["--nodes", nodes],
            &["--json"],
        ];
        let output = lab.run(&run.concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report["machine"]["fabric"], "sim:edr");
        let outcomes = report["outcomes"].as_array().unwrap().clone();
        outcomes
            .into_iter()
            .map(|outcome| outcome["figures"].clone())
            .collect::<Vec<_>>()
    };
    let figures = || [of(&["scale-out", "tpch"], "2,5"), of(&["queue-pairs"], "5")].concat();
    let once = figures();
    assert_eq!(once.len(), 3);
    let points = once[0][0]["series"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 2, "2 and 5 nodes");
    assert_eq!(once, figures());
    let needs_a_host = ["experiment", "run", "waiting", "--fabric", "sim:edr"];
    fails(&lab, &needs_a_host, 2, "waiting");
}

#[test]
fn the_list_names_what_can_be_run() {
    let lab = program();
    let output = lab.run(&["experiment", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let text = stdout(&lab.run(&["experiment", "list"]));
    let names: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert!(names.len() >= 11, "{names:?}");
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
    // Under its paper, which is said once.
    let mut lines = text.lines();
    let mut heading = "";
    for one in list.as_array().unwrap() {
        let paper = one["paper"].as_str().unwrap();
        let name = one["name"].as_str().unwrap();
        let found = lines.find(|line| {
            if !line.starts_with(' ') && !line.is_empty() {
                heading = line;
            }
            line.split_whitespace().next() == Some(name)
        });
        assert!(
            found.is_some() && heading == paper,
            "{name} of {paper}: {text}"
        );
    }
    assert_eq!(text.matches("Rödiger et al. 2015").count(), 1, "{text}");
}

#[test]
fn what_cannot_be_run_is_one_line() {
    let lab = program();
    let run = ["experiment", "run"];
    fails(&lab, &[&run[..], &["pigeons"]].concat(), 2, "pigeons");
    fails(
        &lab,
        &[&run[..], &["setup", "--fabric", "ether"]].concat(),
        2,
        "ether",
    );
    let threads = ["ring-tcp", "--threads", "2", "--fabric", "sim:iwarp10"];
    fails(
        &lab,
        &[&run[..], &threads].concat(),
        2,
        "ring-tcp with --threads",
    );
    let nodes = ["credit", "--nodes", "2,4"];
    fails(&lab, &[&run[..], &nodes].concat(), 2, "credit with --nodes");
    fails(
        &lab,
        &["experiment", "report", "/nonexistent"],
        1,
        "/nonexistent",
    );
    let wrong = lab.temp().join("wrong.json");
    fs::write(&wrong, "{}").unwrap();
    fails(
        &lab,
        &["experiment", "report", wrong.to_str().unwrap()],
        1,
        "wrong.json",
    );
}

#[test]
fn nodes_end_with_the_run() {
    let lab = program();
    for (with, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let run = lab.spawn(&["experiment", "run", "buffers"]);
        let pid = run.id();
        let nodes = workers_of(pid, 2);
        signal(pid, with);
        let output = finish(run);
        assert_eq!(output.status.code(), code, "{}", stderr(&output));
        let gone = || nodes.iter().all(|node| !is_alive(*node));
        assert!(eventually(Duration::from_secs(10), gone), "{nodes:?}");
        lab.assert_nothing_left();
    }
}
