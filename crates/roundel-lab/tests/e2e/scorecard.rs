//! `roundel-lab scorecard`: claims by several seeds, without what holds hardware up, and by shares.

use crate::common::{fails, program, stderr, stdout};
use serde_json::{Value, json};

/// A claim that takes little time. It is counted, and simulated for that.
const QUICK: [&str; 5] = ["scorecard", "--paper", "hybrid", "--claims", "HY02"];

/// What it writes as JSON.
fn judged(flags: &[&str]) -> Value {
    let program = program();
    let output = program.run(&[&QUICK[..], &["--json"], flags].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn a_claim_is_judged_with_several_seeds() {
    let one = &judged(&[])["claims"][0];
    assert_eq!((&one["holds"], one.get("seeds")), (&json!(true), None));
    let three = &judged(&["--seeds", "3"])["claims"][0];
    assert_eq!(three["holds"], json!(true));
    let seeds = &three["seeds"];
    assert_eq!(
        (&seeds["holding"], &seeds["judged"]),
        (&json!(3), &json!(3))
    );
    // Threads send in another order.
    assert!(seeds["deviation_percent"].as_f64() > Some(0.0), "{seeds}");
}

#[test]
fn an_ablation_judges_once_with_all_and_once_without_each() {
    let ablation = judged(&["--ablate"]);
    assert_eq!(ablation["scorecard"]["claims"][0]["id"], json!("HY02"));
    let without = ablation["without"].as_array().unwrap();
    let names: Vec<_> = without.iter().map(|one| &one["mechanism"]).collect();
    let all = [
        "contexts",
        "translations",
        "reads",
        "split",
        "looks",
        "handover",
        "switch",
    ];
    assert_eq!(names, all);
    let less = judged(&["--ablate", "--without", "switch,reads"]);
    assert_eq!(less["without"].as_array().unwrap().len(), all.len() - 2);
}

#[test]
fn claims_that_are_not_there_are_one_line() {
    let program = program();
    let shares = [&QUICK[..], &["--only", "held-out"]].concat();
    fails(&program, &shares, 2, "there is no such claim");
    let unknown = ["scorecard", "--claims", "SH99"];
    fails(&program, &unknown, 2, "there is no such claim");
    let output = program.run(&["scorecard", "--without", "luck"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("luck"), "{}", stderr(&output));
}
