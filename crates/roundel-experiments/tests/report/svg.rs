//! Figures as SVG, read by a parser that knows nothing of how they were made.

use std::collections::HashSet;

use roundel_experiments::figure::{Figure, Point, Scale, Unit, X};
use roundel_experiments::report::to_svg;
use roxmltree::{Document, Node};

use super::sample::{self, axis, name, point, series};

fn of_class<'a, 'input>(
    document: &'a Document<'input>,
    class: &'a str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    document.descendants().filter(move |node| {
        node.attribute("class")
            .is_some_and(|classes| classes.split(' ').any(|one| one == class))
    })
}

fn number(node: Node, attribute: &str) -> f64 {
    node.attribute(attribute)
        .expect(attribute)
        .parse()
        .expect(attribute)
}

/// How far down the line at zero is.
fn zero_line(document: &Document) -> f64 {
    let line = of_class(document, "base").find(|node| node.has_tag_name("line"));
    number(line.expect("a line at zero"), "y1")
}

fn labels(document: &Document, class: &str) -> Vec<String> {
    let texts = of_class(document, class).filter(|node| node.has_tag_name("text"));
    texts
        .map(|node| node.text().unwrap_or_default().to_owned())
        .collect()
}

/// `figure` with other series, whose places and values these are.
fn with_points(mut figure: Figure, all: &[&[(f64, f64)]]) -> Figure {
    figure.series = all
        .iter()
        .map(|points| {
            let points = points
                .iter()
                .map(|(x, y)| Point::of_runs(X::Number(*x), vec![*y]));
            series("MESQ/SR", points.collect())
        })
        .collect();
    figure
}

fn without_points(svg: &str) -> bool {
    svg.contains(">no values<")
}

#[test]
fn a_figure_of_lines() {
    insta::assert_snapshot!(to_svg(&sample::lines()));
}

#[test]
fn a_figure_of_bars() {
    insta::assert_snapshot!(to_svg(&sample::bars()));
}

#[test]
fn all_figures_are_well_formed_and_always_the_same() {
    for figure in sample::report().figures() {
        let svg = to_svg(figure);
        let document =
            Document::parse(&svg).unwrap_or_else(|error| panic!("{}: {error}", figure.id));
        assert_eq!(
            document.root_element().attribute("aria-label"),
            Some(figure.title.as_str())
        );
        assert!(
            svg == to_svg(&figure.clone()),
            "{} differs from itself",
            figure.id
        );
        assert!(
            !svg.contains("NaN") && !svg.contains("inf"),
            "{}",
            figure.id
        );
    }
}

#[test]
fn bars_are_as_high_as_their_values_and_begin_at_zero() {
    let figure = sample::bars();
    let svg = to_svg(&figure);
    let document = Document::parse(&svg).unwrap();
    let zero = zero_line(&document);
    let bars: Vec<_> = of_class(&document, "bar")
        .filter(|bar| number(*bar, "y") < zero)
        .collect();
    let medians: Vec<_> = figure.all_points().map(|point| point.median).collect();
    assert_eq!(bars.len(), medians.len());
    let scale = number(bars[0], "height") / medians[0];
    for (bar, median) in bars.into_iter().zip(medians) {
        let height = number(bar, "height");
        assert!(
            (number(bar, "y") + height - zero).abs() < 0.2,
            "a bar ends at zero"
        );
        assert!(
            (height / (median * scale) - 1.0).abs() < 0.01,
            "{median} is {height} high"
        );
    }
}

#[test]
fn axes_of_values_begin_at_zero() {
    for figure in [sample::lines(), sample::bars()] {
        let svg = to_svg(&figure);
        let document = Document::parse(&svg).unwrap();
        let base = zero_line(&document);
        let mut ticks = of_class(&document, "end").filter(|node| node.has_tag_name("text"));
        let zero = ticks
            .find(|tick| tick.text() == Some("0"))
            .expect("a tick at zero");
        assert!((number(zero, "y") - base).abs() < 6.0);
    }
}

#[test]
fn bars_have_no_logarithmic_axis() {
    let mut figure = sample::bars();
    let linear = to_svg(&figure);
    figure.y.scale = Scale::Log2;
    assert!(to_svg(&figure) == linear);
}

#[test]
fn logarithmic_axes_have_powers_of_two() {
    let document = to_svg(&sample::lines());
    let document = Document::parse(&document).unwrap();
    let ticks = [
        "256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB",
    ];
    let all = labels(&document, "tick");
    assert!(
        ticks
            .iter()
            .all(|tick| all.iter().any(|label| label == tick)),
        "{all:?}"
    );
}

