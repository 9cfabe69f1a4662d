//! A figure as SVG: lines where x is a number, groups of bars where it is a name. `kuva` draws it; this module says what
//! is on it. Colours are fixed in the drawing; a style sheet replaces each by its dark one where the reader prefers that.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use kuva::backend::svg::SvgBackend;
use kuva::plot::annotations::TextAnnotation;
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{BarPlot, LinePlot, LineStyle, ScatterPlot};
use kuva::render::layout::{AxisLabelOverlap, ComputedLayout, Layout};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, Scene, render_multiple};
use kuva::render::theme::Theme;
use unicode_width::UnicodeWidthStr as _;

use super::axis::{Axis, drawable};
use super::check::MAX_POINTS;
use super::label::{clean, fit_columns};
use super::quantity::{place, quantity};
use crate::figure::{Figure, Point, Scale, Series, X};

/// A colour on light and on dark paper.
type Colour = (&'static str, &'static str);

const PAPER: Colour = ("#ffffff", "#161b22");
const INK: Colour = ("#1f2328", "#e6edf3");
const AXIS: Colour = ("#8c959f", "#7d8590");
const GRID: Colour = ("#e4e8ec", "#2a313a");
/// The colours of series: those who are colour-blind tell them apart, too.
const SERIES: [Colour; 8] = [
    ("#1a4aae", "#5d95d9"),
    ("#b43600", "#ef6c32"),
    ("#0c8654", "#44e577"),
    ("#cd64a5", "#cb88ad"),
    ("#b6a000", "#e2ce24"),
    ("#1fa9f4", "#a6e1ff"),
    ("#514f5b", "#bdd3b2"),
    ("#8135f4", "#8a77ff"),
];
/// How opaque bars are, as the end of a colour: those of the first eight series, the next eight, and all others.
const OPACITIES: [&str; 3] = ["", "70", "30"];
/// How lines are dashed, in the same rounds.
const DASHES: [Option<&str>; 3] = [None, Some("8 4"), Some("2 4")];
const MARKERS: [MarkerShape; 10] = [
    MarkerShape::Circle,
    MarkerShape::Square,
    MarkerShape::Triangle,
    MarkerShape::Diamond,
    MarkerShape::TriangleDown,
    MarkerShape::Plus,
    MarkerShape::Cross,
    MarkerShape::Star,
    MarkerShape::Pentagon,
    MarkerShape::Hexagon,
];

/// With more series than this, bands from low to high would hide each other.
const MOST_BANDS: usize = 5;
/// The part of a group's room that its bars take.
const FILLED: f64 = 0.82;
/// The size of most text in pixels.
const FONT: u32 = 12;
/// Names below bars are at least so many pixels apart where they are slanted.
const SLANTED_ROOM: f64 = 14.0;

/// Where a figure is shown.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sheet {
    /// In a file of its own, with its title and its colours for dark paper.
    File,
    /// In a page that has both.
    Page,
    /// In the same page on a narrow screen.
    NarrowPage,
}

impl Sheet {
    /// In pixels.
    fn width(self) -> f64 {
        if self == Self::NarrowPage {
            400.0
        } else {
            760.0
        }
    }

    /// The height of the rectangle of the axes.
    fn plot_height(self) -> f64 {
        if self == Self::NarrowPage {
            230.0
        } else {
            300.0
        }
    }

    /// About the width of that rectangle.
    fn plot_width(self) -> f64 {
        self.width() - 100.0
    }
}

/// `figure` as an SVG file, 760 pixels wide. The same figure gives the same text.
pub fn to_svg(figure: &Figure) -> String {
    draw(figure, Sheet::File) + "\n"
}

/// The rules that replace the colours of drawings on dark paper.
pub(super) fn dark_style() -> String {
    let mut css = String::from("@media (prefers-color-scheme: dark) {\n");
    let mut replace = |(light, dark): Colour, opacity: &str| {
        for attribute in ["fill", "stroke"] {
            writeln!(
                css,
                "  [{attribute}=\"{light}{opacity}\"] {{ {attribute}: {dark}{opacity}; }}"
            )
            .expect("a string takes all that is written");
        }
    };
    for colour in [PAPER, INK, AXIS, GRID] {
        replace(colour, "");
    }
    for opacity in OPACITIES {
        for colour in SERIES {
            replace(colour, opacity);
        }
    }
    css + "}\n"
}

