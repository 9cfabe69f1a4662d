//! Which values an axis of a figure has, in which unit, and how its ticks are written. Knows nothing of what is drawn.

use std::sync::Arc;

use kuva::render::layout::{AxisLabelOverlap, Layout, TickFormat};

use super::quantity::{Scaled, quantity};
use crate::figure::{self, Figure, Scale, Series, Unit, X};

/// Ticks of an axis with logarithms are at least so many pixels apart: those whose labels are beside each other, and those
/// whose labels are one above the other.
const LABEL_ROOM: f64 = 70.0;
const LINE_ROOM: f64 = 46.0;
/// Larger numbers are not drawn: differences of them are not finite.
const LARGEST: f64 = 1e100;
/// Smaller numbers are taken for 0.
const SMALLEST: f64 = 1e-100;

/// Of lines, those that are everywhere so many times as high as all others are drawn at the upper end of the axis, so that
/// the others can be read.
const FAR: f64 = 10.0;
/// Between the highest of the others and those.
const ROOM_BELOW_FAR: f64 = 1.1;

/// Whether `value` has a place on an axis.
pub(super) fn drawable(value: f64) -> bool {
    value.is_finite() && value.abs() <= LARGEST
}

/// An axis with its unit. The library has logarithms to base 10 alone; those to base 2 are taken here.
pub(super) struct Axis {
    /// What it is, with the unit of its ticks, where they have one: `throughput (GB/s)`.
    pub(super) title: String,
    unit: Unit,
    /// What ticks are written in.
    pub(super) scaled: Scaled,
    /// Whether it has the logarithms to base 2 of multiples of what it is written in.
    log2: bool,
    /// Whether all places are whole numbers.
    whole: bool,
    /// From where to where it goes, in what it is written in.
    pub(super) range: (f64, f64),
    /// The highest value that has its place, where there are lines far above it.
    highest: Option<f64>,
}

