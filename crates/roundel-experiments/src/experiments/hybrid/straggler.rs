//! Consumers on cores, one of which is slower than the others.

use super::super::judgement::at_most;
use super::super::tell::{About, axis, each};
use super::super::{Case, Experiment, Options, Results};
use super::case;
use crate::figure::{Figure, Scale, Unit, X};
use crate::hybrid::{CORES, Hybrid, ideal, straggler};
use crate::paper::Paper;
use roundel_exchange::Architecture;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-straggler",
    title: "One slow core of a node, by architecture",
    figures: &["section 3.1"],
    simulated: true,
    on_devices: false,
    paper: Paper::Hybrid,
    plan,
    tell,
};

/// How many times as slow one of them is.
const SLOW: [u32; 4] = [1, 2, 5, 10];

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for architecture in Architecture::ALL {
        for slow in options.some(&SLOW).into_iter().chain([10]) {
            let hybrid = Hybrid {
                messages: if options.quick { 40 } else { 100 },
                ..straggler(options.fabric.clone(), architecture, slow)
            };
            cases.push(case(
                architecture.name(),
                X::Number(f64::from(slow)),
                hybrid,
            ));
        }
    }
    cases.dedup_by(|one, other| one.series == other.series && one.x == other.x);
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = About {
        id: "hybrid-straggler",
        title: "Time to consume all, with one slow core",
        place: "section 3.1",
        paper_saw: "Units of a classic exchange cannot help each other: a straggler holds up all. Threads behind a \
                    multiplexer take what is next.",
        x: axis("times as slow as the others", Unit::None, Scale::Linear),
        y: axis("time", Unit::Seconds, Scale::Linear),
    }
    .figure_of(Paper::Hybrid);
    results.add(&mut figure, each, |run| {
        Some(run.try_as_hybrid_ref()?.seconds)
    });
    let worst = SLOW[SLOW.len() - 1];
    let times = |architecture: Architecture| {
        let at = |slow: u32| figure.at(architecture.name(), &X::Number(f64::from(slow)));
        Some(at(worst)? / at(1)?)
    };
    let found = times(Architecture::Multiplexer)
        .zip(times(Architecture::Classic))
        .map(|(multiplexer, classic)| {
            let measured = format!(
                "with one of {CORES} cores {worst} times as slow, {multiplexer:.2} times as long through the \
                 multiplexer, and {classic:.2} times between units; at the least {:.2} times",
                ideal(worst)
            );
            (measured, at_most(multiplexer / ideal(worst), 1.1))
        });
    figure.find("HY04b", found);
    vec![figure]
}
