//! All failures of a run as one table.

use std::collections::BTreeMap;

use crate::runner::Failure;

/// Kinds of failure of a statement that are shown.
const KINDS: usize = 4;

/// A statement's failures are together, and those that differ in their places alone are one.
pub fn report(failures: &[Failure]) -> String {
    let mut cases: BTreeMap<&str, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for Failure { case, place, wrong } in failures {
        let seen = without_ports(&wrong.seen);
        let told = format!("    seen {seen}\n      expected {}", wrong.expected);
        let kinds = cases.entry(case).or_default();
        kinds.entry(told).or_default().push(place);
    }
    let mut text = String::new();
    for (case, kinds) in cases {
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
        text += &format!("{case}\n");
        for (told, places) in kinds.iter().take(KINDS) {
            let first: Vec<_> = places.iter().take(8).copied().collect();
            text += &format!("{told}\n      in {}: {}\n", places.len(), first.join("; "));
        }
        if kinds.len() > KINDS {
            text += &format!("    and {} more kinds\n", kinds.len() - KINDS);
        }
    }
    text
}

/// Ports of workers differ from run to run.
fn without_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        out += "127.0.0.1:…";
        out += rest;
    }
    out
}
