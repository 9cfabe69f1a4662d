//! Whether the colours of series can be told apart, with and without colour blindness, on light and
//! on dark paper.

use roundel_experiments::report::to_svg;
use roxmltree::Document;

use super::sample;

type Triple = [f64; 3];
type Matrix = [Triple; 3];

/// How linear RGB is seen without colour blindness, and with no cones for long, middle and short
/// waves: Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of
/// color vision deficiency", at full severity.
const SIGHTS: [(&str, Matrix); 4] = [
    ("full", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanopia",
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    ),
    (
        "deuteranopia",
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ),
    (
        "tritanopia",
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ),
];

/// Linear sRGB to CIE XYZ under D65.
const XYZ: Matrix = [
    [0.4124, 0.3576, 0.1805],
    [0.2126, 0.7152, 0.0722],
    [0.0193, 0.1192, 0.9505],
];
const WHITE: Triple = [0.9505, 1.0, 1.089];

/// In CIELAB, where 2.3 is a difference that is just noticed.
const LEAST_DISTANCE: f64 = 20.0;
/// Between a colour and the paper. What is not text should have 3; one or two light colours that
/// are told apart from all others are worth less.
const LEAST_CONTRAST: f64 = 2.5;

fn apply(matrix: &Matrix, value: Triple) -> Triple {
    matrix.map(|row| row.iter().zip(value).map(|(a, b)| a * b).sum())
}

fn linear(colour: &str) -> Triple {
    let part = |at: usize| {
        let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if part <= 0.04045 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    };
    [part(0), part(2), part(4)]
}

fn lab(seen: Triple) -> Triple {
    let xyz = apply(&XYZ, seen.map(|part| part.clamp(0.0, 1.0)));
    let f = |index: usize| {
        let part: f64 = xyz[index] / WHITE[index];
        if part > 0.008856 {
            part.cbrt()
        } else {
            7.787 * part + 16.0 / 116.0
        }
    };
    let [x, y, z] = [f(0), f(1), f(2)];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn contrast(a: &str, b: &str) -> f64 {
    let [a, b] = [a, b].map(|colour| apply(&XYZ, linear(colour))[1] + 0.05);
    a.max(b) / a.min(b)
}

/// Each colour of a drawing that the style sheet replaces where dark paper is preferred, with that which replaces it.
fn pairs(svg: &str) -> Vec<(&str, &str)> {
    let css = svg.split("prefers-color-scheme: dark) {").nth(1).unwrap();
    let css = css.split("</style>").next().unwrap();
    css.lines()
        .filter_map(|rule| {
            let light = rule
                .split("[fill=\"#")
                .nth(1)?
                .get(..7)?
                .strip_suffix('"')?;
            let dark = rule.split("fill: #").nth(1)?.get(..6)?;
            Some((light, dark))
        })
        .collect()
}

#[test]
fn colours_can_be_told_apart() {
    let svg = to_svg(&sample::lines());
    // Paper, ink, axes and grid come first.
    let (light, dark): (Vec<_>, Vec<_>) = pairs(&svg).into_iter().unzip();
    for (paper_is, colours) in [("light", light), ("dark", dark)] {
        let paper = colours[0];
        let colours = &colours[4..];
        assert_eq!(colours.len(), 8, "{colours:?}");
        assert!(
            contrast(
                paper,
                if paper_is == "light" {
                    "000000"
                } else {
                    "ffffff"
                }
            ) > 15.0
        );
        for (index, colour) in colours.iter().enumerate() {
            let contrast = contrast(colour, paper);
            assert!(
                contrast >= LEAST_CONTRAST,
                "{colour} on {paper_is} paper: {contrast}"
            );
            for (sight, matrix) in &SIGHTS {
                for other in &colours[..index] {
                    let [a, b] = [*colour, *other].map(|c| lab(apply(matrix, linear(c))));
                    let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
                    let distance = squares.sum::<f64>().sqrt();
                    let told = format!("{colour}, {other} on {paper_is} paper with {sight} sight");
                    assert!(distance >= LEAST_DISTANCE, "{told}: {distance}");
                }
            }
        }
    }
}

#[test]
fn every_colour_has_another_for_dark_paper() {
    for figure in sample::report().figures() {
        let svg = to_svg(figure);
        let document = Document::parse(&svg).unwrap();
        for node in document.descendants().filter(|node| node.is_element()) {
            for attribute in ["fill", "stroke"] {
                let Some(colour) = node.attribute(attribute) else {
                    continue;
                };
                // A note is grey, which can be read on both.
                let replaced = svg.contains(&format!("[{attribute}=\"{colour}\"]"));
                let note = node.has_tag_name("text") && attribute == "fill";
                assert!(
                    replaced || note || colour == "none",
                    "{}: {colour}",
                    figure.id
                );
            }
        }
    }
}
