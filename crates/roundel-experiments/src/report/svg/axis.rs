//! Where values are on an axis, and which of them are written at it.

use super::super::label::width;
use super::super::quantity::{Scaled, fixed, quantity};
use super::shapes::{FONT, drawable};
use crate::figure::{self, Figure, Scale, Unit, X};

/// An axis with ticks.
pub(super) struct Axis {
    /// What it is, with the unit of its ticks, where they have one: `throughput (GB/s)`.
    pub(super) title: String,
    /// From the lowest to the highest.
    pub(super) ticks: Vec<Tick>,
    /// What ticks are written in.
    scaled: Scaled,
    /// Whether it has the logarithms to base 2 of multiples of what it is written in.
    log2: bool,
    /// The lowest number on it, of the unit or of logarithms.
    low: f64,
    /// The highest.
    high: f64,
}

/// A place with a label.
pub(super) struct Tick {
    /// Where it is, as [`Axis::part`] says it.
    pub(super) part: f64,
    /// What is written there.
    pub(super) label: String,
}

/// Steps of the y axis, about.
const STEPS: f64 = 6.0;
/// Ticks of an axis, at most.
const MOST_TICKS: i32 = 12;
/// Labels on the x axis are at least this far from each other.
const GAP: f64 = 14.0;
/// Smaller numbers are taken for 0: what is divided by them is not finite.
const SMALLEST: f64 = 1e-100;
/// What is this close to a tick, in steps, is on it.
const ROUNDING: f64 = 1e-6;

impl Axis {
    /// The y axis of `figure`. It has 0, unless it is logarithmic and all values have logarithms;
    /// the lengths of bars must be in proportion, so theirs is never.
    pub(super) fn of_values(figure: &Figure, bars: bool) -> Self {
        let points = figure.all_points();
        let values = points
            .filter(|point| drawable(point.median))
            .flat_map(|point| [point.median, point.low, point.high])
            .filter(|value| drawable(*value));
        let range = Range::of(values);
        if figure.y.scale == Scale::Log2 && !bars && range.low > 0.0 {
            let mut axis = Self::empty(&figure.y, range.low, range, true);
            (axis.low, axis.high) = (
                axis.number(range.low).floor(),
                axis.number(range.high).ceil(),
            );
            axis.high = axis.high.max(axis.low + 1.0);
            let every = (axis.high - axis.low) as i32 / (MOST_TICKS / 2) + 1;
            axis.ticks = axis.powers(every, figure.y.unit);
            return axis;
        }
        let range = Range {
            low: range.low.min(0.0),
            high: range.high.max(0.0),
            ..range
        };
        let largest = range.high.max(-range.low);
        let mut axis = Self::empty(&figure.y, largest, range, false);
        let step = axis.step((range.high - range.low) / STEPS);
        axis.low = (range.low / step + ROUNDING).floor() * step;
        axis.high = (range.high / step - ROUNDING).ceil() * step;
        if axis.high <= axis.low {
            axis.high = axis.low + step;
        }
        axis.ticks = axis.multiples(step);
        axis
    }

    /// The x axis of `figure`, on so many pixels, where its places are numbers.
    pub(super) fn of_places(figure: &Figure, room: f64) -> Self {
        let points = figure.all_points();
        let places = points.filter_map(|point| match point.x {
            X::Number(x) if drawable(x) && drawable(point.median) => Some(x),
            _ => None,
        });
        let range = Range::of(places);
        let unit = figure.x.unit;
        if figure.x.scale == Scale::Log2 && range.low > 0.0 {
            let mut axis = Self::empty(&figure.x, range.low, range, true);
            (axis.low, axis.high) = (axis.number(range.low), axis.number(range.high));
            if axis.powers(1, unit).len() < 2 {
                (axis.low, axis.high) = (axis.low.floor(), axis.high.ceil());
            }
            let steps = (1..).map(|every| axis.powers(every, unit));
            axis.ticks = first_that_fits(steps, room);
            return axis;
        }
        let mut axis = Self::empty(
            &figure.x,
            range.high.abs().max(range.low.abs()),
            range,
            false,
        );
        if range.empty {
            return axis;
        }
        if range.low == range.high {
            axis.ticks = vec![Tick {
                part: 0.5,
                label: axis.scaled.number(range.low),
            }];
            return axis;
        }
        let steps = (1..=MOST_TICKS).rev().map(|count| {
            let step = axis.step((range.high - range.low) / f64::from(count));
            axis.multiples(if range.whole { step.max(1.0) } else { step })
        });
        axis.ticks = first_that_fits(steps, room);
        axis
    }

