//! What the suite found.

use roundel_verbs::error::VerbsError;
use std::time::Duration;

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
    /// How long it took.
    pub took: Duration,
}

/// All findings, in the order of the suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
    observer: Option<fn(&Finding)>,
}

impl Report {
    /// An empty report that shows each finding to `observer` as it comes.
    pub fn observed(observer: fn(&Finding)) -> Self {
        Self {
            findings: Vec::new(),
            observer: Some(observer),
        }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        if let Some(observer) = self.observer {
            observer(&finding);
        }
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

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            case, verbs, took, ..
        } = self;
        let took = took.as_secs_f64();
        match &self.verdict {
            Verdict::Passed => write!(f, "ok      {took:6.2} s  {case}"),
            Verdict::Differs(how) => write!(f, "differs {took:6.2} s  {case}: {how}"),
            Verdict::Failed(what) => write!(
                f,
                "FAILED  {took:6.2} s  {case}: {what}\n    real verbs: {verbs}"
            ),
        }
    }
}

/// The time of each concern, which is what a case's name begins with.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for concern in self.findings.chunk_by(|a, b| a.concern() == b.concern()) {
            let took: Duration = concern.iter().map(|finding| finding.took).sum();
            let count = concern.len();
            let name = concern[0].concern();
            writeln!(f, "{:6.2} s  {name}, {count} cases", took.as_secs_f64())?;
        }
        Ok(())
    }
}

impl Finding {
    /// The subject that the case shares with others: the start of its name.
    pub fn concern(&self) -> &'static str {
        self.case.split(':').next().unwrap_or_default()
    }
}

/// Why a case failed.
#[derive(Debug)]
pub(crate) struct Failure(pub String);

impl From<VerbsError> for Failure {
    fn from(error: VerbsError) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

pub(crate) type CaseResult = Result<Verdict, Failure>;

/// The text of a caught panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
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
            return Err($crate::report::Failure(format!($($text)+)));
        }
    };
}

/// Fails the case unless the result is this error of the verbs; the text says of what.
macro_rules! ensure_err {
    ($result:ident, $error:ident $fields:tt, $($what:tt)+) => {
        if !matches!($result, Err(roundel_verbs::error::VerbsError::$error $fields)) {
            $crate::report::fail!("{}: {:?}", format_args!($($what)+), $result);
        }
    };
    ($result:ident, $error:ident $fields:tt) => {
        if !matches!($result, Err(roundel_verbs::error::VerbsError::$error $fields)) {
            $crate::report::fail!("{:?}", $result);
        }
    };
}

/// Fails the case unless both sides are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($what:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err($crate::report::Failure(format!(
                "{}: {left:?} instead of {right:?}",
                format_args!($($what)+)
            )));
        }
    }};
}

/// Fails the case.
macro_rules! fail {
    ($($text:tt)+) => {
        return Err($crate::report::Failure(format!($($text)+)))
    };
}

pub(crate) use {ensure, ensure_eq, ensure_err, fail};