#[test]
fn what_has_no_logarithm_makes_the_axis_linear() {
    let mut figure = with_points(sample::lines(), &[&[(0.0, 1.0), (1024.0, 2.0)]]);
    let logarithmic = to_svg(&figure);
    figure.x.scale = Scale::Linear;
    assert!(to_svg(&figure) == logarithmic);
}

#[test]
fn sixteen_series_can_be_told_apart_without_colours() {
    let colourless = |classes: &str| {
        classes
            .split(' ')
            .find(|class| class.starts_with('r'))
            .map(str::to_owned)
    };
    let figure = sample::report().outcomes[0].figures[1].clone();
    assert_eq!(figure.series.len(), 16);
    let svg = to_svg(&figure);
    let document = Document::parse(&svg).unwrap();
    let samples: Vec<_> = of_class(&document, "name")
        .map(|name| name.parent().unwrap())
        .collect();
    let looks: HashSet<_> = samples
        .iter()
        .map(|sample| {
            let marker = sample.children().find(|node| {
                node.attribute("class")
                    .is_some_and(|class| class.starts_with("marker"))
            });
            let marker = marker.unwrap();
            // The path without where it is: how many corners it has, and how it goes on from the first.
            let path = marker.attribute("d").unwrap();
            let numbers: Vec<f64> = path
                .split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
                .filter_map(|number| number.parse().ok())
                .collect();
            let steps = numbers
                .windows(3)
                .map(|three| format!("{:.1} ", three[2] - three[0]));
            (
                steps.collect::<String>(),
                colourless(marker.attribute("class").unwrap()),
            )
        })
        .collect();
    assert_eq!(looks.len(), 16);
}

#[test]
fn legends_are_below_all_data() {
    for figure in sample::report().figures() {
        let svg = to_svg(figure);
        let document = Document::parse(&svg).unwrap();
        let base = zero_line(&document);
        let names: Vec<_> = of_class(&document, "name").collect();
        assert_eq!(names.len(), figure.series.len());
        assert!(
            names.iter().all(|name| number(*name, "y") > base + 20.0),
            "{}",
            figure.id
        );
    }
}

#[test]
fn what_cannot_be_drawn_is_counted() {
    let nan = f64::NAN;
    let figure = with_points(
        sample::lines(),
        &[&[(1.0, nan), (nan, 2.0), (2.0, 3.0)], &[(2.0, 1e300)]],
    );
    let svg = to_svg(&figure);
    assert!(
        svg.contains("3 points have no value that can be drawn"),
        "{svg}"
    );
    assert!(!without_points(&svg));
    let document = Document::parse(&svg).unwrap();
    // One of the data, two of the legend.
    assert_eq!(of_class(&document, "marker").count(), 3);
}

#[test]
fn figures_without_values_say_so() {
    let mut figure = sample::lines();
    figure.series[0].points.clear();
    figure.series.truncate(1);
    assert!(without_points(&to_svg(&figure)));
    figure.series.clear();
    assert!(without_points(&to_svg(&figure)));
    figure.x.scale = Scale::Names;
    assert!(without_points(&to_svg(&figure)));
}

#[test]
fn a_single_point_and_zeros_are_drawn() {
    for points in [
        &[(4096.0, 1e9)][..],
        &[(1.0, 0.0), (2.0, 0.0)],
        &[(3.0, 0.0)],
        &[(-1.0, -5.0)],
    ] {
        let svg = to_svg(&with_points(sample::lines(), &[points]));
        let document = Document::parse(&svg).unwrap();
        assert_eq!(of_class(&document, "marker").count(), points.len() + 1);
        assert!(!without_points(&svg));
    }
}

#[test]
fn units_are_in_the_labels_of_axes() {
    let svg = to_svg(&sample::lines());
    let document = Document::parse(&svg).unwrap();
    assert_eq!(
        labels(&document, "axis-title"),
        ["throughput per node (GB/s)", "message size"]
    );
    let svg = to_svg(&sample::bars());
    let document = Document::parse(&svg).unwrap();
    assert_eq!(
        labels(&document, "axis-title"),
        ["response time (s)", "query"]
    );
}

#[test]
fn numbers_among_names_are_names() {
    let mut figure = sample::bars();
    figure.x = axis("share", Unit::Share, Scale::Linear);
    figure.series = vec![series(
        "a",
        vec![point(X::Number(0.35), 1.0), point(name("all"), 2.0)],
    )];
    let svg = to_svg(&figure);
    let document = Document::parse(&svg).unwrap();
    let ticks = labels(&document, "tick");
    assert!(
        ["35 %", "all"]
            .iter()
            .all(|name| ticks.iter().any(|tick| tick == name)),
        "{ticks:?}"
    );
}