/// `figure` for `sheet`.
pub(super) fn draw(figure: &Figure, sheet: Sheet) -> String {
    let bars = has_bars(figure);
    let values = Axis::of_values(figure, bars);
    let (plots, layout, drawn) = if bars {
        Bars::of(figure, &values).draw(sheet)
    } else {
        lines(figure, &values, sheet)
    };
    let mut layout = layout
        .with_width(sheet.width())
        .with_y_label(label(&values.title, 90))
        .with_y_label_wrap(sheet.plot_height() as usize / 6)
        .with_x_label_wrap(sheet.plot_width() as usize / 9)
        .with_title_size(17)
        .with_label_size(FONT + 1)
        .with_tick_size(FONT)
        .with_body_size(FONT)
        .with_theme(theme())
        .with_font_family("system-ui, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif")
        .with_legend_position(LegendPosition::OutsideBottomColumns)
        .with_legend_box(false)
        .with_legend_entries(legend(figure, bars));
    if sheet == Sheet::File {
        let wrapped = sheet.width() as usize / 10;
        layout = layout
            .with_title(label(&figure.title, 180))
            .with_title_wrap(wrapped);
    }
    if let Some(note) = note(figure, &values, drawn) {
        layout = layout.with_subtitle(note).with_subtitle_size(FONT);
    }
    let computed = ComputedLayout::from_layout(&layout);
    let height = computed.margin_top + sheet.plot_height() + computed.margin_bottom;
    let mut scene = render_multiple(plots, layout.with_height(height));
    // All is inside of the axes. What would cut off the rest has a name that differs from drawing to drawing.
    scene.defs.clear();
    scene
        .elements
        .retain(|one| !matches!(one, Primitive::ClipStart { .. } | Primitive::ClipEnd));
    if sheet == Sheet::File {
        scene
            .defs
            .push(format!("<style>\n{}</style>", dark_style()));
    }
    scalable(&scene)
}

/// The text of `scene`, which has the size of the place where it is shown.
fn scalable(scene: &Scene) -> String {
    let view = format!("<svg viewBox=\"0 0 {} {}\" ", scene.width, scene.height);
    SvgBackend.render_scene(scene).replacen("<svg ", &view, 1)
}

fn theme() -> Theme {
    Theme {
        background: PAPER.0.to_owned(),
        axis_color: AXIS.0.to_owned(),
        grid_color: GRID.0.to_owned(),
        tick_color: AXIS.0.to_owned(),
        text_color: INK.0.to_owned(),
        ..Theme::light()
    }
}

/// `text` in at most so many columns, as the library takes it: mathematics between dollar signs is not meant.
fn label(text: &str, columns: usize) -> String {
    fit_columns(text, columns).replace('$', "\\$")
}

/// Names below bars, or numbers?
fn has_bars(figure: &Figure) -> bool {
    let mut points = figure.all_points();
    figure.x.scale == Scale::Names || points.any(|point| matches!(point.x, X::Name(_)))
}

fn colour(series: usize) -> &'static str {
    SERIES[series % SERIES.len()].0
}

/// Which of the ways to draw the same colour a series has.
fn round(series: usize) -> usize {
    (series / SERIES.len()).min(OPACITIES.len() - 1)
}

fn bar_colour(series: usize) -> String {
    format!("{}{}", colour(series), OPACITIES[round(series)])
}

fn legend(figure: &Figure, bars: bool) -> Vec<LegendEntry> {
    let entry = |(index, series): (usize, &Series)| LegendEntry {
        label: label(&series.name, 44),
        color: if bars {
            bar_colour(index)
        } else {
            colour(index).to_owned()
        },
        shape: if bars {
            LegendShape::Rect
        } else {
            LegendShape::Marker(MARKERS[index % MARKERS.len()])
        },
        dasharray: None,
    };
    figure.series.iter().enumerate().map(entry).collect()
}

