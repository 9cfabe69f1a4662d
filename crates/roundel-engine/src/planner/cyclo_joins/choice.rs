//! What the ways to do a join would cost, by what statistics tell of its inputs and the rates of this host.

use datafusion::common::JoinSide;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use roundel_ring::cost::{Estimate, Method, Rates, Shape, Size, Ways};
use roundel_ring::{Algorithm, Window};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a row's value where nobody knows.
const VALUE_BYTES: usize = 16;
/// Of pairs that a predicate tests, those that match, where nobody knows: what DataFusion assumes.
const SELECTIVITY: f64 = 0.2;

/// Hosts and what they can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hosts {
    pub count: usize,
    /// Threads that each of them has to join with; less than one where hosts share a processor.
    pub threads: f64,
    /// Threads that a host has to join with when it joins alone.
    pub threads_alone: f64,
    pub rates: Rates,
}

/// About how long it takes to have the workers do a part of a query.
const SPREAD: Duration = Duration::from_millis(10);

/// The estimate of a join before it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Guess {
    pub ways: Ways,
    /// The estimate for one host that has all rows and joins them alone, as on a ring of one.
    alone: Estimate,
}

/// A join, as far as its cost goes.
pub(super) struct Sides<'a> {
    /// The one that spins first.
    pub inputs: [&'a Arc<dyn ExecutionPlan>; 2],
    pub algorithm: &'a Algorithm,
    /// Whether pairs are tested against a predicate.
    pub tested: bool,
    /// Rows of the result, if anything is known of them.
    pub result: Option<usize>,
}

impl Guess {
    /// Estimates a join. `None` where the number of rows of a side is not known.
    pub(super) fn of(join: &Sides<'_>, hosts: &Hosts) -> Option<Self> {
        let [spinning, stationary] = join.inputs.map(statistics);
        let (spinning, stationary) = (spinning?, stationary?);
        let sizes = [
            size(&spinning, join.inputs[0])?,
            size(&stationary, join.inputs[1])?,
        ];
        let [few, many] = [sizes[0].rows, sizes[1].rows];
        let (method, found) = match join.algorithm {
            Algorithm::Hash { .. } => {
                let known = join.result.map(|rows| rows as f64);
                (Method::Hash, known.unwrap_or(f64::max(few, many)))
            }
            Algorithm::Merge {
                spinning: one,
                stationary: other,
                window,
            } => {
                let columns = (
                    spinning.column_statistics.get(*one),
                    stationary.column_statistics.get(*other),
                );
                (Method::Merge, share(columns, window) * few * many)
            }
            Algorithm::NestedLoops => (Method::NestedLoops, few * many),
        };
        let result = match join.algorithm {
            Algorithm::NestedLoops if join.tested => found * SELECTIVITY,
            _ => found,
        };
        let shape = Shape {
            hosts: hosts.count as f64,
            threads: hosts.threads,
            spinning: sizes[0],
            stationary: sizes[1],
            found,
            tested: join.tested,
            result,
        };
        let alone = Shape {
            hosts: 1.0,
            threads: hosts.threads_alone,
            ..shape
        };
        Some(Self {
            ways: Ways::of(&hosts.rates, &shape, method),
            alone: hosts.rates.cyclo(&alone, method),
        })
    }

    /// Whether a ring of all workers is worth it, for inputs that one could read as well.
    pub(super) fn is_worth_spreading(&self) -> bool {
        self.ways.cyclo.total() + SPREAD < self.alone.total()
    }
}

/// What is known of all rows of a plan.
pub(super) fn statistics(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Statistics>> {
    let all = StatisticsArgs::new().with_partition(None);
    StatisticsContext::new().compute(plan.as_ref(), &all).ok()
}

fn size(known: &Statistics, plan: &Arc<dyn ExecutionPlan>) -> Option<Size> {
    let rows = *known.num_rows.get_value()? as f64;
    let by_type = || {
        let schema = plan.schema();
        let fields = schema.fields().iter();
        let widths = fields.map(|field| field.data_type().primitive_width());
        widths
            .map(|width| width.unwrap_or(VALUE_BYTES))
            .sum::<usize>() as f64
    };
    let width = match known.total_byte_size {
        Precision::Exact(bytes) | Precision::Inexact(bytes) if rows > 0.0 && bytes > 0 => {
            bytes as f64 / rows
        }
        _ => by_type(),
    };
    Some(Size { rows, width })
}

/// The side that has fewer bytes, as far as that is known, or else rows; else the left one.
pub(super) fn smaller(inputs: [&Arc<dyn ExecutionPlan>; 2]) -> JoinSide {
    let known = |plan: &Arc<dyn ExecutionPlan>| {
        let statistics = statistics(plan);
        let bytes = statistics
            .as_ref()
            .and_then(|known| known.total_byte_size.get_value().copied());
        let rows = statistics.and_then(|known| known.num_rows.get_value().copied());
        (bytes, rows)
    };
    let [left, right] = inputs.map(known);
    let right_is_smaller = match (left, right) {
        ((Some(left), _), (Some(right), _)) => right < left,
        ((_, Some(left)), (_, Some(right))) => right < left,
        _ => false,
    };
    if right_is_smaller {
        JoinSide::Right
    } else {
        JoinSide::Left
    }
}

/// The share of all pairs whose keys are within a window, were they spread evenly.
fn share(columns: (Option<&ColumnStatistics>, Option<&ColumnStatistics>), window: &Window) -> f64 {
    let end = |low: Option<f64>, high: Option<f64>| match (low, high) {
        (Some(low), Some(high)) => Some(high - low),
        _ => None,
    };
    // A whole number is as wide as one.
    let width = match window {
        Window::Whole { low, high } | Window::WholeSum { low, high, .. } => end(
            finite(*low).map(|low| low as f64),
            finite(*high).map(|high| high as f64 + 1.0),
        ),
        Window::Real { low, high } | Window::RealSum { low, high, .. } => {
            end(finite(*low), finite(*high))
        }
    };
    // An inequality: half of them.
    let Some(width) = width else {
        return 0.5;
    };
    let ranges = [columns.0, columns.1].map(|column| column.and_then(range));
    match ranges {
        [Some(one), Some(other)] => {
            let range = f64::max(one.1, other.1) - f64::min(one.0, other.0);
            (width / (range + 1.0)).clamp(0.0, 1.0)
        }
        _ => SELECTIVITY,
    }
}

fn finite<T: Copy>(end: Bound<T>) -> Option<T> {
    match end {
        Bound::Included(end) | Bound::Excluded(end) => Some(end),
        Bound::Unbounded => None,
    }
}

/// The least and the greatest value of a column, as they are stored.
fn range(column: &ColumnStatistics) -> Option<(f64, f64)> {
    let value = |value: &Precision<ScalarValue>| number(value.get_value()?);
    Some((value(&column.min_value)?, value(&column.max_value)?))
}

fn number(value: &ScalarValue) -> Option<f64> {
    let number = match value {
        ScalarValue::Decimal128(number, ..) => return number.map(|number| number as f64),
        ScalarValue::Float32(number) => return number.map(f64::from),
        ScalarValue::Float64(number) => return *number,
        ScalarValue::Date32(number) => *number,
        other => {
            let whole = other.cast_to(&datafusion::arrow::datatypes::DataType::Int64);
            return match whole.ok()? {
                ScalarValue::Int64(number) => number.map(|number| number as f64),
                _ => None,
            };
        }
    };
    number.map(f64::from)
}
