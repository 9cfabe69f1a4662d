//! `roundel-lab simulate`: seeds, plans, and how a broken one is told.

use crate::common::{fails, program, stderr, stdout};
use serde_json::Value;

#[test]
fn seeds_are_run_and_counted() {
    let lab = program();
    let output = lab.run(&["simulate", "--seeds", "100..160", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["seeds_from"], &report["ran"]),
        (&100.into(), &60.into())
    );
    assert!(report["ended_with_errors"].as_u64().unwrap() > 0);
    assert_eq!(report["broken"], Value::Array(Vec::new()));
    assert!(stderr(&output).contains("60 seeds"), "{}", stderr(&output));
}

#[test]
fn time_ends_fresh_seeds() {
    let lab = program();
    let output = lab.run(&["simulate", "--minutes", "0.02"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("seeds from "), "{text}");
    assert!(text.contains("0 broken"), "{text}");
}

#[test]
fn a_plan_runs_the_same_way_again() {
    let plan = r#"{"seed":7,"nodes":2,"threads":1,"design":"MESQ/SR","pattern":"repartition","batches":2,
        "rows":20,"message_bytes":1024,"buffers":2,"ordered":false,"on_loss":"repair",
        "dawdle":{"secs":0,"nanos":0},"faults":{"loss":0.01}}"#;
    let lab = program();
    let once = lab.run(&["simulate", "--plan", plan]);
    assert!(once.status.success(), "{}", stderr(&once));
    let text = stdout(&once);
    assert!(text.starts_with("every row came once"), "{text}");
    assert_eq!(stdout(&lab.run(&["simulate", "--plan", plan])), text);
}

#[test]
fn what_cannot_be_is_one_clear_line() {
    let lab = program();
    fails(&lab, &["simulate", "--seeds", "5..5"], 2, "seeds are A..B");
    fails(
        &lab,
        &["simulate", "--minutes", "-1"],
        2,
        "minutes are a number",
    );
    fails(&lab, &["simulate", "--plan", "{}"], 2, "missing field");
}
