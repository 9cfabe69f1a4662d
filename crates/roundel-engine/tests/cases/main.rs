//! Faults that were seen once, here or in other engines: each is a case, which is run with every number of workers
//! and threads, over every fabric, with files of several sizes, and in all ways to join.
//!
//! `ROUNDEL_CASES=all` runs every combination, `ROUNDEL_CASES_LARGE=1` files of 100 MB too, and
//! `ROUNDEL_CASES_ONLY=name` the cases whose name begins so.

mod answer;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod data;
mod report;
mod runner;
mod selection;

mod files;
mod files_more;
mod more_plans;
mod own;
mod peers;
mod peers_more;
mod plans;
mod settings;
mod small;
mod special;

use case::Case;

#[tokio::test(flavor = "multi_thread")]
async fn every_case_is_right_or_refused() {
    let only = std::env::var("ROUNDEL_CASES_ONLY").unwrap_or_default();
    let groups: [&'static [Case]; 10] = [
        plans::CASES,
        more_plans::CASES,
        peers::CASES,
        peers_more::CASES,
        small::CASES,
        own::CASES,
        files::CASES,
        files_more::CASES,
        files_more::MORE,
        settings::CASES,
    ];
    let cases: Vec<&'static Case> = groups
        .into_iter()
        .flatten()
        .filter(|case| case.name.starts_with(&only))
        .collect();
    assert!(!cases.is_empty(), "no case is named {only}");
    let selected = selection::selected();
    let failures = runner::run_all(&cases, &selected).await;
    let asked = cases.len();
    assert!(
        failures.is_empty(),
        "{} failures in {asked} cases:\n{}",
        failures.len(),
        report::report(&failures)
    );
}
