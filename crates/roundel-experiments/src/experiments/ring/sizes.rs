//! The phases of a join as hosts are added: of the same data, and of more data with each host.

use super::super::judgement::{at_least, at_most, near};
use super::super::tell::{About, axis};
use super::super::{Case, Experiment, Options, Results};
use super::{HASH, MERGE, METHODS, case, join, judged, rows_of_host};
use crate::figure::{Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::ring::{RelationRows, RingJoin, RingMeasured};

pub const FIXED: Experiment = Experiment {
    name: "ring-fixed",
    title: "Phases of a cyclo-join of the same data on more and more hosts",
    figures: &["7", "10"],
    simulated: true,
    on_devices: true,
    paper: Paper::Ring,
    plan: plan_fixed,
    tell: tell_fixed,
};

pub const GROWING: Experiment = Experiment {
    name: "ring-growing",
    title: "Phases of a cyclo-join where each host brings its data",
    figures: &["8", "11"],
    simulated: true,
    on_devices: true,
    paper: Paper::Ring,
    plan: plan_growing,
    tell: tell_growing,
};

/// What is told of a join, in seconds.
type Phase = fn(&RingMeasured) -> f64;
const PHASES: [(&str, Phase); 4] = [
    ("set-up", RingMeasured::set_up),
    ("join", RingMeasured::join),
    ("synchronisation", RingMeasured::synchronisation),
    ("all", RingMeasured::total),
];

fn plan(options: &Options, rows: impl Fn(usize) -> u64) -> Vec<Case> {
    let own = match options.fabric.is_simulated() {
        true => options.some(&[1, 2, 3, 4, 5, 6]),
        false => vec![1, 2, 4],
    };
    let mut cases = Vec::new();
    for hosts in options.nodes_or(&own) {
        for (name, method) in METHODS {
            let join = RingJoin {
                rows: RelationRows::alike(rows(hosts)),
                ..join(options, method, hosts)
            };
            cases.push(case(name, hosts as f64, join));
        }
    }
    cases
}

fn plan_fixed(options: &Options) -> Vec<Case> {
    plan(options, |_| rows_of_host(options))
}

fn plan_growing(options: &Options) -> Vec<Case> {
    plan(options, |hosts| rows_of_host(options) * hosts as u64)
}

/// The phases of one method.
fn phases(results: &Results, about: About<'_>, of: &str) -> Figure {
    let mut figure = about.figure_of(Paper::Ring);
    for (name, value) in PHASES {
        results.add_rings(&mut figure, of, name, value);
    }
    figure
}

/// The first and the last median of a series, with their hosts.
fn ends(figure: &Figure, series: &str) -> Option<[(f64, f64); 2]> {
    let points = figure.points(series);
    let of = |at: Option<&crate::figure::Point>| match at?.x {
        X::Number(hosts) => Some((hosts, at?.median)),
        X::Name(_) => None,
    };
    Some([of(points.first())?, of(points.last())?])
}

fn hosts() -> crate::figure::Axis {
    axis("hosts", Unit::None, Scale::Linear)
}

fn time() -> crate::figure::Axis {
    axis("time", Unit::Seconds, Scale::Linear)
}

fn tell_fixed(results: &Results) -> Vec<Figure> {
    let mut hash = phases(
        results,
        About {
            id: "ring-fig7",
            title: "Hash join of the same relations on more and more hosts",
            place: "Figure 7, section V-B",
            paper_saw: "Set-up takes 16.2 s on one host and 2.7 s on six; joining takes as long on any number, and nobody \
                        waits for the network.",
            x: hosts(),
            y: time(),
        },
        HASH,
    );
    let found = ends(&hash, "set-up").map(|[(few, before), (many, after)]| {
        let told = format!("{before:.2} s on {few} and {after:.2} s on {many} hosts");
        (
            told,
            judged(results, near(before / after, many / few, 0.25)),
        )
    });
    hash.find("CJ02", found);
    let found = ends(&hash, "join").map(|[(few, before), (many, after)]| {
        let told = format!("{before:.2} s on {few} and {after:.2} s on {many} hosts");
        (told, judged(results, near(after / before, 1.0, 0.05)))
    });
    hash.find("CJ03a", found);
    let merge = phases(
        results,
        About {
            id: "ring-fig10",
            title: "Sort-merge join of the same relations on more and more hosts",
            place: "Figure 10, section V-E",
            paper_saw: "Sorting takes much longer than setting up a hash join, and is shared by the hosts too.",
            x: hosts(),
            y: time(),
        },
        MERGE,
    );
    vec![hash, merge]
}

fn tell_growing(results: &Results) -> Vec<Figure> {
    let mut hash = phases(
        results,
        About {
            id: "ring-fig8",
            title: "Hash join of as many rows on each host",
            place: "Figure 8, section V-C",
            paper_saw: "Set-up takes as long with any number of hosts; joining grows with the relation that spins.",
            x: hosts(),
            y: time(),
        },
        HASH,
    );
    let found = ends(&hash, "join").map(|[(few, before), (many, after)]| {
        let told = format!("{before:.2} s on {few} and {after:.2} s on {many} hosts");
        (
            told,
            judged(results, near(after / before, many / few, 0.05)),
        )
    });
    hash.find("CJ04b", found);
    let mut merge = phases(
        results,
        About {
            id: "ring-fig11",
            title: "Sort-merge join of as many rows on each host",
            place: "Figure 11, sections V-E and V-F",
            paper_saw: "On six hosts joining takes 6.4 s instead of 16.2 s, and waiting 2.3 s: 9.6 GB cross a link at 1.1 GB/s.",
            x: hosts(),
            y: time(),
        },
        MERGE,
    );
    let waited = |figure: &Figure| {
        let [_, (_, waits)] = ends(figure, "synchronisation")?;
        let [_, (_, joins)] = ends(figure, "join")?;
        Some((waits, waits / (waits + joins)))
    };
    let found = waited(&hash).zip(waited(&merge)).map(|(hash, merge)| {
        let told = format!(
            "{:.2} s of waiting, and {:.2} s with hashes",
            merge.0, hash.0
        );
        (
            told,
            judged(results, at_least(merge.1, 0.05).and(at_most(hash.1, 0.02))),
        )
    });
    merge.find("CJ05c", found);
    vec![hash, merge]
}
