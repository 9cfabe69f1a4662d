//! Consumers on cores, one of which is slower than the others.

use super::super::tell::{About, axis, verdict};
use super::super::{Case, Experiment, Options, Results};
use super::case;
use crate::figure::{Figure, Scale, Unit, X};
use crate::hybrid::Hybrid;
use crate::scorecard::Paper;
use roundel_exchange::Architecture;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-straggler",
    title: "One slow core of a node, by architecture",
    figures: &["Rödiger et al., section 3.1"],
    simulated: true,
    on_devices: false,
    hardware: "qdr",
    plan,
    tell,
};

/// Cores of a node.
const CORES: usize = 4;
/// How many times as slow one of them is.
const SLOW: [u32; 4] = [1, 2, 5, 10];

/// Nodes of four cores, whose consumers have more to do than the network.
pub(crate) fn hybrid(fabric: crate::FabricChoice, architecture: Architecture, slow: u32) -> Hybrid {
    Hybrid {
        threads: CORES,
        slow,
        work_cycles: 400_000,
        messages: 100,
        ..Hybrid::new(fabric, architecture, 4)
    }
}

/// How much longer it takes at the least when one core of a node is so many times as slow: what it does not do, the others
/// do.
pub(crate) fn ideal(slow: u32) -> f64 {
    let cores = CORES as f64;
    cores / (cores - 1.0 + 1.0 / f64::from(slow))
}

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for architecture in Architecture::ALL {
        for slow in options.some(&SLOW).into_iter().chain([10]) {
            let hybrid = Hybrid {
                messages: if options.quick { 40 } else { 100 },
                ..hybrid(options.fabric.clone(), architecture, slow)
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
    results.add_hybrids(
        &mut figure,
        |name| Some(name.to_owned()),
        |measured| measured.seconds,
    );
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
            (measured, verdict(multiplexer <= 1.1 * ideal(worst)))
        });
    figure.find("HY04", "A slow core holds up no other", found);
    vec![figure]
}