    /// An axis without ticks, for values such as `typical`.
    fn empty(axis: &figure::Axis, typical: f64, range: Range, log2: bool) -> Self {
        // Powers of 2 in bytes are round in any prefix, so each is written with its own.
        let scaled = if log2 && axis.unit == Unit::Bytes {
            Scaled {
                factor: 1.0,
                symbol: "",
            }
        } else {
            Scaled::of(typical, axis.unit)
        };
        let title = match (axis.label.as_str(), scaled.symbol) {
            (label, "") => label.to_owned(),
            ("", symbol) => symbol.to_owned(),
            (label, symbol) => format!("{label} ({symbol})"),
        };
        Self {
            title,
            ticks: Vec::new(),
            scaled,
            log2,
            low: range.low,
            high: range.high,
        }
    }

    /// Where `value` is: 0 at the lower end, 1 at the upper.
    pub(super) fn part(&self, value: f64) -> f64 {
        let number = if self.log2 && value <= 0.0 {
            self.low
        } else {
            self.number(value)
        };
        self.part_of(number)
    }

    /// `value` in the unit of the axis, without the unit.
    pub(super) fn number_text(&self, value: f64) -> String {
        self.scaled.number(value)
    }

    fn number(&self, value: f64) -> f64 {
        if self.log2 {
            (value / self.scaled.factor).log2()
        } else {
            value
        }
    }

    fn part_of(&self, number: f64) -> f64 {
        let length = self.high - self.low;
        if length > 0.0 {
            ((number - self.low) / length).clamp(0.0, 1.0)
        } else {
            0.5
        }
    }

    /// The round step next to `about`.
    fn step(&self, about: f64) -> f64 {
        let about = about / self.scaled.factor;
        if about < SMALLEST {
            return self.scaled.factor;
        }
        let power = 10f64.powf(about.log10().floor());
        let rounded = [1.0, 2.0, 5.0]
            .into_iter()
            .find(|round| round * power >= about * (1.0 - ROUNDING));
        rounded.unwrap_or(10.0) * power * self.scaled.factor
    }

    fn multiples(&self, step: f64) -> Vec<Tick> {
        let first = (self.low / step - ROUNDING).ceil();
        let count =
            ((self.high / step + ROUNDING).floor() - first).clamp(0.0, 4.0 * f64::from(MOST_TICKS));
        let shown_step = step / self.scaled.factor;
        let decimals = (-shown_step.log10() - ROUNDING).ceil().max(0.0);
        let largest = self.high.abs().max(self.low.abs()) / self.scaled.factor;
        (0..=count as i32)
            .map(|index| {
                let value = (first + f64::from(index)) * step;
                let label = match value / self.scaled.factor {
                    0.0 => "0".to_owned(),
                    number if decimals <= 4.0 && largest < 1e9 => fixed(number, decimals as usize),
                    _ => self.scaled.number(value),
                };
                Tick {
                    part: self.part_of(value),
                    label,
                }
            })
            .collect()
    }

    /// Every so many powers of 2.
    fn powers(&self, every: i32, unit: Unit) -> Vec<Tick> {
        let first = (self.low - ROUNDING).ceil() as i32;
        let last = (self.high + ROUNDING).floor() as i32;
        (first..=last)
            .step_by(every.unsigned_abs() as usize)
            .map(|power| {
                let value = f64::from(power).exp2();
                let label = match unit {
                    Unit::Bytes => quantity(value, unit),
                    _ => self.scaled.number(value * self.scaled.factor),
                };
                Tick {
                    part: self.part_of(f64::from(power)),
                    label,
                }
            })
            .collect()
    }
}

/// The ticks whose labels do not touch on so many pixels, or those of the last choice.
fn first_that_fits(mut choices: impl Iterator<Item = Vec<Tick>>, room: f64) -> Vec<Tick> {
    let fit = |ticks: &Vec<Tick>| {
        ticks.windows(2).all(|pair| {
            let distance = (pair[1].part - pair[0].part) * room;
            let widths = width(&pair[0].label, FONT) + width(&pair[1].label, FONT);
            distance >= widths / 2.0 + GAP
        })
    };
    choices.find(fit).unwrap_or_default()
}

/// What there is of values.
#[derive(Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
    /// Whether all are whole numbers.
    whole: bool,
    /// Whether there are none.
    empty: bool,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            return Self {
                low: 0.0,
                high: 0.0,
                whole: true,
                empty: true,
            };
        }
        Self {
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            whole: values.iter().all(|value| value.fract() == 0.0),
            empty: false,
        }
    }
}
