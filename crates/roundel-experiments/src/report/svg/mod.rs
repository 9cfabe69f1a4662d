//! A figure as SVG: lines where x is a number, groups of bars where it is a name.
//!
//! This module composes the parts and knows how much room each takes; the parts know nothing of
//! each other. Plotting crates draw with fixed colours and inside of the axes; here colours follow
//! the reader's preference, and the legend has its own place.

mod axis;
mod bars;
mod legend;
mod lines;
mod names;
mod shapes;

use ::svg::node::element::{Group, Line, Rectangle, SVG, Style};

use self::axis::Axis;
use self::bars::Bars;
use self::lines::Lines;
use self::shapes::{FONT, drawable, px, text};
use super::label::{clean, fit, width};
use crate::figure::{Figure, Point, Scale, X};

/// How figures look, here and in pages that have them inline.
pub(super) const CSS: &str = include_str!("figure.css");

/// Where a figure is shown.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sheet {
    /// In a file of its own, with its title and its style.
    File,
    /// In a page that has the title and the style.
    Page,
    /// In the same page on a narrow screen.
    NarrowPage,
}

impl Sheet {
    /// In pixels, as all lengths here.
    fn width(self) -> f64 {
        if self == Self::NarrowPage {
            400.0
        } else {
            760.0
        }
    }

    /// What the left and the top of the sheet leave free. A page has margins of its own.
    fn margin(self) -> f64 {
        if self == Self::File { 14.0 } else { 0.0 }
    }

    /// The room between the margins.
    fn room(self) -> f64 {
        self.width() - 2.0 * self.margin()
    }

    /// The height of the rectangle of the axes.
    fn plot_height(self) -> f64 {
        if self == Self::NarrowPage {
            230.0
        } else {
            300.0
        }
    }
}

