//! Names on the x axis: in one line where there is room, else in a few lines, else at an angle.

use std::collections::{HashMap, HashSet};

use ::svg::node::Node as _;
use ::svg::node::element::Group;

use super::super::label::{clean, fit, width};
use super::super::quantity::place;
use super::shapes::{FONT, px, text, title};
use crate::figure::Figure;

const LINE_HEIGHT: f64 = 16.0;
const MOST_LINES: usize = 3;
/// Between two names in the same line.
const GAP: f64 = 10.0;
/// A name that is not upright has no more than this.
const LONGEST: f64 = 150.0;
/// The slant in degrees.
const SLANT: f64 = 40.0;
/// Names that are not upright overlap where they are closer than this, seen across.
const CLOSEST: f64 = 15.0;
/// Slanted names begin at least this far from the edge.
const MARGIN: f64 = 4.0;

/// The places of `figure` as they are written, each once, in the order in which they come.
pub(super) fn in_order(figure: &Figure) -> Vec<String> {
    let mut seen = HashSet::new();
    let points = figure.all_points();
    points
        .map(|point| place(&point.x, figure.x.unit))
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

/// Where each of `names` is among them.
pub(super) fn indices(names: &[String]) -> HashMap<&str, usize> {
    names
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), index))
        .collect()
}

/// Names with their middles, each with `room`, below `y`; and how high they are.
pub(super) fn draw<'a>(
    names: impl Iterator<Item = (&'a str, f64)>,
    room: f64,
    y: f64,
) -> (Group, f64) {
    let names: Vec<_> = names.map(|(name, x)| (clean(name), x)).collect();
    let lines: Option<Vec<_>> = names
        .iter()
        .map(|(name, _)| lines(name, room - GAP))
        .collect();
    match lines {
        Some(lines) => upright(&names, &lines, y),
        None => turned(&names, room, y),
    }
}

/// `name` in a few lines of at most `room`, if that can be.
fn lines(name: &str, room: f64) -> Option<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ').filter(|word| !word.is_empty()) {
        if width(word, FONT) > room {
            return None;
        }
        let longer = lines.last().map(|line| format!("{line} {word}"));
        match (lines.last_mut(), longer) {
            (Some(line), Some(longer)) if width(&longer, FONT) <= room => *line = longer,
            _ => lines.push(word.to_owned()),
        }
    }
    (lines.len() <= MOST_LINES).then_some(lines)
}

fn upright(names: &[(String, f64)], lines: &[Vec<String>], y: f64) -> (Group, f64) {
    let mut group = Group::new();
    let mut most = 1;
    for ((_, x), lines) in names.iter().zip(lines) {
        most = most.max(lines.len());
        for (index, line) in lines.iter().enumerate() {
            let y = y + 20.0 + index as f64 * LINE_HEIGHT;
            group = group.add(text("tick middle", *x, y, line.clone()));
        }
    }
    (group, 6.0 + most as f64 * LINE_HEIGHT)
}

/// Names at an angle that end below their bars: slanted, or straight up where the first ones would
/// begin left of the figure.
fn turned(names: &[(String, f64)], room: f64, y: f64) -> (Group, f64) {
    let length = |name: &str| width(name, FONT).min(LONGEST);
    let (sin, cos) = SLANT.to_radians().sin_cos();
    let slanted = names
        .iter()
        .all(|(name, x)| x - MARGIN >= length(name) * cos);
    let (degrees, sin) = if slanted { (SLANT, sin) } else { (90.0, 1.0) };
    let mut group = Group::new();
    let mut height: f64 = 0.0;
    // Where there is no room for all, some are left to be pointed at.
    let every = (CLOSEST / (room * sin)).ceil().max(1.0) as usize;
    for (name, x) in names.iter().step_by(every) {
        let short = fit(name, FONT, LONGEST);
        height = height.max(width(&short, FONT) * sin);
        let (x, y) = (x + 4.0, y + if slanted { 15.0 } else { 8.0 });
        let mut label = text("tick end", x, y, short);
        label.assign(
            "transform",
            format!("rotate(-{degrees} {} {})", px(x), px(y)),
        );
        group = group.add(Group::new().add(label).add(title(name.clone())));
    }
    (group, 16.0 + height)
}
