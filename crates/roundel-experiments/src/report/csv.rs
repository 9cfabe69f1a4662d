//! The points of a report as CSV, for spreadsheets and statistics: a row for each.

use csv::Writer;
use serde::Serialize;

use super::label::clean;
use crate::figure::{Unit, X};
use crate::outcome::Report;

/// Spreadsheets take what begins so for a formula, which a name must not be.
const FORMULAS: [char; 4] = ['=', '+', '-', '@'];

#[derive(Serialize)]
struct Row<'a> {
    experiment: &'a str,
    figure: &'a str,
    series: &'a str,
    x: String,
    x_unit: Unit,
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    unit: Unit,
    runs: usize,
}

/// The points of `report`. Where there is no finite number, a field is empty.
pub fn to_csv(report: &Report) -> String {
    let mut rows = Writer::from_writer(Vec::new());
    for outcome in &report.outcomes {
        let experiment = name(&outcome.experiment);
        for figure in &outcome.figures {
            for series in &figure.series {
                let series_name = name(&series.name);
                for point in &series.points {
                    let row = Row {
                        experiment: &experiment,
                        figure: &figure.id,
                        series: &series_name,
                        x: match &point.x {
                            X::Number(x) => x.to_string(),
                            X::Name(x) => name(x),
                        },
                        x_unit: figure.x.unit,
                        median: finite(point.median),
                        low: finite(point.low),
                        high: finite(point.high),
                        unit: figure.y.unit,
                        runs: point.runs,
                    };
                    rows.serialize(row).expect("a row is strings and numbers");
                }
            }
        }
    }
    let bytes = rows.into_inner().expect("memory takes all that is written");
    String::from_utf8(bytes).expect("rows of text are text")
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn name(text: &str) -> String {
    let text = clean(text);
    match text.starts_with(FORMULAS) {
        true => format!("'{text}"),
        false => text,
    }
}
