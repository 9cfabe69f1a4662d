//! A report as JSON, and back. What is read may be anybody's file.

use super::check::{CheckError, check};
use super::label::clean;
use crate::outcome::Report;

/// Bytes of a report's JSON that are read, at most.
pub const MAX_JSON_BYTES: usize = 64 << 20;

/// Why a file is not a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// It is too large to be read.
    #[error("a report of {size} bytes is not read: the limit is {MAX_JSON_BYTES}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// It is not JSON, or not that of a report.
    #[error("not the JSON of a report: {reason}; write it again with this version of Roundel")]
    Format {
        /// What is wrong where.
        reason: String,
    },
    /// It cannot be shown.
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// `report` as JSON for programs and for [`from_json`]. Values that are not finite are `null`.
pub fn to_json(report: &Report) -> String {
    let mut json = serde_json::to_string_pretty(report).expect("a report is strings and numbers");
    json.push('\n');
    json
}

/// The report in `json`.
///
/// # Errors
/// When it is too large, not a report, or cannot be shown.
pub fn from_json(json: &[u8]) -> Result<Report, JsonError> {
    if json.len() > MAX_JSON_BYTES {
        return Err(JsonError::TooLarge { size: json.len() });
    }
    // The parser's words may quote the file, which may talk to the terminal.
    let told = |error: serde_json::Error| JsonError::Format {
        reason: clean(&error.to_string()),
    };
    let report = serde_json::from_slice(json).map_err(told)?;
    check(&report)?;
    Ok(report)
}
