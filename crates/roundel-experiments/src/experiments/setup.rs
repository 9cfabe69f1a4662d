//! What it takes to connect and to disconnect (section 7.1.6).

use super::judgement::{above, at_most, below};
use super::tell::{About, axis};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;

pub const EXPERIMENT: Experiment = Experiment {
    name: "setup",
    title: "What it takes to connect and to disconnect",
    figures: &["21"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

/// Threads of a node, unless it is said how many.
const THREADS: usize = 2;
/// Bytes that a query shuffles in the paper before connecting for it pays.
const SHUFFLED: f64 = 250e6;
/// Before the name of a transport whose throughput is measured.
const LONG: &str = "250 MB, ";

fn plan(options: &Options) -> Vec<Case> {
    let nodes: &[usize] = if options.quick {
        &[2, 4, 8]
    } else {
        &[2, 4, 8, 16]
    };
    let mut cases = Vec::new();
    for nodes in options.nodes_or(nodes) {
        for transport in options.designs() {
            let setting = Setting {
                nodes,
                threads: options.threads_or(THREADS),
                rows: 1 << 12,
                seconds: 0.0,
                ..options.base(transport)
            };
            cases.push(Case::new(
                transport.name(),
                X::Number(nodes as f64),
                setting,
            ));
        }
    }
    let mut compared = vec![Transport::Design(Design::MesqSr)];
    compared.extend(options.baselines());
    for transport in compared {
        let series = format!("{LONG}{}", transport.name());
        let setting = options.base(transport);
        let x = X::Number(setting.nodes as f64);
        cases.push(Case::new(series, x, setting));
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = results.figure(
        About {
            id: "fig21",
            title: "Time to connect and disconnect",
            place: "Figure 21, section 7.1.6",
            paper_saw: "It grows with the nodes over connections, most with an endpoint for each thread, and \
                        stays the same over datagrams: about 40 ms in MESQ/SR.",
            x: axis("nodes", Unit::None, Scale::Linear),
            y: axis("time to set up and tear down", Unit::Seconds, Scale::Linear),
        },
        |series| (!series.starts_with(LONG)).then(|| series.into()),
        |measured| measured.setup_seconds + measured.teardown_seconds,
    );
    let ends = [Design::MemqSr, Design::MesqSr, Design::SemqSr].map(|design| {
        let points = figure.points(design.name());
        Some((points.first()?.median, points.last()?.median))
    });
    let [multiple, datagrams, single] = ends;
    let found = multiple.zip(datagrams).map(|(connected, datagrams)| {
        let times = |(first, last): (f64, f64)| last / first;
        let measured = format!(
            "from the fewest to the most nodes MEMQ/SR takes {:.1} times as long, MESQ/SR {:.1} times",
            times(connected),
            times(datagrams)
        );
        (measured, above(times(connected) / times(datagrams), 1.3))
    });
    figure.find("SH28", found);
    let found = multiple.zip(single).map(|((_, multiple), (_, single))| {
        let measured = format!(
            "{:.1} ms with an endpoint for each of {} threads, {:.1} ms with one",
            multiple * 1e3,
            results.options.threads_or(THREADS),
            single * 1e3
        );
        (measured, above(multiple / single, 1.0))
    });
    figure.find("SH28", found);
    let slowest = figure
        .points(Design::MesqSr.name())
        .iter()
        .map(|point| point.median);
    let slowest = slowest.max_by(f64::total_cmp);
    let found = slowest.map(|seconds| {
        (
            format!("{:.1} ms at most", seconds * 1e3),
            at_most(seconds, 0.04),
        )
    });
    figure.find("SH29", found);

    let mut whole = About {
        id: "setup-250mb",
        title: "Time to shuffle 250 MB, with connecting where queries connect for it",
        place: "section 7.1.6",
        paper_saw: "MESQ/SR that connects for the query is done before sockets or MPI that are connected already.",
        x: axis("transport", Unit::None, Scale::Names),
        y: axis("time", Unit::Seconds, Scale::Linear),
    }
    .figure();
    for (case, _) in &results.cases {
        let Some(name) = case.series.strip_prefix(LONG) else {
            continue;
        };
        let connects = name == Design::MesqSr.name();
        let seconds = results.median(&case.series, &case.x, |measured| {
            let moving = SHUFFLED / measured.bytes_per_second;
            let connecting = measured.setup_seconds + measured.teardown_seconds;
            moving + if connects { connecting } else { 0.0 }
        });
        if let Some(seconds) = seconds {
            whole.add(
                "250 MB for each node",
                Point::of_runs(X::Name(name.into()), vec![seconds]),
            );
        }
    }
    let points = whole.points("250 MB for each node");
    let ours = points.first().map(|point| point.median);
    let other = points
        .iter()
        .skip(1)
        .map(|point| point.median)
        .min_by(f64::total_cmp);
    let found = ours.zip(other).map(|(ours, other)| {
        let measured = format!("{:.0} ms, the next {:.0} ms", ours * 1e3, other * 1e3);
        (measured, below(ours / other, 1.0))
    });
    whole.find("SH30", found);
    vec![figure, whole]
}
