//! What tells which series is which: below the plot, where it covers nothing.

use ::svg::node::element::{Group, Path, Rectangle};

use super::super::label::{clean, fit, width};
use super::shapes::{FONT, class, marker, px, text, title};

/// From the left of a line's sample to its name.
const LINE_SAMPLE: f64 = 36.0;
/// From the left of a bar's sample to its name.
const BAR_SAMPLE: f64 = 28.0;
/// Between columns.
const GAP: f64 = 18.0;
/// A name has no more than this, so that there are at least two columns on a wide sheet.
const LONGEST: f64 = 310.0;
const LINE_HEIGHT: f64 = 22.0;

/// The legend in columns of equal width, from `corner` on, and its height.
pub(super) fn draw<'a>(
    names: impl Iterator<Item = &'a str>,
    bars: bool,
    corner: (f64, f64),
    room: f64,
) -> (Group, f64) {
    let sample_width = if bars { BAR_SAMPLE } else { LINE_SAMPLE };
    let longest = LONGEST.min(room - sample_width);
    let names: Vec<_> = names.map(|name| (name, fit(name, FONT, longest))).collect();
    let widest = names
        .iter()
        .map(|(_, short)| width(short, FONT))
        .fold(0.0, f64::max);
    let column = sample_width + widest + GAP;
    let columns = (((room + GAP) / column) as usize).clamp(1, names.len().max(1));
    let rows = names.len().div_ceil(columns);
    let mut legend = Group::new();
    for (index, (name, short)) in names.into_iter().enumerate() {
        let x = corner.0 + (index % columns) as f64 * column;
        let y = corner.1 + (index / columns) as f64 * LINE_HEIGHT + LINE_HEIGHT / 2.0;
        let sample = if bars {
            bar(index, x, y)
        } else {
            line(index, x, y)
        };
        let whole = title(clean(name));
        legend = legend.add(
            sample
                .add(text("name", x + sample_width, y + 4.5, short))
                .add(whole),
        );
    }
    (legend, rows as f64 * LINE_HEIGHT)
}

fn line(series: usize, x: f64, y: f64) -> Group {
    let line = Path::new()
        .set("class", class("line", series))
        .set("d", format!("M{} {}h28", px(x), px(y)));
    Group::new().add(line).add(marker(series, x + 14.0, y))
}

fn bar(series: usize, x: f64, y: f64) -> Group {
    let bar = Rectangle::new()
        .set("class", class("bar", series))
        .set("x", px(x + 0.5))
        .set("y", px(y - 6.0))
        .set("width", 20)
        .set("height", 12);
    Group::new().add(bar)
}
