//! What was found, judged: a line each, and for what is not as it should be, what to do.

mod device;
mod fabrics;
mod host;
mod rdma;

use serde::Serialize;

use super::facts::Facts;

/// How good something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It could be better, or should be known.
    Note,
    /// Something does not work because of it.
    Problem,
}

/// One thing that was found.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The part of the report that it belongs to.
    pub section: String,
    /// What it is about, in a word or two.
    pub about: String,
    /// How good it is.
    pub level: Level,
    /// What was found.
    pub text: String,
    /// What to do about it, one step each; nothing when nothing need be done.
    pub to_do: Vec<String>,
}

impl Finding {
    fn new(section: &str, about: &str, level: Level, text: impl Into<String>) -> Self {
        Self {
            section: section.to_owned(),
            about: about.to_owned(),
            level,
            text: text.into(),
            to_do: Vec::new(),
        }
    }

    fn step(mut self, step: impl Into<String>) -> Self {
        self.to_do.push(step.into());
        self
    }
}

/// Judges the facts, in the order of the report.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = host::judge(facts);
    if facts.looks_at_rdma() {
        findings.extend(rdma::judge(facts));
        findings.extend(
            facts
                .devices
                .iter()
                .flat_map(|one| device::judge(one, &facts.host)),
        );
    }
    findings.extend(fabrics::judge(facts));
    findings
}

/// `a`, `a and b`, `a, b and c`.
pub fn listed<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match &items[..] {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 node`, `2 nodes`.
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_counts_read_well() {
        assert_eq!(listed::<&str>(&[]), "none");
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
        assert_eq!(counted(1, "node"), "1 node");
        assert_eq!(counted(2, "node"), "2 nodes");
    }
}