/// How many points are not drawn, and what is above the axis.
fn note(figure: &Figure, values: &Axis, drawn: usize) -> Option<String> {
    let missing = match figure.all_points().count() - drawn {
        _ if drawn == 0 => Some("no values".to_owned()),
        0 => None,
        1 => Some("1 point is not drawn".to_owned()),
        count => Some(format!("{count} points are not drawn")),
    };
    let above = figure.series.iter().filter(|one| values.is_below(one));
    let above: Vec<_> = above.map(|series| series.name.as_str()).collect();
    let above = match above[..] {
        [] => None,
        _ => Some(label(&format!("above the axis: {}", above.join(", ")), 90)),
    };
    let notes: Vec<_> = missing.into_iter().chain(above).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// The lowest and highest of the runs of `point`, where both can be drawn and differ.
fn range(point: &Point) -> Option<(f64, f64)> {
    let both = drawable(point.low) && drawable(point.high);
    (both && point.low < point.high).then_some((point.low, point.high))
}

/// What is told of a point when it is pointed at.
fn told(figure: &Figure, series: &Series, point: &Point) -> String {
    let unit = figure.y.unit;
    let runs = if point.runs == 1 { "run" } else { "runs" };
    format!(
        "{} at {}: {}, {} to {} in {} {runs}",
        clean(&series.name),
        clean(&place(&point.x, figure.x.unit)),
        quantity(point.median, unit),
        quantity(point.low, unit),
        quantity(point.high, unit),
        point.runs,
    )
}

/// Lines with markers, and bands or whiskers from the lowest run to the highest.
fn lines(figure: &Figure, values: &Axis, sheet: Sheet) -> (Vec<Plot>, Layout, usize) {
    let places = Axis::of_places(figure);
    let bands = figure.series.len() <= MOST_BANDS;
    let (mut plots, mut drawn) = (Vec::new(), 0);
    for (index, series) in figure.series.iter().enumerate() {
        let points = series.points.iter();
        let mut points: Vec<(f64, &Point)> = points
            .filter_map(|point| match point.x {
                X::Number(x) if drawable(x) && drawable(point.median) => {
                    Some((places.at(x), point))
                }
                _ => None,
            })
            .collect();
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        drawn += points.len();
        // Where the ends cannot be drawn, the median is both.
        let ends = |point: &Point| {
            let (low, high) = range(point).unwrap_or((point.median, point.median));
            (values.at(low), values.at(high))
        };
        let data = || {
            let places = points.iter();
            places.map(|(x, point)| (*x, values.at(point.median)))
        };
        let mut line = LinePlot::new()
            .with_data(data())
            .with_color(colour(index))
            .with_stroke_width(2.0);
        if let Some(dashes) = DASHES[round(index)] {
            line = line.with_line_style(LineStyle::Custom(dashes.to_owned()));
        }
        if points.iter().any(|(_, point)| range(point).is_some()) {
            if bands && points.len() > 1 {
                let (low, high): (Vec<f64>, Vec<f64>) =
                    points.iter().map(|(_, point)| ends(point)).unzip();
                line = line.with_band(low, high);
            } else {
                let whiskers = points.iter().map(|(_, point)| {
                    let (low, high) = ends(point);
                    let median = values.at(point.median);
                    ((median - low).max(0.0), (high - median).max(0.0))
                });
                line = line.with_y_err_asymmetric(whiskers);
            }
        }
        let texts = points.iter().map(|(_, point)| told(figure, series, point));
        let markers = ScatterPlot::new()
            .with_data(data())
            .with_color(colour(index))
            .with_marker(MARKERS[index % MARKERS.len()])
            .with_size(4.5)
            .with_tooltips()
            .with_tooltip_labels(texts);
        plots.extend([Plot::Line(line), Plot::Scatter(markers)]);
    }
    let layout = Layout::new(places.range, values.range).with_x_label(label(&places.title, 110));
    let layout = places.on_x(layout, sheet.plot_width());
    (plots, values.on_y(layout, sheet.plot_height()), drawn)
}

/// Bars in groups, for places that are names.
struct Bars<'a> {
    figure: &'a Figure,
    values: &'a Axis,
    /// The names, each once, in the order in which they come, as far as there is room for bars at all of them.
    names: Vec<String>,
    /// What each series has at a name, by its index.
    points: HashMap<(usize, String), &'a Point>,
}

