//! Figures as SVG, read by a parser that knows nothing of how they were made.

use std::collections::HashSet;

use roundel_experiments::figure::{Figure, Point, Scale, Unit, X};
use roundel_experiments::report::to_svg;
use roxmltree::{Document, Node};

use super::sample::{self, axis, name, point, series};

/// The colours of the first series.
const COLOURS: [&str; 3] = ["#1a4aae", "#b43600", "#0c8654"];

fn number(node: Node, attribute: &str) -> f64 {
    node.attribute(attribute)
        .expect(attribute)
        .parse()
        .expect(attribute)
}

/// All texts, without those that are told when something is pointed at. Lines of the same label are apart.
fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let texts = document.descendants();
    let texts = texts.filter(|node| node.has_tag_name("text"));
    texts
        .map(|node| node.text().unwrap_or_default().to_owned())
        .collect()
}

/// What is told when something is pointed at.
fn told(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let titles = document.descendants();
    let titles = titles.filter(|node| node.has_tag_name("title"));
    titles
        .map(|node| node.text().unwrap_or_default().to_owned())
        .collect()
}

/// The bars of the first series, of each the height and where it ends below.
fn bars(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let document = Document::parse(svg).unwrap();
    let of_colour = |colour: &&str| {
        let bars = document.descendants().filter(|node| {
            node.has_tag_name("rect")
                && node.attribute("fill") == Some(*colour)
                // The legend's have no words.
                && node.parent().unwrap().children().any(|node| node.has_tag_name("title"))
        });
        bars.map(|bar| {
            let height = number(bar, "height");
            (height, number(bar, "y") + height)
        })
        .collect()
    };
    COLOURS.iter().map(of_colour).collect()
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

fn has(svg: &str, text: &str) -> bool {
    texts(svg).iter().any(|one| one == text)
}

#[test]
fn all_figures_are_well_formed_and_always_the_same() {
    for figure in sample::report().figures() {
        let svg = to_svg(figure);
        Document::parse(&svg).unwrap_or_else(|error| panic!("{}: {error}", figure.id));
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
fn titles_and_the_names_of_all_series_are_there() {
    for figure in sample::report().figures() {
        let svg = to_svg(figure);
        let texts = texts(&svg);
        let together = texts.join(" ");
        assert!(together.contains(&figure.title), "{}: {texts:?}", figure.id);
        for series in &figure.series {
            // Long names are cut in their middle.
            let begin: String = series.name.chars().take(20).collect();
            let found = texts.iter().any(|text| text.starts_with(&begin));
            assert!(found, "{}: {}", figure.id, series.name);
        }
    }
}

#[test]
fn all_numbers_are_told_of_what_is_pointed_at() {
    for figure in [sample::lines(), sample::bars()] {
        let told = told(&to_svg(&figure));
        assert_eq!(told.len(), figure.all_points().count());
    }
    let lines = told(&to_svg(&sample::lines()));
    let point = "MPI at 64 KiB: 892 MB/s, 829 MB/s to 936 MB/s in 3 runs";
    assert!(lines.iter().any(|one| one == point), "{lines:?}");
    let bars = told(&to_svg(&sample::bars()));
    let bar = "gRPC at Q5: 402 ms, 374 ms to 422 ms in 3 runs";
    assert!(bars.iter().any(|one| one == bar), "{bars:?}");
}

#[test]
fn bars_are_as_high_as_their_values_and_begin_at_zero() {
    let figure = sample::bars();
    let bars = bars(&to_svg(&figure));
    let scale = bars[0][0].0 / figure.series[0].points[0].median;
    let zero = bars[0][0].1;
    for (series, bars) in figure.series.iter().zip(bars) {
        assert_eq!(bars.len(), series.points.len());
        for (point, (height, end)) in series.points.iter().zip(bars) {
            assert!((end - zero).abs() < 0.2, "a bar ends at zero");
            let part = height / (point.median * scale);
            assert!(
                (part - 1.0).abs() < 0.01,
                "{} is {height} high",
                point.median
            );
        }
    }
}

#[test]
fn lines_and_bars_have_the_range_of_their_runs() {
    for mut figure in [sample::lines(), sample::bars()] {
        let with = to_svg(&figure);
        for point in figure
            .series
            .iter_mut()
            .flat_map(|series| &mut series.points)
        {
            (point.low, point.high) = (point.median, point.median);
        }
        let shapes = |svg: &str| {
            let document = Document::parse(svg).unwrap();
            let shapes = document.descendants();
            let drawn = |node: &Node| node.has_tag_name("path") || node.has_tag_name("line");
            shapes.filter(drawn).count()
        };
        let without = to_svg(&figure);
        assert!(shapes(&with) >= shapes(&without) + 3, "{}", figure.id);
    }
}

#[test]
fn axes_of_values_begin_at_zero() {
    for figure in [sample::lines(), sample::bars()] {
        assert!(has(&to_svg(&figure), "0"), "{}", figure.id);
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
    let svg = to_svg(&sample::lines());
    for tick in [
        "256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB",
    ] {
        assert!(has(&svg, tick), "{:?}", texts(&svg));
    }
}

#[test]
fn what_has_no_logarithm_makes_the_axis_linear() {
    let mut figure = with_points(sample::lines(), &[&[(0.0, 1.0), (1024.0, 2.0)]]);
    let logarithmic = to_svg(&figure);
    figure.x.scale = Scale::Linear;
    assert!(to_svg(&figure) == logarithmic);
}

#[test]
fn what_cannot_be_drawn_is_counted() {
    let nan = f64::NAN;
    let figure = with_points(
        sample::lines(),
        &[&[(1.0, nan), (nan, 2.0), (2.0, 3.0)], &[(2.0, 1e300)]],
    );
    let svg = to_svg(&figure);
    assert!(has(&svg, "3 points are not drawn"), "{svg}");
    assert!(!has(&svg, "no values"));
    assert_eq!(told(&svg).len(), 1);
}

#[test]
fn figures_without_values_say_so() {
    let mut figure = sample::lines();
    figure.series[0].points.clear();
    figure.series.truncate(1);
    assert!(has(&to_svg(&figure), "no values"));
    figure.series.clear();
    assert!(has(&to_svg(&figure), "no values"));
    figure.x.scale = Scale::Names;
    assert!(has(&to_svg(&figure), "no values"));
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
        assert_eq!(told(&svg).len(), points.len());
        assert!(!has(&svg, "no values"));
    }
}

#[test]
fn units_are_in_the_labels_of_axes() {
    let svg = to_svg(&sample::lines());
    assert!(has(&svg, "throughput per node (GB/s)") && has(&svg, "message size"));
    let svg = to_svg(&sample::bars());
    assert!(has(&svg, "response time (s)") && has(&svg, "query"));
}

#[test]
fn values_are_written_above_bars() {
    let svg = to_svg(&sample::bars());
    for value in ["0.121", "0.455", "0.99"] {
        assert!(has(&svg, value), "{value}");
    }
}

#[test]
fn bars_without_a_value_say_so() {
    let mut figure = sample::bars();
    figure.series[1].points.remove(2);
    let told = told(&to_svg(&figure));
    assert!(
        told.iter().any(|one| one == "gRPC at Q5: no value"),
        "{told:?}"
    );
}

#[test]
fn sixteen_series_differ_in_colour_or_marker() {
    let figure = sample::report().outcomes[0].figures[1].clone();
    let svg = to_svg(&figure);
    let document = Document::parse(&svg).unwrap();
    // The first mark of each series, without where it is.
    let mut looks = HashSet::new();
    for series in &figure.series {
        let title = document.descendants().find(|node| {
            let told = node.text().unwrap_or_default();
            node.has_tag_name("title") && told.starts_with(&format!("{} at", series.name))
        });
        let marks = title.unwrap().parent().unwrap().children();
        let marks = marks.filter(|node| node.is_element() && !node.has_tag_name("title"));
        let look = marks.map(|mark| {
            let colour = mark.attribute("fill").filter(|fill| *fill != "none");
            let colour = colour.or(mark.attribute("stroke")).unwrap_or_default();
            let path = mark.attribute("d").unwrap_or_default();
            let corners: Vec<f64> = path
                .split(|c: char| !(c.is_ascii_digit() || c == '.'))
                .filter_map(|number| number.parse().ok())
                .collect();
            let down = corners.len() > 3 && corners[1] < corners[3];
            let shape = (mark.tag_name().name(), corners.len(), down);
            format!("{shape:?} {colour}")
        });
        looks.insert(look.collect::<Vec<_>>());
    }
    assert_eq!(looks.len(), 16, "{looks:?}");
}

#[test]
fn dollar_signs_are_no_mathematics() {
    let mut figure = sample::bars();
    figure.title = "costs $x^2$ and $5".to_owned();
    assert!(has(&to_svg(&figure), &figure.title));
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
    assert!(has(&svg, "35 %") && has(&svg, "all"), "{:?}", texts(&svg));
}
