//! How many buffers a link needs, and whether the exchange finds out by itself (section 7.1.8).

mod phases;

use super::judgement::{Judgement, below, holds, reaches};
use super::tell::{About, axis, percent, rate, throughput};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::measured::Measured;
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Buffers, Design};

pub const EXPERIMENT: Experiment = Experiment {
    name: "buffers",
    title: "How many buffers a link needs, and whether the exchange finds out",
    figures: &["23", "24"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const DESIGN: Design = Design::MesqSr;
const COUNTS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Rounds of work for each tuple, with what figures call them.
const WORK: [(u32, &str, &str); 3] = [
    (0, "fig23a", "no work"),
    (3, "fig23b", "some work"),
    (12, "fig23c", "much work"),
];
/// The work of nodes that are not alike: of the first, and of all others.
const SKEWED: [u32; 2] = [1, 12];
const SKEW: &str = "skewed";
const FIXED: &str = "fixed";
const ADAPTIVE: &str = "adaptive";
/// By the paper's rule.
const PAPER: &str = "adaptive:paper";

fn plan(options: &Options) -> Vec<Case> {
    let base = options.base(Transport::Design(DESIGN));
    let levels = WORK.map(|(rounds, _, name)| (name, vec![rounds]));
    let mut cases = Vec::new();
    for (name, work) in levels.into_iter().chain([(SKEW, SKEWED.to_vec())]) {
        for count in options.some(&COUNTS) {
            let setting = Setting {
                buffers: Buffers::Fixed(count),
                work: work.clone(),
                ..base.clone()
            };
            cases.push(Case::new(
                format!("{name}, {FIXED}"),
                X::Number(count as f64),
                setting,
            ));
        }
        for (rule, buffers) in [
            (ADAPTIVE, Buffers::Adaptive),
            (PAPER, Buffers::AdaptivePaper),
        ] {
            let setting = Setting {
                buffers,
                work: work.clone(),
                ..base.clone()
            };
            cases.push(Case::new(
                format!("{name}, {rule}"),
                X::Name(rule.into()),
                setting,
            ));
        }
    }
    cases.extend(phases::plan(options));
    for transport in [Transport::Qperf, Transport::PingPong] {
        let x = X::Name(transport.name().into());
        cases.push(Case::new(transport.name(), x, options.base(transport)));
    }
    cases
}

/// Buffers of a link that the product of bandwidth and delay asks for, as it is measured without rows.
fn by_bandwidth_and_delay(results: &Results) -> Option<f64> {
    let of = |transport: Transport, value: fn(&Measured) -> f64| {
        results.median(transport.name(), &X::Name(transport.name().into()), value)
    };
    let bandwidth = of(Transport::Qperf, |measured| measured.bytes_per_second)?;
    let delay = of(Transport::PingPong, |measured| {
        measured.endpoints().round_trip
    })?;
    let message = results.median(
        &format!("{}, {ADAPTIVE}", WORK[0].2),
        &X::Name(ADAPTIVE.into()),
        |measured| {
            let endpoints = measured.endpoints();
            measured.received_bytes() as f64 / endpoints.messages.max(1) as f64
        },
    )?;
    Some((bandwidth * delay / message).ceil().max(2.0))
}

fn tell(results: &Results) -> Vec<Figure> {
    let window = |measured: &Measured| measured.endpoints().window;
    let mut figures = Vec::new();
    let mut chosen = Vec::new();
    for (_, id, name) in WORK {
        let series = |case: &str| {
            let kind = case.strip_prefix(name)?.strip_prefix(", ")?;
            Some(kind.to_owned())
        };
        let title = format!("Throughput by buffers of a link, with {name} for each tuple");
        let mut figure = results.figure(
            About {
                id,
                title: &title,
                place: "Figure 23, section 7.1.8",
                paper_saw: "The adaptive algorithm is as good as the best fixed number, better where tuples take \
                            long, and takes fewer buffers then. The product of bandwidth and delay asks for 44, \
                            which is too few.",
                x: axis("buffers of a link", Unit::None, Scale::Log2),
                y: throughput(),
            },
            series,
            |measured| measured.bytes_per_second,
        );
        // They are drawn where they have arrived.
        let arrived = [ADAPTIVE, PAPER].map(|rule| {
            let at = X::Name(rule.into());
            let window = results.median(&format!("{name}, {rule}"), &at, window);
            for series in figure
                .series
                .iter_mut()
                .filter(|series| series.name == rule)
            {
                for point in &mut series.points {
                    point.x = X::Number(window.unwrap_or_default());
                }
            }
            window
        });
        let [_, by_paper] = arrived;
        chosen.push(by_paper);
        let adaptive = figure.best(PAPER).map(|point| point.median);
        let fixed = figure.best(FIXED).map(|point| point.median);
        let found = adaptive.zip(fixed).map(|(adaptive, fixed)| {
            let measured = format!(
                "{} with adaptive buffers by the paper's rule, {} of the best fixed number",
                rate(adaptive),
                percent(adaptive / fixed)
            );
            (measured, reaches(adaptive / fixed, 0.97))
        });
        figure.find("SH36b", found);
        if let Some(count) = by_bandwidth_and_delay(results) {
            let nearest = figure
                .points(FIXED)
                .iter()
                .rev()
                .find(|point| match point.x {
                    X::Number(x) => x <= count.max(COUNTS[0] as f64),
                    X::Name(_) => false,
                });
            let found = nearest.cloned().zip(fixed).map(|(at, best)| {
                let measured = format!(
                    "it asks for {count:.0} buffers; a number of at most that has {} of the best",
                    percent(at.median / best)
                );
                figure.add(
                    "bandwidth-delay product",
                    Point {
                        x: X::Number(count),
                        ..at.clone()
                    },
                );
                (measured, below(at.median / best, 0.97))
            });
            figure.find("SH35b", found);
        }
        figures.push(figure);
    }
    if let (Some(figure), [least, .., most]) = (figures.last_mut(), &chosen[..]) {
        let found = least.zip(*most).map(|(least, most)| {
            let measured = format!(
                "{least:.0} buffers with {}, {most:.0} with {}",
                WORK[0].2, WORK[2].2
            );
            (measured, holds(most < least, "fewer with much work"))
        });
        figure.find("SH36a", found);
    }
    figures.push(skew(results));
    figures.extend(phases::tell(results));
    figures
}

/// Whether buffers that adapt by a rule reach a share of the best fixed number, all being places of one series.
fn beside_best_fixed(
    figure: &Figure,
    series: &str,
    rule: &str,
    share: f64,
) -> Option<(String, Judgement)> {
    let adaptive = figure.at(series, &X::Name(rule.into()))?;
    let rules = [ADAPTIVE, PAPER].map(|rule| X::Name(rule.into()));
    let fixed = figure.points(series).iter();
    let fixed = fixed.filter(|point| !rules.contains(&point.x));
    let fixed = fixed.map(|point| point.median).max_by(f64::total_cmp)?;
    let measured = format!(
        "{} of the best fixed number's throughput",
        percent(adaptive / fixed)
    );
    Some((measured, reaches(adaptive / fixed, share)))
}

/// Nodes that are not alike.
fn skew(results: &Results) -> Figure {
    let (adaptive, at) = (format!("{SKEW}, {PAPER}"), X::Name(PAPER.into()));
    let windows = [0, 1].map(|node| {
        results.median(&adaptive, &at, |measured| {
            measured
                .nodes
                .get(node)
                .map_or(0.0, |node| node.endpoints.window)
        })
    });
    let mut figure = results.figure(
        About {
            id: "fig24",
            title: "Throughput of nodes of which the first has a faster consumer",
            place: "Figure 24, section 7.1.8",
            paper_saw: "The adaptive algorithm picks another number of buffers for each node, while a fixed one \
                        is wrong for one or both.",
            x: axis("buffers of a link", Unit::None, Scale::Names),
            y: throughput(),
        },
        |case| case.starts_with(SKEW).then(|| SKEW.into()),
        |measured| measured.bytes_per_second,
    );
    for point in figure
        .series
        .iter_mut()
        .flat_map(|series| &mut series.points)
    {
        if let X::Number(count) = point.x {
            point.x = X::Name(format!("{count}"));
        }
    }
    let found = match windows {
        [Some(quick), Some(slow)] => {
            let measured =
                format!("{quick:.0} buffers at the fast node, {slow:.0} at the slow one");
            Some((measured, holds(slow < quick, "fewer at the slow one")))
        }
        _ => None,
    };
    figure.find("SH37a", found);
    let found = beside_best_fixed(&figure, SKEW, PAPER, 0.97);
    figure.find("SH37c", found);
    figure
}
