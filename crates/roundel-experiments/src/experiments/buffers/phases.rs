//! Consumers that are slow for half of the run: whether memory follows them (section 6.2).

use super::super::judgement::below;
use super::super::tell::{About, axis, throughput};
use super::super::{Case, Options, Results};
use super::{ADAPTIVE, COUNTS, DESIGN, FIXED, beside_best_fixed};
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::measured::Measured;
use crate::setting::{Setting, Transport};
use roundel_exchange::Buffers;

/// Rounds of work for each tuple in the middle half of a run; none before and after.
const SLOW: u32 = 12;
/// What is longer than other runs by this has time to adapt in each phase.
const LONGER: f64 = 2.0;
/// Points of a run's memory. The first and the last quarter are quick.
const POINTS: usize = 16;
const CASES: &str = "slow midway";

fn adaptive_case() -> String {
    format!("{CASES}, {ADAPTIVE}")
}

pub(super) fn plan(options: &Options) -> Vec<Case> {
    let base = options.base(Transport::Design(DESIGN));
    let base = Setting {
        seconds: LONGER * base.seconds,
        work_midway: Some(SLOW),
        ..base
    };
    let fixed = options.some(&COUNTS).into_iter().map(|count| {
        let setting = Setting {
            buffers: Buffers::Fixed(count),
            ..base.clone()
        };
        let series = format!("{CASES}, {FIXED}");
        Case::new(series, X::Name(count.to_string()), setting)
    });
    let mut cases: Vec<_> = fixed.collect();
    let x = X::Name(ADAPTIVE.into());
    cases.push(Case::new(adaptive_case(), x, base));
    cases
}

pub(super) fn tell(results: &Results) -> [Figure; 2] {
    [speed(results), memory(results)]
}

fn speed(results: &Results) -> Figure {
    let mut figure = results.figure(
        About {
            id: "fig24b",
            title: "Throughput with consumers that are slow for half of the run",
            place: "section 6.2; the paper does not show it",
            paper_saw: "Nothing: its consumers do not change. Its algorithm is to follow them.",
            x: axis("buffers of a link", Unit::None, Scale::Names),
            y: throughput(),
        },
        |case| case.starts_with(CASES).then(|| CASES.into()),
        |measured| measured.bytes_per_second,
    );
    let found = beside_best_fixed(&figure, CASES, ADAPTIVE, 0.95);
    figure.find("SH36d", found);
    figure
}

fn memory(results: &Results) -> Figure {
    let mut figure = About {
        id: "fig24c",
        title: "Registered memory while consumers are slow for half of the run",
        place: "section 6.2; the paper does not show it",
        paper_saw: "Nothing: its consumers do not change. Its algorithm is to take fewer buffers when tuples \
                    take longer, and more when they do not.",
        x: axis("part of the run", Unit::None, Scale::Linear),
        y: axis("registered memory per node", Unit::Bytes, Scale::Linear),
    }
    .figure();
    let at = X::Name(ADAPTIVE.into());
    for number in 0..POINTS {
        let value = |measured: &Measured| registered(measured, number);
        if let Some(bytes) = results.median(&adaptive_case(), &at, value) {
            let part = (number as f64 + 0.5) / POINTS as f64;
            figure.add(ADAPTIVE, Point::of_runs(X::Number(part), vec![bytes]));
        }
    }
    let points = figure.points(ADAPTIVE);
    // The second half of each phase: what it has led to.
    let mean = |first: usize, last: usize| {
        let part: Vec<f64> = points
            .get(first..last)?
            .iter()
            .map(|point| point.median)
            .collect();
        Some(part.iter().sum::<f64>() / part.len() as f64)
    };
    let eighth = POINTS / 8;
    let found = (|| {
        let before = mean(eighth, 2 * eighth)?;
        let slow = mean(4 * eighth, 6 * eighth)?;
        let after = mean(7 * eighth, POINTS)?;
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let measured = format!(
            "{:.2} MiB while consumers are quick, {:.2} MiB when they have been slow, {:.2} MiB when they are \
             quick again",
            mib(before),
            mib(slow),
            mib(after)
        );
        // Afterwards it grows where a source runs out, which depends on the machine.
        Some((measured, below(slow / before, 1.0)))
    })();
    figure.find("SH36e", found);
    figure
}

/// Registered bytes of a node, in one of [`POINTS`] parts of a run.
fn registered(measured: &Measured, part: usize) -> f64 {
    let of_node = |memory: &[(f64, u64)]| {
        let end = memory.last().map_or(0.0, |(seconds, _)| *seconds) + f64::MIN_POSITIVE;
        let number = |seconds: f64| (seconds / end * POINTS as f64) as usize;
        let inside = memory.iter();
        let inside: Vec<f64> = inside
            .filter(|(seconds, _)| number(*seconds).min(POINTS - 1) == part)
            .map(|(_, bytes)| *bytes as f64)
            .collect();
        inside.iter().sum::<f64>() / inside.len().max(1) as f64
    };
    let nodes = measured.nodes.iter();
    let sum: f64 = nodes.map(|node| of_node(&node.memory)).sum();
    sum / measured.nodes.len().max(1) as f64
}
