//! Names and numbers from somebody else's file neither break a figure nor run in a browser.

use proptest::collection::vec;
use proptest::prelude::*;
use roundel_experiments::figure::{Axis, Figure, Finding, Point, Scale, Series, Unit, Verdict, X};
use roundel_experiments::outcome::{Machine, Outcome, Report, Run};
use roundel_experiments::report::{from_json, to_html, to_json, to_svg, to_text};
use roxmltree::Document;

use super::html::{assert_harmless, parse};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        Just("<script>alert(1)</script>".to_owned()),
        Just("\"><svg onload='alert(1)'>".to_owned()),
        Just("</style></title></svg><img src=x onerror=alert(1)>".to_owned()),
        Just("]]> --> <!-- <![CDATA[ & &amp; &#0; &lt;".to_owned()),
        Just("\0\u{1}\u{7f}\u{1b}[2J\u{9f}\u{fffe}\u{ffff}\u{202e}".to_owned()),
        Just("javascript:alert(1)".to_owned()),
        Just("x".repeat(3_000)),
        Just("中文 ".repeat(50)),
        Just("e\u{301}\u{302}\u{303}".repeat(40)),
        Just(String::new()),
    ]
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        (0u32..100).prop_map(f64::from),
        Just(0.0),
        Just(-0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(1e100),
        Just(5e-324),
    ]
}

fn axis() -> impl Strategy<Value = Axis> {
    use Unit::{Bytes, BytesPerSecond, None, PerSecond, Seconds, Share};
    let units =
        proptest::sample::select(vec![None, Bytes, BytesPerSecond, Seconds, PerSecond, Share]);
    let scales = proptest::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Names]);
    (text(), units, scales).prop_map(|(label, unit, scale)| Axis { label, unit, scale })
}

fn series() -> impl Strategy<Value = Series> {
    let x = prop_oneof![8 => value().prop_map(X::Number), 1 => text().prop_map(X::Name)];
    let point =
        (x, value(), value(), value(), any::<usize>()).prop_map(|(x, median, low, high, runs)| {
            Point {
                x,
                median,
                low,
                high,
                runs,
            }
        });
    (text(), vec(point, 0..12)).prop_map(|(name, points)| Series { name, points })
}

fn figure() -> impl Strategy<Value = Figure> {
    let finding = (text(), text(), text()).prop_map(|(claim, statement, measured)| Finding {
        threshold: measured.clone(),
        claim,
        statement,
        measured,
        verdict: Verdict::Differs,
    });
    let words = (text(), text(), text());
    (
        words,
        axis(),
        axis(),
        vec(series(), 0..20),
        vec(finding, 0..3),
    )
        .prop_map(
            |((title, paper, paper_saw), x, y, series, findings)| Figure {
                id: "figure".to_owned(),
                title,
                paper,
                paper_saw,
                x,
                y,
                series,
                findings,
            },
        )
}

fn report() -> impl Strategy<Value = Report> {
    (figure(), text(), text(), value()).prop_map(|(figure, one, other, seconds)| Report {
        machine: Machine {
            host: one.clone(),
            cpu: other.clone(),
            cores: 1,
            memory_bytes: u64::MAX,
            kernel: one.clone(),
            fabric: other.clone(),
            roundel: one.clone(),
            date: other.clone(),
        },
        runs: vec![Run {
            command: one.clone(),
            commit: other.clone(),
            compiler: one.clone(),
        }],
        outcomes: vec![Outcome {
            experiment: one,
            title: other,
            seconds,
            nodes: vec![usize::MAX],
            threads: Vec::new(),
            figures: vec![figure],
        }],
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn figures_are_well_formed(figure in figure()) {
        let svg = to_svg(&figure);
        let document = Document::parse(&svg).unwrap();
        for node in document.descendants().filter(|node| node.is_element()) {
            prop_assert!(!["script", "img", "foreignObject"].contains(&node.tag_name().name()));
            for attribute in node.attributes() {
                prop_assert!(!attribute.name().starts_with("on"));
                let places = ["x", "y", "d", "x1", "y1", "width", "height", "viewBox"];
                if places.contains(&attribute.name()) {
                    let value = attribute.value();
                    prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{}", value);
                    // No figure is a kilometre high.
                    prop_assert!(value.split([' ', ',']).all(|part| part.len() < 20), "{}", value);
                }
            }
        }
    }

    #[test]
    fn pages_are_well_formed_and_harmless(report in report()) {
        let page = parse(&to_html(&report));
        prop_assert!(page.errors.is_empty(), "{:?}", page.errors);
        assert_harmless(&page);
    }

    #[test]
    fn tables_keep_to_themselves(figure in figure(), width in 0usize..200) {
        let table = to_text(&figure, width);
        let obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        prop_assert!(!table.contains(obeyed), "{:?}", table);
    }

    #[test]
    fn what_is_written_can_be_read(mut report in report()) {
        // An experiment that ran for NaN seconds is not one that was written.
        report.outcomes[0].seconds = 1.0;
        let json = to_json(&report);
        let read = from_json(json.as_bytes()).unwrap();
        prop_assert_eq!(&read.machine, &report.machine);
        let (read, written) = (&read.outcomes[0].figures[0], &report.outcomes[0].figures[0]);
        prop_assert_eq!(&read.findings, &written.findings);
        for (read, written) in read.series.iter().zip(&written.series) {
            prop_assert_eq!(read.points.len(), written.points.len());
            for (read, written) in read.points.iter().zip(&written.points) {
                // The smallest numbers have fewer digits.
                let digits = (written.median.abs() * 1e-15).max(f64::MIN_POSITIVE);
                let close = (read.median - written.median).abs() <= digits;
                prop_assert!(close || !written.median.is_finite() && read.median.is_nan());
            }
        }
    }

    #[test]
    fn any_bytes_are_a_report_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(from_json(&bytes).is_err());
    }
}