/// The lowest and the highest value of a series that can be drawn.
fn ends(series: &Series) -> Option<(f64, f64)> {
    let points = series.points.iter().filter(|one| drawable(one.median));
    let values = points.flat_map(|point| [point.median, point.low, point.high]);
    let values = values.filter(|value| drawable(*value));
    values.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

/// The highest value of most of the series, if all others are far above it.
fn highest_of_most(series: &[Series]) -> Option<f64> {
    let mut all: Vec<_> = series.iter().filter_map(ends).collect();
    all.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    (all.len() / 2 + 1..all.len()).find_map(|most| {
        let (_, highest) = all[most - 1];
        let mut others = all[most..].iter();
        let far = highest > 0.0 && others.all(|(low, _)| *low >= FAR * highest);
        far.then_some(highest)
    })
}

impl Axis {
    /// The y axis of `figure`. It has 0, unless it is logarithmic and all values have logarithms; the lengths of bars must
    /// be in proportion, so theirs is never.
    pub(super) fn of_values(figure: &Figure, bars: bool) -> Self {
        let highest = match bars || figure.y.scale == Scale::Log2 {
            true => None,
            false => highest_of_most(&figure.series),
        };
        let points = figure.all_points();
        let values = points
            .filter(|point| drawable(point.median))
            .flat_map(|point| [point.median, point.low, point.high])
            .filter(|value| drawable(*value) && highest.is_none_or(|highest| *value <= highest));
        let mut axis = Self::of(&figure.y, values, !bars);
        let (low, high) = axis.range;
        axis.range = if axis.log2 {
            let low = low.floor();
            (low, high.ceil().max(low + 1.0))
        } else if low >= 0.0 && high <= 0.0 {
            (0.0, 1.0)
        } else {
            // Above bars is room for numbers.
            let room = match (bars, highest) {
                (true, _) => 1.06,
                (false, Some(_)) => ROOM_BELOW_FAR,
                (false, None) => 1.0,
            };
            (low.min(0.0), high.max(0.0) * room)
        };
        axis.highest = highest;
        axis
    }

    /// The x axis of `figure`, where its places are numbers.
    pub(super) fn of_places(figure: &Figure) -> Self {
        let points = figure.all_points();
        let places = points.filter_map(|point| match point.x {
            X::Number(x) if drawable(x) && drawable(point.median) => Some(x),
            _ => None,
        });
        let mut axis = Self::of(&figure.x, places, true);
        let (low, high) = axis.range;
        let size = low.abs().max(high.abs());
        // Places that differ by what numbers cannot tell are one place, which is in the middle.
        if high - low <= size * 1e-9 {
            let around = size.max(1.0) * if axis.whole { 1.0 } else { 0.5 };
            axis.range = (low - around, high + around);
        }
        axis
    }

    /// From the lowest to the highest of `values`.
    fn of(axis: &figure::Axis, values: impl Iterator<Item = f64>, may_be_log2: bool) -> Self {
        let values: Vec<f64> = values
            .map(|value| if value.abs() < SMALLEST { 0.0 } else { value })
            .collect();
        let low = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let high = values.iter().copied().reduce(f64::max).unwrap_or(0.0);
        let log2 = may_be_log2 && axis.scale == Scale::Log2 && low > 0.0;
        // Powers of 2 in bytes are round in any prefix, so each is written with its own.
        let scaled = match (log2, axis.unit) {
            (true, Unit::Bytes) => Scaled {
                factor: 1.0,
                symbol: "",
            },
            (true, unit) => Scaled::of(low, unit),
            (false, unit) => Scaled::of(high.abs().max(low.abs()), unit),
        };
        let title = match (axis.label.as_str(), scaled.symbol) {
            (label, "") => label.to_owned(),
            ("", symbol) => symbol.to_owned(),
            (label, symbol) => format!("{label} ({symbol})"),
        };
        let mut axis = Self {
            title,
            unit: axis.unit,
            scaled,
            log2,
            whole: values.iter().all(|value| value.fract() == 0.0),
            range: (0.0, 0.0),
            highest: None,
        };
        axis.range = (axis.at(low), axis.at(high));
        axis
    }

    /// Whether a series is far above it.
    pub(super) fn is_below(&self, series: &Series) -> bool {
        let ends = ends(series).zip(self.highest);
        ends.is_some_and(|((low, _), highest)| low > highest)
    }

    /// Where `value` is on it. What has no logarithm is at the lower end, and what is far above at the upper.
    pub(super) fn at(&self, value: f64) -> f64 {
        match value / self.scaled.factor {
            _ if self.highest.is_some_and(|highest| value > highest) => self.range.1,
            value if self.log2 && value <= 0.0 => self.range.0,
            value if self.log2 => value.log2(),
            value => value,
        }
    }

    /// The distance of ticks, of which there are at most so many; none where the library finds a round one.
    fn step(&self, most: f64) -> Option<f64> {
        let length = self.range.1 - self.range.0;
        let whole = self.log2 || self.whole && length <= 20.0 && self.scaled.factor == 1.0;
        whole.then(|| (length / most).ceil().max(1.0))
    }

    /// How a place on it is written.
    fn format(&self) -> TickFormat {
        let (unit, scaled, log2) = (self.unit, self.scaled, self.log2);
        TickFormat::Custom(Arc::new(move |place| match unit {
            _ if !log2 => scaled.number(place * scaled.factor),
            Unit::Bytes => quantity(place.exp2(), unit),
            _ => scaled.number(place.exp2() * scaled.factor),
        }))
    }

    /// `layout` with this as its y axis, on so many pixels.
    pub(super) fn on_y(&self, layout: Layout, height: f64) -> Layout {
        let layout = layout.with_y_tick_format(self.format());
        if !self.log2 {
            return layout.with_clamp_y_axis();
        }
        let (low, high) = self.range;
        let layout = layout.with_y_axis_min(low).with_y_axis_max(high);
        match self.step(height / LINE_ROOM) {
            Some(step) => layout.with_y_tick_step(step),
            None => layout,
        }
    }

    /// `layout` with this as its x axis, on so many pixels.
    pub(super) fn on_x(&self, layout: Layout, width: f64) -> Layout {
        let (low, high) = self.range;
        let inset = (high - low) * 0.03;
        let layout = layout
            .with_x_axis_min(low - inset)
            .with_x_axis_max(high + inset)
            .with_x_tick_format(self.format())
            .with_x_label_overlap(AxisLabelOverlap::Thin);
        match self.step(width / LABEL_ROOM) {
            Some(step) => layout.with_x_tick_step(step),
            None => layout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Point;

    /// Lines from 1 on to these values.
    fn figure(scale: Scale, highest: &[f64]) -> Figure {
        let axis = |scale| figure::Axis {
            label: String::new(),
            unit: Unit::None,
            scale,
        };
        let series = highest.iter().map(|highest| Series {
            name: highest.to_string(),
            points: vec![
                Point::of_runs(X::Number(1.0), vec![highest / 2.0]),
                Point::of_runs(X::Number(2.0), vec![*highest]),
            ],
        });
        Figure {
            id: String::new(),
            title: String::new(),
            paper: String::new(),
            paper_saw: String::new(),
            x: axis(Scale::Linear),
            y: axis(scale),
            series: series.collect(),
            findings: Vec::new(),
        }
    }

    fn above(axis: &Axis, figure: &Figure) -> usize {
        let above = figure.series.iter().filter(|one| axis.is_below(one));
        above.count()
    }

    #[test]
    fn lines_far_above_most_are_at_the_upper_end() {
        let figure = figure(Scale::Linear, &[3.0, 500.0, 4.0, 5.0, 100.0]);
        let axis = Axis::of_values(&figure, false);
        assert_eq!(axis.range, (0.0, 5.0 * ROOM_BELOW_FAR));
        assert_eq!(axis.at(4.0), 4.0);
        assert_eq!([axis.at(50.0), axis.at(500.0)], [axis.range.1; 2]);
        assert_eq!(above(&axis, &figure), 2);
    }

    #[test]
    fn what_is_not_far_above_most_has_its_place() {
        for (highest, why) in [
            (&[4.0, 5.0, 90.0][..], "its lowest is 9 times as high"),
            (&[5.0, 500.0], "one is not most"),
            (&[0.0, 0.0, 500.0], "nothing is there to be read"),
        ] {
            let figure = figure(Scale::Linear, highest);
            let axis = Axis::of_values(&figure, false);
            assert_eq!(axis.at(500.0), 500.0, "{why}");
            assert_eq!(above(&axis, &figure), 0, "{why}");
        }
        // Bars are in proportion, and logarithms show both.
        let figure = figure(Scale::Log2, &[4.0, 5.0, 500.0]);
        for bars in [true, false] {
            assert_eq!(above(&Axis::of_values(&figure, bars), &figure), 0);
        }
    }
}
