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

use super::{Case, Got, Results, Work};
use crate::figure::{Figure, Point, X};
use crate::hybrid::{Hybrid, HybridMeasured};

fn case(series: impl Into<String>, x: X, hybrid: Hybrid) -> Case {
    Case {
        series: series.into(),
        x,
        work: Work::Hybrid(Box::new(hybrid)),
    }
}

/// Seconds of all queries in each run.
fn totals(runs: &[Got]) -> impl Iterator<Item = f64> {
    runs.iter().filter_map(|run| match run {
        Got::Queries(queries) => Some(queries.iter().map(|query| query.seconds).sum()),
        _ => None,
    })
}

/// Queries in an hour, in each run.
fn hourly(runs: &[Got]) -> Vec<f64> {
    let count = |run: &Got| match run {
        Got::Queries(queries) => queries.len(),
        _ => 0,
    };
    let count = runs.first().map_or(0, count) as f64;
    totals(runs)
        .map(|seconds| 3600.0 * count / seconds)
        .collect()
}

impl Results<'_> {
    /// Adds a value of each run of hybrid exchanges to a figure; `series` says which line a case is on, if any.
    fn add_hybrids(
        &self,
        figure: &mut Figure,
        series: impl Fn(&str) -> Option<String>,
        value: impl Fn(&HybridMeasured) -> f64,
    ) {
        for (case, runs) in &self.cases {
            let values = runs.iter().filter_map(|run| match run {
                Got::Hybrid(measured) => Some(value(measured)),
                _ => None,
            });
            let values: Vec<_> = values.collect();
            if let Some(name) = series(&case.series)
                && !values.is_empty()
            {
                figure.add(&name, Point::of_runs(case.x.clone(), values));
            }
        }
    }
}
