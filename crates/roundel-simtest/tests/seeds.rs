//! Seeds: no wrong answer, no hang. `roundel-lab simulate` runs more of them.

use roundel_simtest::{Plan, run};

/// `SEEDS=A..B` runs others.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("SEEDS").unwrap_or("0..300".into());
    let (from, to) = given.split_once("..").expect("A..B");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn no_seed_is_broken() {
    let mut broken = Vec::new();
    for seed in seeds() {
        let plan = Plan::draw(seed);
        if let Err(how) = run(&plan) {
            println!("{how}\n{}", serde_json::to_string(&plan).unwrap());
            broken.push(seed);
        }
    }
    assert!(broken.is_empty(), "{} seeds: {broken:?}", broken.len());
}

/// Plans that were broken before something was mended, as they were drawn then.
#[test]
fn plans_that_were_broken_once_are_fine() {
    for line in include_str!("broken_once.jsonl").lines() {
        let plan: Plan = serde_json::from_str(line).expect("a plan");
        if let Err(how) = run(&plan) {
            panic!("{how}\n{line}");
        }
    }
}

/// What is written instead of compared when this is set.
const UPDATE: &str = "ROUNDEL_UPDATE_TRACES";

/// The same seed has the same events on every machine, with and without optimisation. They change when the
/// simulated hardware does, or what endpoints do; then write them again.
#[test]
fn seeds_have_the_events_that_they_had() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces.txt");
    let mut traces = String::new();
    for seed in 0..40 {
        let plan = Plan::draw(seed);
        let trace = run(&plan).map(|ended| ended.trace);
        let trace = trace.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        traces += &format!("{seed} {} {trace:016x}\n", plan.design());
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(path, traces).expect("the traces can be written");
        return;
    }
    let before = std::fs::read_to_string(path).expect("the traces are there");
    assert_eq!(traces, before, "update them with {UPDATE}=1");
}
