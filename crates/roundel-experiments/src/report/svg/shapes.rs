//! The shapes that figures are made of, and what tells series apart: eight colours that those who
//! are colour-blind tell apart too, each with a marker of its own; the next eight series have the
//! same colours with dashed lines and hollow marks, all others with dotted lines.

use std::fmt::Write as _;

use ::svg::node::element::{Element, Path};
use ::svg::node::{Node as _, Text as TextNode};

use super::super::label::clean;
use super::super::quantity::{place, quantity};
use crate::figure::{Figure, Point, Series};

/// The size of most text in pixels.
pub(super) const FONT: f64 = 13.0;

/// Colours in the style sheet.
const COLOURS: usize = 8;
/// Ways to draw a colour in the style sheet.
const ROUNDS: usize = 3;

/// Larger numbers are not drawn: differences of them are not finite.
const LARGEST: f64 = 1e100;

/// Whether `value` has a place on an axis.
pub(super) fn drawable(value: f64) -> bool {
    value.is_finite() && value.abs() <= LARGEST
}

/// The classes of the series of this index, which say its colour and how it is drawn.
pub(super) fn class(kind: &str, series: usize) -> String {
    let round = (series / COLOURS).min(ROUNDS - 1);
    format!("{kind} s{} r{round}", series % COLOURS)
}

/// A length or a place, with tenths of a pixel.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

/// Text of `class` that begins at `x`, unless the class says otherwise.
pub(super) fn text(class: &str, x: f64, y: f64, content: String) -> Element {
    let mut text = leaf("text", content);
    text.assign("class", class);
    text.assign("x", px(x));
    text.assign("y", px(y));
    text
}

/// What is told when something is pointed at.
pub(super) fn title(content: String) -> Element {
    leaf("title", content)
}

/// An element with text only. The crate's own ones put the text in lines of its own, which readers
/// other than browsers take for a part of it.
fn leaf(name: &str, content: String) -> Element {
    let mut element = Element::new(name);
    element.append(TextNode::new(content));
    element
}

/// What is told of a point when it is pointed at.
pub(super) fn told(figure: &Figure, series: &Series, point: &Point) -> Element {
    let unit = figure.y.unit;
    let runs = if point.runs == 1 { "run" } else { "runs" };
    title(format!(
        "{} at {}: {}, {} to {} in {} {runs}",
        clean(&series.name),
        clean(&place(&point.x, figure.x.unit)),
        quantity(point.median, unit),
        quantity(point.low, unit),
        quantity(point.high, unit),
        point.runs,
    ))
}

/// The lowest and highest of the runs of `point`, where both can be drawn and differ.
pub(super) fn range(point: &Point) -> Option<(f64, f64)> {
    let both = drawable(point.low) && drawable(point.high);
    (both && point.low < point.high).then_some((point.low, point.high))
}

/// A vertical line with a bar at either end.
pub(super) fn whisker(class: &str, x: f64, (from, to): (f64, f64)) -> Path {
    let (left, right, x, from, to) = (px(x - 3.0), px(x + 3.0), px(x), px(from), px(to));
    let path = format!("M{left} {from}H{right}M{x} {from}V{to}M{left} {to}H{right}");
    Path::new().set("class", class).set("d", path)
}

/// The marker of the series of this index, around a place.
pub(super) fn marker(series: usize, x: f64, y: f64) -> Path {
    // Corners as seen from the middle; all have about the same area.
    const SQUARE: &[(f64, f64)] = &[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)];
    const UP: &[(f64, f64)] = &[(0.0, -5.0), (4.8, 3.4), (-4.8, 3.4)];
    const DOWN: &[(f64, f64)] = &[(0.0, 5.0), (4.8, -3.4), (-4.8, -3.4)];
    const DIAMOND: &[(f64, f64)] = &[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)];
    const PLUS: &[(f64, f64)] = &[
        (-1.6, -4.8),
        (1.6, -4.8),
        (1.6, -1.6),
        (4.8, -1.6),
        (4.8, 1.6),
        (1.6, 1.6),
        (1.6, 4.8),
        (-1.6, 4.8),
        (-1.6, 1.6),
        (-4.8, 1.6),
        (-4.8, -1.6),
        (-1.6, -1.6),
    ];
    const CROSS: &[(f64, f64)] = &[
        (0.0, -2.2),
        (2.6, -4.8),
        (4.8, -2.6),
        (2.2, 0.0),
        (4.8, 2.6),
        (2.6, 4.8),
        (0.0, 2.2),
        (-2.6, 4.8),
        (-4.8, 2.6),
        (-2.2, 0.0),
        (-4.8, -2.6),
        (-2.6, -4.8),
    ];
    const SAND_GLASS: &[(f64, f64)] = &[(-4.4, -4.8), (4.4, -4.8), (-4.4, 4.8), (4.4, 4.8)];
    let path = match series % COLOURS {
        0 => format!("M{} {}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", px(x - 4.0), px(y)),
        1 => outline(SQUARE, x, y),
        2 => outline(UP, x, y),
        3 => outline(DIAMOND, x, y),
        4 => outline(DOWN, x, y),
        5 => outline(PLUS, x, y),
        6 => outline(CROSS, x, y),
        _ => outline(SAND_GLASS, x, y),
    };
    Path::new()
        .set("class", class("marker", series))
        .set("d", path)
}

fn outline(corners: &[(f64, f64)], x: f64, y: f64) -> String {
    path(corners.iter().map(|(dx, dy)| (x + dx, y + dy))) + "Z"
}

/// Straight lines from one place to the next.
pub(super) fn path(places: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (index, (x, y)) in places.enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        write!(path, "{command}{} {}", px(x), px(y)).expect("a string takes all that is written");
    }
    path
}