/// The rectangle of the axes.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// The marks of a figure, of either kind.
enum Plot<'a> {
    Lines(Lines<'a>),
    Bars(Bars<'a>),
}

/// Between the lines of labels.
const LINE_HEIGHT: f64 = 18.0;
/// The size of the title, and how much of it bold letters are wider.
const TITLE_FONT: f64 = 17.0 * 1.15;
/// Room for the first and last labels of the x axis, which are wider than their ticks.
const RIGHT_MARGIN: f64 = 28.0;

/// `figure` as an SVG file, 760 pixels wide. The same figure gives the same text.
pub fn to_svg(figure: &Figure) -> String {
    draw(figure, Sheet::File).to_string() + "\n"
}

/// `figure` for `sheet`.
pub(super) fn draw(figure: &Figure, sheet: Sheet) -> SVG {
    let mut parts = Vec::new();
    let margin = sheet.margin();
    let mut y = margin;
    if sheet == Sheet::File {
        let title = fit(&figure.title, TITLE_FONT, sheet.room());
        parts.push(Group::new().add(text("title", margin, y + 16.0, title)));
        y += 34.0;
    }
    let has_names = figure
        .all_points()
        .any(|point| matches!(point.x, X::Name(_)));
    let bars = has_names || figure.x.scale == Scale::Names;
    let values = Axis::of_values(figure, bars);
    y += 12.0;
    let values_title = fit(&values.title, FONT, sheet.room());
    parts.push(Group::new().add(text("axis-title", margin, y, values_title)));

    let ticks_width = values
        .ticks
        .iter()
        .map(|tick| width(&tick.label, FONT))
        .fold(0.0, f64::max);
    let frame = Frame {
        left: margin + ticks_width + 8.0,
        right: sheet.width() - RIGHT_MARGIN,
        top: y + 24.0,
        bottom: y + 24.0 + sheet.plot_height(),
    };
    parts.push(grid(&values, frame));
    let plot = if bars {
        Plot::Bars(Bars::new(figure, &values, frame))
    } else {
        Plot::Lines(Lines::new(figure, &values, frame))
    };
    let (labels, labels_height) = plot.labels();
    parts.push(labels);
    parts.push(plot.marks());
    parts.push(base_line(&values, frame));
    y = frame.bottom + labels_height + 22.0;
    let x_title = fit(plot.x_title(), FONT, sheet.room());
    if !x_title.is_empty() {
        // In the middle of the plot, or of the sheet where it is too wide for that.
        let half = width(&x_title, FONT) / 2.0;
        let middle = f64::midpoint(frame.left, frame.right);
        let middle = middle.min(sheet.width() - margin - half).max(margin + half);
        parts.push(Group::new().add(text("axis-title middle", middle, y, x_title)));
        y += LINE_HEIGHT;
    }

    let names = figure.series.iter().map(|series| series.name.as_str());
    let (legend, height) = legend::draw(names, bars, (margin, y), sheet.room());
    parts.push(legend);
    y += height;
    if let Some(note) = note(figure, &plot) {
        y += LINE_HEIGHT;
        parts.push(Group::new().add(text("note", margin, y - 2.0, note)));
    }
    if !figure.all_points().any(|point| plot.has(point)) {
        let (x, y) = (
            f64::midpoint(frame.left, frame.right),
            f64::midpoint(frame.top, frame.bottom),
        );
        parts.push(Group::new().add(text("note middle", x, y, "no values".to_owned())));
    }
    assemble(figure, sheet, y + margin, parts)
}

fn assemble(figure: &Figure, sheet: Sheet, height: f64, parts: Vec<Group>) -> SVG {
    let (width, height) = (px(sheet.width()), px(height));
    let mut svg = SVG::new()
        .set("viewBox", format!("0 0 {width} {height}"))
        .set("role", "img")
        .set("aria-label", clean(&figure.title))
        .set("class", "fig");
    if sheet == Sheet::File {
        let paper = Rectangle::new()
            .set("class", "paper")
            .set("width", "100%")
            .set("height", "100%");
        svg = svg
            .set("width", width)
            .set("height", height)
            .add(Style::new(CSS))
            .add(paper);
    }
    parts.into_iter().fold(svg, SVG::add)
}

fn grid(values: &Axis, frame: Frame) -> Group {
    values.ticks.iter().fold(Group::new(), |group, tick| {
        let y = frame.y(tick.part);
        let label = text("tick end", frame.left - 8.0, y + 4.5, tick.label.clone());
        group.add(horizontal("grid", frame, y)).add(label)
    })
}

/// Where values begin: at 0, or at the lower end of a logarithmic axis.
fn base_line(values: &Axis, frame: Frame) -> Group {
    Group::new().add(horizontal("base", frame, frame.y(values.part(0.0))))
}

fn horizontal(class: &str, frame: Frame, y: f64) -> Line {
    Line::new()
        .set("class", class)
        .set("x1", px(frame.left))
        .set("x2", px(frame.right))
        .set("y1", px(y))
        .set("y2", px(y))
}

/// How many points are not drawn.
fn note(figure: &Figure, plot: &Plot) -> Option<String> {
    let points = figure.all_points();
    let left_out = points.filter(|point| !plot.has(point)).count();
    match left_out {
        0 => None,
        1 => Some("1 point has no value that can be drawn".to_owned()),
        count => Some(format!("{count} points have no value that can be drawn")),
    }
}

impl Plot<'_> {
    fn labels(&self) -> (Group, f64) {
        match self {
            Self::Lines(lines) => lines.labels(),
            Self::Bars(bars) => bars.labels(),
        }
    }

    fn marks(&self) -> Group {
        match self {
            Self::Lines(lines) => lines.marks(),
            Self::Bars(bars) => bars.marks(),
        }
    }

    fn x_title(&self) -> &str {
        match self {
            Self::Lines(lines) => &lines.x.title,
            Self::Bars(bars) => bars.title,
        }
    }

    /// Whether `point` can be drawn.
    fn has(&self, point: &Point) -> bool {
        let x = match (self, &point.x) {
            (Self::Lines(_), X::Number(x)) => drawable(*x),
            (Self::Lines(_), X::Name(_)) => false,
            (Self::Bars(_), _) => true,
        };
        x && drawable(point.median)
    }
}

impl Frame {
    /// Where a part of the height is, from the bottom.
    fn y(self, part: f64) -> f64 {
        self.bottom - part * (self.bottom - self.top)
    }
}
