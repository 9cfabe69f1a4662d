//! Joins whose keys are not alike, with and without what is done about it.

use super::super::judgement::at_least;
use super::super::tell::{About, axis, each};
use super::super::{Case, Experiment, Options, Results, Work};
use crate::figure::{Axis, Figure, Scale, Unit, X};
use crate::hybrid::{SkewedJoin, SkewedMeasured};
use crate::paper::Paper;
use roundel_exchange::Architecture;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-skew",
    title: "Joins by skewed keys, with heavy keys spread or where their hash says",
    figures: &["beside section 3.1"],
    simulated: true,
    on_devices: false,
    paper: Paper::Hybrid,
    plan,
    tell,
};

const NODES: usize = 8;
/// Of Zipf's law.
const EXPONENTS: [f64; 7] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.2, 1.5];
/// At which it is judged.
const JUDGED: f64 = 1.2;
const HANDLED: &str = "heavy keys are spread";
const LEFT: &str = "rows go where their hash says";

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for architecture in [Architecture::Endpoint, Architecture::Multiplexer] {
        for (handled, how) in [(true, HANDLED), (false, LEFT)] {
            let mut exponents = options.some(&EXPONENTS);
            exponents.retain(|exponent| *exponent != JUDGED);
            exponents.push(JUDGED);
            exponents.sort_by(f64::total_cmp);
            let nodes = options.fixed_nodes_or(NODES);
            cases.extend(exponents.iter().map(|exponent| Case {
                series: series(architecture, how),
                x: X::Number(*exponent),
                work: Work::Skewed(Box::new(SkewedJoin {
                    exponent: *exponent,
                    handled,
                    rows: if options.quick { 4_000_000 } else { 16_000_000 },
                    ..SkewedJoin::new(options.fabric.clone(), architecture, nodes)
                })),
            }));
        }
    }
    cases
}

fn series(architecture: Architecture, how: &str) -> String {
    format!("{architecture}, {how}")
}

fn tell(results: &Results) -> Vec<Figure> {
    let of = |id: &str, title: &str, y: Axis, value: fn(&SkewedMeasured) -> f64| {
        let mut figure = About {
            id,
            title,
            place: "beside section 3.1",
            paper_saw: "It has no skewed keys.",
            x: axis("exponent of Zipf's law", Unit::None, Scale::Linear),
            y,
        }
        .figure_of(Paper::Hybrid);
        results.add(&mut figure, each, |run| run.try_as_skewed_ref().map(value));
        figure
    };
    let mut time = of(
        "hybrid-skew-time",
        "Time to join",
        axis("time", Unit::Seconds, Scale::Log2),
        |measured| measured.seconds,
    );
    let times = |exponent: f64| {
        let at = |how| {
            let series = series(Architecture::Multiplexer, how);
            time.at(&series, &X::Number(exponent))
        };
        Some(at(LEFT)? / at(HANDLED)?)
    };
    let found = times(JUDGED).zip(times(0.0)).map(|(skewed, alike)| {
        let measured = format!(
            "by an exponent of {JUDGED} {skewed:.2} times as fast through multiplexers, and {alike:.2} times by keys that are \
             alike"
        );
        (measured, at_least(skewed, 2.0).and(at_least(alike, 0.97)))
    });
    time.find_own("skew", "Heavy keys that are spread hold up nobody", found);
    vec![
        time,
        of(
            "hybrid-skew-rows",
            "Rows of the busiest node",
            axis("times the mean", Unit::None, Scale::Linear),
            |measured| measured.busiest,
        ),
    ]
}