impl<'a> Bars<'a> {
    fn of(figure: &'a Figure, values: &'a Axis) -> Self {
        let unit = figure.x.unit;
        let mut known = HashSet::new();
        let names = figure
            .all_points()
            .map(|point| place(&point.x, unit))
            .filter(|name| known.insert(name.clone()))
            .take(MAX_POINTS / figure.series.len().max(1))
            .collect();
        let mut points = HashMap::new();
        for (index, series) in figure.series.iter().enumerate() {
            for point in series.points.iter().filter(|one| drawable(one.median)) {
                let key = (index, place(&point.x, unit));
                points.entry(key).or_insert(point);
            }
        }
        Self {
            figure,
            values,
            names,
            points,
        }
    }

    fn draw(&self, sheet: Sheet) -> (Vec<Plot>, Layout, usize) {
        let (figure, values) = (self.figure, self.values);
        let mut plot = BarPlot::new().with_width(FILLED);
        let (mut texts, mut whiskers, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let width = FILLED / figure.series.len().max(1) as f64;
        for (group, name) in self.names.iter().enumerate() {
            let mut bars = Vec::new();
            for (index, series) in figure.series.iter().enumerate() {
                let found = self.points.get(&(index, name.clone())).copied();
                let (median, (low, high)) = found.map_or((0.0, (0.0, 0.0)), |point| {
                    let ends = range(point).unwrap_or((point.median, point.median));
                    (point.median, ends)
                });
                bars.push((values.at(median), bar_colour(index)));
                let [low, median, high] = [low, median, high].map(|value| values.at(value));
                whiskers.push(((median - low).max(0.0), (high - median).max(0.0)));
                texts.push(found.map_or_else(
                    || format!("{} at {}: no value", clean(&series.name), clean(name)),
                    |point| told(figure, series, point),
                ));
                if let Some(point) = found {
                    let middle = group as f64 + 1.0 + width * (index as f64 + 0.5) - FILLED / 2.0;
                    let number = values.scaled.number(point.median);
                    numbers.push((number, middle, high.max(median).max(0.0)));
                }
            }
            plot = plot.with_group(label(name, 40), bars);
        }
        plot = plot.with_tooltips().with_tooltip_labels(texts);
        if figure.all_points().any(|point| range(point).is_some()) {
            plot = plot.with_asymmetric_error(whiskers).with_error_color(INK.0);
        }
        let drawn = numbers.len();
        let mut layout = self.layout(sheet);
        let bar_width = width * sheet.plot_width() / self.names.len().max(1) as f64;
        if numbers
            .iter()
            .all(|(text, ..)| text_width(text) <= bar_width)
        {
            for (text, x, y) in numbers {
                let text = TextAnnotation::new(text, x, y)
                    .with_color(INK.0)
                    .with_font_size(FONT - 1);
                layout = layout.with_annotation(text);
            }
        }
        (vec![Plot::Bar(plot)], layout, drawn)
    }

    fn layout(&self, sheet: Sheet) -> Layout {
        let labels: Vec<String> = self.names.iter().map(|name| label(name, 40)).collect();
        let room = sheet.plot_width() / labels.len().max(1) as f64;
        let fit = labels.iter().all(|label| text_width(label) + 8.0 <= room);
        let ends = (0.5, labels.len().max(1) as f64 + 0.5);
        let mut layout = Layout::new(ends, self.values.range)
            .with_x_label(label(&self.figure.x.label, 110))
            .with_x_categories(labels);
        if !fit {
            layout = layout.with_x_tick_rotate(-40.0);
        }
        // Where there is no room for all, some are left to be pointed at.
        if !fit && room < SLANTED_ROOM {
            layout = layout.with_x_label_overlap(AxisLabelOverlap::Thin);
        }
        self.values.on_y(layout, sheet.plot_height())
    }
}

/// About how many pixels wide `text` is.
fn text_width(text: &str) -> f64 {
    text.width() as f64 * f64::from(FONT) * 0.62
}
