//! What a report must keep to be shown: limits, and names that can be names of files.

use std::collections::HashSet;

use crate::outcome::Report;

/// Figures of a report, at most.
pub const MAX_FIGURES: usize = 1_000;
/// Series of a figure, at most.
pub const MAX_SERIES: usize = 64;
/// Points of a figure, at most.
pub const MAX_POINTS: usize = 20_000;
/// Characters of a figure's id, at most.
pub const MAX_ID_LENGTH: usize = 64;

/// Why a report is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The id of a figure cannot be a file's name.
    #[error(
        "figure {id:?} cannot name a file: take 1 to {MAX_ID_LENGTH} letters a-z and A-Z, digits, `-` and `_`"
    )]
    Id {
        /// The id.
        id: String,
    },
    /// Two figures have the same id, or two that differ in case only.
    #[error("two figures are called {id:?}: rename one of them")]
    Twice {
        /// The id.
        id: String,
    },
    /// There is more than can be shown.
    #[error("{what} has {count} {of}, more than {limit}: leave some out")]
    TooMany {
        /// What is too large.
        what: String,
        /// Of what there are too many.
        of: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
}

/// Whether `report` can be shown and written to files.
pub(super) fn check(report: &Report) -> Result<(), CheckError> {
    let figures = || report.figures();
    at_most("the report", "figures", figures().count(), MAX_FIGURES)?;
    let mut ids = HashSet::new();
    for figure in figures() {
        let id = &figure.id;
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if id.is_empty() || id.len() > MAX_ID_LENGTH || !id.chars().all(allowed) {
            return Err(CheckError::Id { id: id.clone() });
        }
        // Some file systems do not tell cases apart.
        if !ids.insert(id.to_ascii_lowercase()) {
            return Err(CheckError::Twice { id: id.clone() });
        }
        let points = figure.series.iter().map(|series| series.points.len()).sum();
        let figure_name = format!("figure {id}");
        at_most(&figure_name, "series", figure.series.len(), MAX_SERIES)?;
        at_most(&figure_name, "points", points, MAX_POINTS)?;
    }
    Ok(())
}

fn at_most(what: &str, of: &'static str, count: usize, limit: usize) -> Result<(), CheckError> {
    if count <= limit {
        return Ok(());
    }
    Err(CheckError::TooMany {
        what: what.to_owned(),
        of,
        count,
        limit,
    })
}
