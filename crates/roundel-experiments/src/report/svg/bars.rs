//! Bars in groups, for places that are names.

use ::svg::node::element::{Group, Rectangle};

use super::super::label::width;
use super::super::quantity::place;
use super::axis::Axis;
use super::shapes::{class, drawable, px, range, text, told, whisker};
use super::{Frame, names};
use crate::figure::{Figure, Point};

/// The part of a group's room that its bars take.
const FILLED: f64 = 0.82;
/// Wider bars look like areas.
const WIDEST: f64 = 46.0;
/// The size of the text of values above bars.
const VALUE_FONT: f64 = 11.0;

/// The bars of a figure.
pub(super) struct Bars<'a> {
    figure: &'a Figure,
    /// What the names are.
    pub(super) title: &'a str,
    /// The names, each once, in the order in which they come.
    groups: Vec<String>,
    values: &'a Axis,
    frame: Frame,
}

impl<'a> Bars<'a> {
    pub(super) fn new(figure: &'a Figure, values: &'a Axis, frame: Frame) -> Self {
        let groups = names::in_order(figure);
        Self {
            figure,
            title: &figure.x.label,
            groups,
            values,
            frame,
        }
    }

    fn group_width(&self) -> f64 {
        (self.frame.right - self.frame.left) / self.groups.len().max(1) as f64
    }

    fn middle(&self, group: usize) -> f64 {
        self.frame.left + (group as f64 + 0.5) * self.group_width()
    }

    fn bar_width(&self) -> f64 {
        (self.group_width() * FILLED / self.figure.series.len().max(1) as f64).min(WIDEST)
    }

    /// The names below their groups, and the height of them.
    pub(super) fn labels(&self) -> (Group, f64) {
        let places = (0..self.groups.len()).map(|group| self.middle(group));
        names::draw(
            self.groups.iter().map(String::as_str).zip(places),
            self.group_width(),
            self.frame.bottom,
        )
    }

    pub(super) fn marks(&self) -> Group {
        let bar_width = self.bar_width();
        let all_width = bar_width * self.figure.series.len() as f64;
        let with_values = self.values_fit();
        let index_of = names::indices(&self.groups);
        let mut marks = Group::new();
        for (index, series) in self.figure.series.iter().enumerate() {
            for point in &series.points {
                let name = place(&point.x, self.figure.x.unit);
                let Some(group) = index_of
                    .get(name.as_str())
                    .filter(|_| drawable(point.median))
                else {
                    continue;
                };
                let left = self.middle(*group) - all_width / 2.0 + index as f64 * bar_width;
                let mut bar = self
                    .bar(index, left, point)
                    .add(told(self.figure, series, point));
                if with_values {
                    let top = range(point).map_or(point.median, |(_, high)| high.max(point.median));
                    let label = self.values.number_text(point.median);
                    let middle = left + bar_width / 2.0;
                    bar = bar.add(text(
                        "value middle",
                        middle,
                        self.y(top.max(0.0)) - 5.0,
                        label,
                    ));
                }
                marks = marks.add(bar);
            }
        }
        marks
    }

    fn bar(&self, index: usize, left: f64, point: &Point) -> Group {
        let width = self.bar_width();
        let gap = if width > 6.0 { 1.5 } else { 0.0 };
        let (zero, end) = (self.y(0.0), self.y(point.median));
        let bar = Rectangle::new()
            .set("class", class("bar", index))
            .set("x", px(left + gap / 2.0))
            .set("width", px(width - gap))
            .set("y", px(zero.min(end)))
            .set("height", px((zero - end).abs()));
        let group = Group::new().add(bar);
        match range(point) {
            Some((low, high)) => {
                let ends = (self.y(low), self.y(high));
                let middle = left + width / 2.0;
                group
                    .add(whisker("bar-whisker halo", middle, ends))
                    .add(whisker("bar-whisker", middle, ends))
            }
            None => group,
        }
    }

    /// Whether each value can be written above its bar.
    fn values_fit(&self) -> bool {
        let points = self.figure.all_points();
        let mut labels = points.map(|point| self.values.number_text(point.median));
        labels.all(|label| width(&label, VALUE_FONT) <= self.bar_width())
    }

    fn y(&self, value: f64) -> f64 {
        self.frame.y(self.values.part(value))
    }
}
