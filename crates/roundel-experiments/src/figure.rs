//! What an experiment tells: figures, as they are written to JSON and drawn. Knows neither how they
//! were measured nor how they look.

use serde::{Deserialize, Deserializer, Serialize};
use strum::Display;

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// A name for files and links: `fig19a`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Where the paper shows it: `Liu et al. 2019, Figure 19a, section 7.1.4`.
    pub paper: String,
    /// What the paper saw, in a sentence or two.
    pub paper_saw: String,
    /// The axis of what varies.
    pub x: Axis,
    /// The axis of what was measured.
    pub y: Axis,
    /// Lines where x is a number, groups of bars where it is a name.
    pub series: Vec<Series>,
    /// What this run says of the paper's claims.
    pub findings: Vec<Finding>,
}

/// An axis of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it is: `message size`.
    pub label: String,
    /// The unit of its values, as [`Unit::Bytes`] is of a message size.
    pub unit: Unit,
    /// Where its values are.
    pub scale: Scale,
}

/// A unit, which says how values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number or a ratio.
    None,
    /// Bytes: 64 KiB.
    Bytes,
    /// Bytes per second: 2.5 GB/s.
    BytesPerSecond,
    /// Seconds: 1.5 ms.
    Seconds,
    /// Events per second: 1.2 M/s.
    PerSecond,
    /// Of 1: 35 %.
    Share,
}

/// How the values of an axis are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// By their distance.
    Linear,
    /// By their logarithm, with ticks at powers of 2.
    Log2,
    /// One after the other: names.
    Names,
}

/// The values of one of the things that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend: `MESQ/SR`.
    pub name: String,
    /// In the order of x.
    pub points: Vec<Point>,
}

/// The runs under one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where on the x axis.
    pub x: X,
    /// The median of the runs.
    #[serde(deserialize_with = "number")]
    pub median: f64,
    /// The lowest.
    #[serde(deserialize_with = "number")]
    pub low: f64,
    /// The highest.
    #[serde(deserialize_with = "number")]
    pub high: f64,
    /// How many there were.
    pub runs: usize,
}

/// A place on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A number, in the axis' unit.
    Number(#[serde(deserialize_with = "number")] f64),
    /// A name.
    Name(String),
}

/// JSON has `null` where a number is not finite.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|number| number.unwrap_or(f64::NAN))
}

/// What a run says of one of the paper's claims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The claim's row in the scorecard: `SH14`.
    pub claim: String,
    /// The claim in words: `MESQ/SR is up to 2 times as fast as MPI`.
    pub statement: String,
    /// What was measured, in words with numbers.
    pub measured: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// What it takes for them to agree: `at least 2; from 1.70 on it cannot tell`. Empty where nothing was measured.
    #[serde(default)]
    pub threshold: String,
}

/// Whether a measurement agrees with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Verdict {
    /// It does.
    Agrees,
    /// It does not.
    Differs,
    /// This machine or these settings cannot tell.
    #[strum(to_string = "cannot tell")]
    CannotTell,
}

impl Figure {
    /// The points of all series.
    pub fn all_points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|series| &series.points)
    }
}

impl Point {
    /// The runs at `x`.
    ///
    /// # Panics
    /// When there were none.
    pub fn of_runs(x: X, mut runs: Vec<f64>) -> Self {
        assert!(!runs.is_empty(), "a point without runs");
        runs.sort_by(f64::total_cmp);
        Self {
            x,
            median: runs[runs.len() / 2],
            low: runs[0],
            high: runs[runs.len() - 1],
            runs: runs.len(),
        }
    }
}
