//! From measurements to figures and findings.

use super::judgement::Judgement;
use super::{Got, Results};
use crate::claims::claim;
use crate::figure::{Axis, Figure, Finding, Point, Scale, Series, Unit, Verdict, X};
use crate::measured::Measured;
use crate::paper::Paper;
use crate::ring::RingMeasured;

/// What a figure is about; its series come from the results.
pub struct About<'a> {
    pub id: &'a str,
    pub title: &'a str,
    /// Where in the paper: `Figure 19a, section 7.1.4`.
    pub place: &'a str,
    pub paper_saw: &'a str,
    pub x: Axis,
    pub y: Axis,
}

/// An axis.
pub fn axis(label: &str, unit: Unit, scale: Scale) -> Axis {
    Axis {
        label: label.into(),
        unit,
        scale,
    }
}

/// Throughput, by far the most frequent axis.
pub fn throughput() -> Axis {
    axis("throughput per node", Unit::BytesPerSecond, Scale::Linear)
}

/// Each series of cases is a line of its own.
pub fn each(series: &str) -> Option<String> {
    Some(series.to_owned())
}

impl Results<'_> {
    /// A figure of those cases for which `series` has a name, with a value of each run.
    pub fn figure(
        &self,
        about: About<'_>,
        series: impl Fn(&str) -> Option<String>,
        value: impl Fn(&Measured) -> f64,
    ) -> Figure {
        let mut figure = about.figure();
        self.add(&mut figure, series, |run| {
            run.try_as_measured_ref().map(&value)
        });
        figure
    }

    /// Adds to a figure those cases for which `series` has a name, with a value of each run that has one.
    pub fn add(
        &self,
        figure: &mut Figure,
        series: impl Fn(&str) -> Option<String>,
        value: impl Fn(&Got) -> Option<f64>,
    ) {
        for (case, runs) in &self.cases {
            let values: Vec<_> = runs.iter().filter_map(&value).collect();
            if let Some(name) = series(&case.series)
                && !values.is_empty()
            {
                figure.add(&name, Point::of_runs(case.x.clone(), values));
            }
        }
    }

    /// Adds a series to a figure: a value of each join among the cases of `of`.
    pub fn add_rings(
        &self,
        figure: &mut Figure,
        of: &str,
        name: &str,
        value: impl Fn(&RingMeasured) -> f64,
    ) {
        let series = |series: &str| (series == of).then(|| name.into());
        self.add(figure, series, |run| run.try_as_ring_ref().map(&value));
    }

    /// The median of a value over the runs of a case.
    pub fn median(&self, series: &str, x: &X, value: impl Fn(&Measured) -> f64) -> Option<f64> {
        let found = self
            .cases
            .iter()
            .find(|(case, _)| case.series == series && case.x == *x);
        let measured = found?.1.iter().filter_map(Got::try_as_measured_ref);
        Some(Point::of_runs(x.clone(), measured.map(value).collect()).median)
    }
}

impl About<'_> {
    /// The figure without series.
    pub fn figure(self) -> Figure {
        self.figure_of(Paper::Shuffle)
    }

    /// The same, of a paper.
    pub fn figure_of(self, paper: Paper) -> Figure {
        Figure {
            id: self.id.into(),
            title: self.title.into(),
            paper: format!("{paper}, {}", self.place),
            paper_saw: self.paper_saw.into(),
            x: self.x,
            y: self.y,
            series: Vec::new(),
            findings: Vec::new(),
        }
    }
}

impl Figure {
    /// Adds a point to a series, which begins with its first.
    pub(super) fn add(&mut self, name: &str, point: Point) {
        match self.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => self.series.push(Series {
                name: name.into(),
                points: vec![point],
            }),
        }
    }

    /// The median of a series at a place.
    pub(super) fn at(&self, series: &str, x: &X) -> Option<f64> {
        self.points(series)
            .iter()
            .find(|point| point.x == *x)
            .map(|point| point.median)
    }

    /// The points of a series; none of one that is not there.
    pub(super) fn points(&self, series: &str) -> &[Point] {
        let found = self.series.iter().find(|one| one.name == series);
        found.map_or(&[], |series| &series.points)
    }

    /// The highest median of a series, with its place.
    pub(super) fn best(&self, series: &str) -> Option<&Point> {
        let points = self.points(series).iter();
        points.max_by(|one, other| one.median.total_cmp(&other.median))
    }

    /// The highest ratio of one series to another, over the places where both have points.
    pub(super) fn ratio(&self, series: &str, to: &str) -> Option<f64> {
        let ratios = self.points(series).iter().filter_map(|point| {
            let other = self.at(to, &point.x).filter(|other| *other > 0.0)?;
            Some(point.median / other)
        });
        ratios.max_by(f64::total_cmp)
    }

    /// Adds what this run says of a claim of a paper. Where nothing was found, it cannot tell.
    pub(super) fn find(&mut self, id: &str, found: Option<(String, Judgement)>) {
        let claim = claim(id);
        self.find_own(claim.id, claim.says, found);
    }

    /// Adds what this run says of a claim that no paper makes.
    pub(super) fn find_own(
        &mut self,
        claim: &str,
        statement: &str,
        found: Option<(String, Judgement)>,
    ) {
        let (measured, verdict, threshold) = match found {
            Some((measured, judged)) => (measured, judged.verdict, judged.threshold),
            None => (
                "what it compares was not among what was run".into(),
                Verdict::CannotTell,
                String::new(),
            ),
        };
        self.findings.push(Finding {
            claim: claim.into(),
            statement: statement.into(),
            measured,
            verdict,
            threshold,
        });
    }
}

/// The share of the highest by which the medians of points lie apart.
pub fn spread(points: &[Point]) -> f64 {
    let medians = || points.iter().map(|point| point.median);
    let highest = medians().fold(0.0, f64::max);
    let lowest = medians().fold(f64::MAX, f64::min);
    if highest > 0.0 {
        (highest - lowest) / highest
    } else {
        0.0
    }
}

/// Bytes per second, for people.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{:.2} GB/s", bytes_per_second / 1e9)
}

/// A share of 1, for people.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, median: f64) -> Point {
        Point::of_runs(X::Number(x), vec![median])
    }

    #[test]
    fn ratios_are_of_the_same_places() {
        let about = About {
            id: "a",
            title: "",
            place: "",
            paper_saw: "",
            x: axis("", Unit::None, Scale::Linear),
            y: throughput(),
        };
        let mut figure = about.figure();
        figure.add("one", point(1.0, 4.0));
        figure.add("one", point(2.0, 9.0));
        figure.add("one", point(3.0, 100.0));
        figure.add("other", point(1.0, 2.0));
        figure.add("other", point(2.0, 3.0));
        assert_eq!(figure.ratio("one", "other"), Some(3.0));
        assert_eq!(figure.ratio("one", "none"), None);
        assert_eq!(figure.best("other").map(|point| point.median), Some(3.0));
        figure.find("SH01a", None);
        assert_eq!(figure.findings[0].verdict, Verdict::CannotTell);
    }

    #[test]
    fn a_spread_is_a_share_of_the_highest() {
        assert_eq!(spread(&[point(1.0, 4.0), point(2.0, 3.0)]), 0.25);
    }
}
