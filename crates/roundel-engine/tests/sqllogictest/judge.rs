//! Whether a statement gave what the suite expects of it, and what is wrong otherwise.

use std::str::FromStr;

use datafusion_sqllogictest::DFColumnType;
use serde::Serialize;
use sqllogictest::{
    ExpectedError, QueryExpect, Record, RecordOutput, StatementExpect, TestError, TestErrorKind,
};
use strum::{Display, VariantArray};

use crate::db::Seen;
use crate::order::Order;

pub type Outcome = Result<RecordOutput<DFColumnType>, TestError>;

/// What is wrong, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Display, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// It failed as it should, but says something else.
    Message,
    /// It failed.
    Error,
    /// It should have failed.
    Accepted,
    /// Its columns are of other types.
    Types,
    /// Its rows are right, but not in the order that it asks for, or may not be.
    Order,
    /// Its rows are wrong.
    Rows,
    /// It did not end.
    Hang,
    /// A process panicked or ended.
    Crash,
}

impl Kind {
    /// All kinds, the worst last.
    pub const ALL: [Self; 8] = *Self::VARIANTS.as_array().unwrap();
}

/// What is wrong with a statement.
pub struct Wrong {
    pub kind: Kind,
    pub got: String,
    pub expected: String,
}

/// Whether a statement asks for a plan, which a cluster has another one of.
pub fn is_plan(sql: &str) -> bool {
    let first = sql.split_whitespace().next();
    first.is_some_and(|word| word.eq_ignore_ascii_case("explain"))
}

/// Judges what became of a statement.
pub fn judge(record: &Record<DFColumnType>, outcome: &Outcome, seen: Seen) -> Option<Wrong> {
    let error = outcome.as_ref().err()?;
    let sql = sql_of(record).unwrap_or_default();
    let wrong = |kind, got: &str, expected: &str| {
        Some(Wrong {
            kind,
            got: got.to_owned(),
            expected: expected.to_owned(),
        })
    };
    match error.kind() {
        TestErrorKind::Fail { err, .. } => {
            let err = err.to_string();
            let kind = match () {
                () if seen.hung => Kind::Hang,
                () if seen.panicked || err.contains("lost worker") => Kind::Crash,
                () => Kind::Error,
            };
            wrong(kind, &err, "success")
        }
        TestErrorKind::ErrorMismatch {
            err, expected_err, ..
        } => {
            let err = err.to_string();
            match () {
                () if seen.hung => wrong(Kind::Hang, &err, &expected_err),
                () if seen.panicked || err.contains("lost worker") => {
                    wrong(Kind::Crash, &err, &expected_err)
                }
                () if expected_error(record).is_some_and(|told| same_message(told, &err)) => None,
                () => wrong(Kind::Message, &err, &expected_err),
            }
        }
        TestErrorKind::Ok { .. } => wrong(Kind::Accepted, "success", "an error"),
        _ if is_plan(sql) => None,
        TestErrorKind::QueryResultMismatch {
            expected, actual, ..
        } => {
            if sorted(&expected) != sorted(&actual) {
                return wrong(Kind::Rows, &actual, &expected);
            }
            match seen.order {
                Order::Free | Order::Kept => None,
                Order::Broken | Order::Unknown => wrong(Kind::Order, &actual, &expected),
            }
        }
        TestErrorKind::StatementResultMismatch {
            expected, actual, ..
        } => wrong(Kind::Rows, &actual, &expected.to_string()),
        TestErrorKind::QueryResultColumnsMismatch {
            expected, actual, ..
        } => wrong(Kind::Types, &actual, &expected),
        other => wrong(Kind::Error, &other.to_string(), "success"),
    }
}

/// The statement of a record that has one.
pub fn sql_of(record: &Record<DFColumnType>) -> Option<&str> {
    match record {
        Record::Statement { sql, .. } | Record::Query { sql, .. } => Some(sql),
        _ => None,
    }
}

fn expected_error(record: &Record<DFColumnType>) -> Option<&ExpectedError> {
    match record {
        Record::Statement {
            expected: StatementExpect::Error(error),
            ..
        }
        | Record::Query {
            expected: QueryExpect::Error(error),
            ..
        } => Some(error),
        _ => None,
    }
}

/// Roundel's errors are one line each, and name the worker and the file that they are of.
fn same_message(expected: &ExpectedError, got: &str) -> bool {
    let got = without_file(&without_worker(&one_line(got)));
    match expected {
        ExpectedError::Multiline(text) => one_line(text) == got,
        ExpectedError::Inline(pattern) => {
            let flat = one_line(&pattern.as_str().replace("\\n", " "));
            let flat = parsed_as(pattern, &flat).map(ExpectedError::Inline);
            flat.is_some_and(|flat| flat.is_match(&got, None))
        }
        other => other.is_match(&got, None),
    }
}

/// A pattern of the suite's own kind.
fn parsed_as<P: FromStr>(_of: &P, text: &str) -> Option<P> {
    text.parse().ok()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn without_worker(error: &str) -> String {
    let Some((before, of_worker)) = error.split_once("worker http://") else {
        return error.to_owned();
    };
    match of_worker.split_once("/: ") {
        Some((_, said)) => format!("{before}{said}"),
        None => error.to_owned(),
    }
}

/// Expressions are evaluated where a file is read, so that the file is told of their errors, too.
fn without_file(error: &str) -> String {
    let words = error.split(' ');
    let words = words.filter(|word| !(word.starts_with('/') && word.ends_with(".parquet:")));
    words.collect::<Vec<_>>().join(" ")
}

fn sorted(rows: &str) -> Vec<&str> {
    let mut rows: Vec<&str> = rows.lines().map(str::trim_end).collect();
    rows.sort_unstable();
    rows
}
