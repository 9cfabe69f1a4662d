//! The paper's summary: what each protocol reaches in each paradigm, and how that changes with threads, nodes and values. Its
//! points are those of the other experiments, from which it takes them.

use super::super::tell::{About, axis};
use super::super::{Experiment, Results};
use super::{findings, known, measured, plan, protocols, series, simulated};
use crate::conversation::{
    FIG_10A, FIG_10B, FIG_10C, FIG_11, FIG_12A, FIG_12B, FIG_12C, FIG_13, FIG_14A, FIG_14B,
    FIG_14C, FIG_15, Sweep, VALUE,
};
use crate::figure::{Axis, Figure, Point, Scale, Unit, X};
use crate::paper::Paper;
use roundel_protocols::Protocol;
use roundel_protocols::paradigm::Paradigm;

pub const EXPERIMENT: Experiment = simulated(
    "protocols-summary",
    "Message passing protocols in the three paradigms",
    &["3", "4", "5", "6"],
    |options| plan(options, SWEEPS),
    tell,
);

const PENDING: [&Sweep; 3] = [&FIG_10A, &FIG_12A, &FIG_14A];
const THREADS: [&Sweep; 3] = [&FIG_10B, &FIG_12B, &FIG_14B];
const NODES: [&Sweep; 3] = [&FIG_10C, &FIG_12C, &FIG_14C];
const VALUES: [&Sweep; 3] = [&FIG_11[1], &FIG_13[1], &FIG_15[1]];
const SWEEPS: [&Sweep; 12] = [
    PENDING[0], PENDING[1], PENDING[2], THREADS[0], THREADS[1], THREADS[2], NODES[0], NODES[1],
    NODES[2], VALUES[0], VALUES[1], VALUES[2],
];

fn tell(results: &Results) -> Vec<Figure> {
    let known = known(results);
    let with = |mut figure: Figure, claims: &[&str]| {
        figure.findings = findings(claims, &known);
        figure
    };
    let highest = bars(
        results,
        about(
            "protocols-fig3",
            "Highest bandwidth of each protocol; of a node in M:M",
            "Figure 3, section 1.1",
            "READ is best in M:1 and M:M, and protocols that write in 1:M. The best of M:1 is three times that of 1:M.",
            axis("bandwidth (Gb/s)", Unit::None, Scale::Linear),
        ),
        |paradigm, protocol| {
            let own = PENDING.into_iter().chain(THREADS);
            let own = own.filter(|sweep| sweep.paradigm == paradigm);
            own.flat_map(|sweep| values(results, sweep, protocol))
                .map(|(_, value)| value)
                .max_by(f64::total_cmp)
        },
    );
    let ratio = |sweeps: [&'static Sweep; 3], from: usize, to: usize| {
        move |paradigm, protocol| {
            let sweep = sweeps
                .into_iter()
                .find(|sweep| sweep.paradigm == paradigm)?;
            let line = values(results, sweep, protocol);
            let at = |x: usize| {
                line.iter()
                    .find(|(place, _)| *place == x as f64)
                    .map(|(_, value)| value)
            };
            Some(at(to)? / at(from)?)
        }
    };
    let times = || axis("times as much", Unit::None, Scale::Linear);
    let threads = bars(
        results,
        about(
            "protocols-fig4",
            "Bandwidth with 8 threads, of that with one",
            "Figure 4, section 1.1",
            "In M:1 and M:M all have less with 8 threads, and READ in 1:M too, where the others gain.",
            times(),
        ),
        ratio(THREADS, 1, 8),
    );
    let nodes = bars(
        results,
        about(
            "protocols-fig5",
            "Bandwidth with 28 nodes, of that with 4; of a node in M:M",
            "Figure 5, section 1.1",
            "Only READ in M:1 has as much with 28 nodes as with 4, which is ideal.",
            times(),
        ),
        ratio(NODES, 4, 28),
    );
    let value_size = bars(
        results,
        about(
            "protocols-fig6",
            "Bandwidth with values of 4 KB, of that with 365 bytes",
            "Figure 6, section 1.1",
            "All have more. READ goes from 35 to 50 Gb/s in M:1, from 2 to 16 in 1:M, and from 10 to 20 in M:M.",
            times(),
        ),
        ratio(VALUES, VALUE, 4096),
    );
    vec![
        with(highest, &["MP01"]),
        with(threads, &["MP16"]),
        with(nodes, &["MP13c"]),
        with(value_size, &["MP15"]),
    ]
}

fn about(
    id: &'static str,
    title: &'static str,
    place: &'static str,
    paper_saw: &'static str,
    y: Axis,
) -> About<'static> {
    About {
        id,
        title,
        place,
        paper_saw,
        x: axis("paradigm", Unit::None, Scale::Names),
        y,
    }
}

/// A value of each protocol in each paradigm, where it has one.
fn bars(
    results: &Results,
    about: About<'static>,
    value: impl Fn(Paradigm, Protocol) -> Option<f64>,
) -> Figure {
    let mut figure = about.figure_of(Paper::Protocols);
    for protocol in protocols(results.options) {
        for paradigm in Paradigm::ALL {
            if let Some(value) = value(paradigm, protocol) {
                let point = Point::of_runs(X::Name(paradigm.name().into()), vec![value]);
                figure.add(protocol.name(), point);
            }
        }
    }
    figure
}

/// The places of a line, and what was measured there.
fn values(results: &Results, sweep: &Sweep, protocol: Protocol) -> Vec<(f64, f64)> {
    let series = series(sweep, protocol);
    measured(results, &series)
        .filter_map(|(x, measured)| match x {
            X::Number(x) => Some((*x, measured.gigabits())),
            X::Name(_) => None,
        })
        .collect()
}
