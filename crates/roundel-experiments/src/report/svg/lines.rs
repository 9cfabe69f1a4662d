//! Lines with markers, for places that are numbers.

use ::svg::node::element::{Group, Path};

use super::Frame;
use super::axis::Axis;
use super::shapes::{class, drawable, marker, path, px, range, text, told, whisker};
use crate::figure::{Figure, Point, X};

/// With more series than this, bands from low to high would hide each other.
const MOST_BANDS: usize = 5;
/// Between the frame and the first and last places.
const INSET: f64 = 14.0;
/// The room of the ticks' labels.
const LABELS_HEIGHT: f64 = 22.0;

/// The lines of a figure.
pub(super) struct Lines<'a> {
    figure: &'a Figure,
    pub(super) x: Axis,
    values: &'a Axis,
    frame: Frame,
}

impl<'a> Lines<'a> {
    pub(super) fn new(figure: &'a Figure, values: &'a Axis, frame: Frame) -> Self {
        let room = frame.right - frame.left - 2.0 * INSET;
        Self {
            figure,
            x: Axis::of_places(figure, room),
            values,
            frame,
        }
    }

    fn x(&self, part: f64) -> f64 {
        let Frame { left, right, .. } = self.frame;
        left + INSET + part * (right - left - 2.0 * INSET)
    }

    /// The x axis below the frame, and its height.
    pub(super) fn labels(&self) -> (Group, f64) {
        let Frame { bottom, .. } = self.frame;
        let labels = self.x.ticks.iter().fold(Group::new(), |group, tick| {
            let x = self.x(tick.part);
            let mark = Path::new()
                .set("class", "base")
                .set("d", format!("M{} {}v5", px(x), px(bottom)));
            group
                .add(mark)
                .add(text("tick middle", x, bottom + 20.0, tick.label.clone()))
        });
        (labels, LABELS_HEIGHT)
    }

    pub(super) fn marks(&self) -> Group {
        let bands = self.figure.series.len() <= MOST_BANDS;
        let mut ranges = Group::new();
        let mut lines = Group::new();
        for (index, series) in self.figure.series.iter().enumerate() {
            let mut points: Vec<_> = series
                .points
                .iter()
                .filter_map(|point| self.place(point))
                .collect();
            points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            if bands && points.len() > 1 {
                ranges = ranges.add(self.band(index, &points));
            } else {
                for (x, point) in &points {
                    if let Some((low, high)) = range(point) {
                        let ends = (self.y(low), self.y(high));
                        ranges = ranges.add(whisker(&class("whisker", index), *x, ends));
                    }
                }
            }
            // It goes on over points that cannot be drawn; below the figure is how many there are.
            let places = points.iter().map(|(x, point)| (*x, self.y(point.median)));
            let mut group = Group::new().add(
                Path::new()
                    .set("class", class("line", index))
                    .set("d", path(places)),
            );
            for (x, point) in &points {
                let marker = marker(index, *x, self.y(point.median));
                group = group.add(marker.add(told(self.figure, series, point)));
            }
            lines = lines.add(group);
        }
        Group::new().add(ranges).add(lines)
    }

    /// From the lowest to the highest runs; where they cannot be drawn, the median is both.
    fn band(&self, index: usize, points: &[(f64, &Point)]) -> Path {
        let ends = |point: &Point| range(point).unwrap_or((point.median, point.median));
        let above = points.iter().map(|(x, point)| (*x, self.y(ends(point).1)));
        let below = points
            .iter()
            .rev()
            .map(|(x, point)| (*x, self.y(ends(point).0)));
        Path::new()
            .set("class", class("band", index))
            .set("d", path(above.chain(below)) + "Z")
    }

    fn place<'p>(&self, point: &'p Point) -> Option<(f64, &'p Point)> {
        match point.x {
            X::Number(x) if drawable(x) && drawable(point.median) => {
                Some((self.x(self.x.part(x)), point))
            }
            _ => None,
        }
    }

    fn y(&self, value: f64) -> f64 {
        self.frame.y(self.values.part(value))
    }
}
