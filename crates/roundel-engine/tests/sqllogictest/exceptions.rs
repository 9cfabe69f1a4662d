//! Statements that may fail here although they pass in one process, each with its reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::file::Failure;

/// `FILE:LINE | KIND | REASON`, one a line; `#` begins a comment.
const LIST: &str = include_str!("exceptions.txt");

/// The kind of a statement that has several right answers: it may pass as well.
const ANY: &str = "any";

struct Exception {
    kind: &'static str,
}

/// The exceptions by where their statements are.
pub struct Exceptions(BTreeMap<&'static str, Exception>);

impl Exceptions {
    pub fn read() -> Self {
        let lines = LIST.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut exceptions = BTreeMap::new();
        for line in lines {
            let parts: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
            let [place, kind, reason] = parts[..] else {
                panic!("exceptions.txt: {line:?} is not FILE:LINE | KIND | REASON");
            };
            assert!(!reason.is_empty(), "exceptions.txt: {place} has no reason");
            let twice = exceptions.insert(place, Exception { kind }).is_some();
            assert!(!twice, "exceptions.txt: {place} is there twice");
        }
        Self(exceptions)
    }

    /// Whether a failure is allowed.
    pub fn allow(&self, failure: &Failure) -> bool {
        let exception = self.0.get(failure.place.as_str());
        exception.is_some_and(|e| e.kind == failure.kind.to_string() || e.kind == ANY)
    }

    /// Exceptions whose statements are among those that passed.
    pub fn stale(&self, passes: &BTreeSet<String>) -> Vec<&'static str> {
        let stale = self
            .0
            .iter()
            .filter(|(place, exception)| exception.kind != ANY && passes.contains(**place));
        stale.map(|(place, _)| *place).collect()
    }
}
