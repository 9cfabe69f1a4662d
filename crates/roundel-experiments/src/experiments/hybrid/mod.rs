//! Exchanges of whole operators, over endpoints, through multiplexers and between units (Rödiger et al. 2015, section 3).

mod architectures;
mod bandwidth;
mod queries;
mod schedule;
mod skew;
mod straggler;

pub use architectures::EXPERIMENT as ARCHITECTURES;
pub use bandwidth::EXPERIMENT as BANDWIDTH;
pub use queries::EXPERIMENT as QUERIES;
pub use schedule::EXPERIMENT as SCHEDULE;
pub use skew::EXPERIMENT as SKEW;
pub use straggler::EXPERIMENT as STRAGGLER;

use super::{Case, Got, Work};
use crate::figure::X;
use crate::hybrid::Hybrid;

fn case(series: impl Into<String>, x: X, hybrid: Hybrid) -> Case {
    Case {
        series: series.into(),
        x,
        work: Work::Hybrid(Box::new(hybrid)),
    }
}

/// Seconds of all queries in each run.
fn totals(runs: &[Got]) -> impl Iterator<Item = f64> {
    let all = runs.iter().filter_map(Got::try_as_queries_ref);
    all.map(|queries| queries.iter().map(|query| query.seconds).sum())
}

/// Queries in an hour, in each run.
fn hourly(runs: &[Got]) -> Vec<f64> {
    let first = runs.first().and_then(Got::try_as_queries_ref);
    let count = first.map_or(0, Vec::len) as f64;
    totals(runs)
        .map(|seconds| 3600.0 * count / seconds)
        .collect()
}
