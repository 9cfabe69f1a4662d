//! What the suite found.

use crate::error::VerbsError;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The provider does what real verbs do.
    Passed,
    /// It does not.
    Failed(String),
    /// It says that it cannot, and this is how it differs.
    Differs(String),
}

/// A case and how it ended.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The case's name.
    pub case: &'static str,
    /// What real verbs do.
    pub verbs: &'static str,
    /// How it ended.
    pub verdict: Verdict,
}

/// All findings, in the order of the suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Every finding.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| matches!(finding.verdict, Verdict::Failed(_)))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for finding in &self.findings {
            match &finding.verdict {
                Verdict::Passed => writeln!(f, "ok       {}", finding.case)?,
                Verdict::Differs(how) => writeln!(f, "differs  {}: {how}", finding.case)?,
                Verdict::Failed(what) => writeln!(
                    f,
                    "FAILED   {}: {what}\n         real verbs: {}",
                    finding.case, finding.verbs
                )?,
            }
        }
        Ok(())
    }
}

/// Why a case failed.
#[derive(Debug)]
pub(super) struct Failure(pub String);

impl From<VerbsError> for Failure {
    fn from(error: VerbsError) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

pub(super) type CaseResult = Result<Verdict, Failure>;

/// The text of a caught panic.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_else(|| "without a message".into())
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::conformance::report::Failure(format!($($text)+)));
        }
    };
}

/// Fails the case unless both sides are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($what:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err($crate::conformance::report::Failure(format!(
                "{}: {left:?} instead of {right:?}",
                format_args!($($what)+)
            )));
        }
    }};
}

pub(super) use {ensure, ensure_eq};
