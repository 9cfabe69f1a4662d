//! Seeds: no wrong answer, no hang. `roundel simulate` runs more of them.

use roundel_experiments::simulate::{Plan, run};

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
