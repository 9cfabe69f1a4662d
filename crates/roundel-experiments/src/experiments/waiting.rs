//! Polling, events, and spinning before sleep (section 7.3.3).

use super::judgement::{above, below};
use super::tell::{About, axis, throughput};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Axis, Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport, Wait};
use roundel_exchange::Design;

pub const EXPERIMENT: Experiment = Experiment {
    name: "waiting",
    title: "Polling, events, and spinning before sleep",
    figures: &["section 7.3.3"],
    simulated: false,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const WAITS: [(Wait, &str); 3] = [
    (Wait::Events, "events"),
    (Wait::Spin(50), "spin 50 µs, then sleep"),
    (Wait::Poll, "poll"),
];
const DESIGNS: [Design; 2] = [Design::MesqSr, Design::MemqSr];
/// Threads of a node where it has as many as there are cores, or more.
const THREADS: [usize; 2] = [1, 2];

fn threads(options: &Options) -> Vec<usize> {
    options
        .threads
        .map_or(THREADS.to_vec(), |threads| vec![threads])
}

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for (wait, name) in WAITS {
        let x = X::Name(name.into());
        let ping_pong = Setting {
            wait,
            ..options.base(Transport::PingPong)
        };
        cases.push(Case::new(Transport::PingPong.name(), x.clone(), ping_pong));
        for design in DESIGNS {
            for threads in threads(options) {
                let setting = Setting {
                    wait,
                    threads,
                    ..options.base(Transport::Design(design))
                };
                cases.push(Case::new(series(design, threads), x.clone(), setting));
            }
        }
    }
    cases
}

fn series(design: Design, threads: usize) -> String {
    match threads {
        1 => format!("{design}, 1 thread"),
        threads => format!("{design}, {threads} threads"),
    }
}

fn ways() -> Axis {
    axis("how completions are waited for", Unit::None, Scale::Names)
}

fn tell(results: &Results) -> Vec<Figure> {
    let ping_pong = Transport::PingPong.name();
    let exchange = |series: &str| (series != ping_pong).then(|| series.to_owned());
    let mut latency = results.figure(
        About {
            id: "waiting-latency",
            title: "A round trip of 8 bytes",
            place: "section 7.3.3",
            paper_saw: "Polling has the lowest latency, events a higher one by a switch of context.",
            x: ways(),
            y: axis("median round trip", Unit::Seconds, Scale::Linear),
        },
        |series| (series == ping_pong).then(|| series.to_owned()),
        |measured| measured.endpoints().round_trip,
    );
    let at = |figure: &Figure, series: &str, name: &str| figure.at(series, &X::Name(name.into()));
    let [events, _, poll] = WAITS.map(|(_, name)| at(&latency, ping_pong, name));
    let found = events.zip(poll).map(|(events, poll)| {
        let measured = format!(
            "{:.1} µs with events, {:.1} µs polling",
            events * 1e6,
            poll * 1e6
        );
        (measured, below(poll / events, 1.0))
    });
    latency.find_own("-", "Polling has a lower latency than events", found);
    let throughputs = results.figure(
        About {
            id: "waiting-throughput",
            title: "Throughput by how completions are waited for",
            place: "section 7.3.3",
            paper_saw: "Events let threads share cores; polling keeps others from running.",
            x: ways(),
            y: throughput(),
        },
        exchange,
        |measured| measured.bytes_per_second,
    );
    let mut cpu = results.figure(
        About {
            id: "waiting-cpu",
            title: "CPU time by how completions are waited for",
            place: "section 7.3.3",
            paper_saw: "Polling spends cycles on finding nothing.",
            x: ways(),
            y: axis(
                "CPU time for each GB received",
                Unit::Seconds,
                Scale::Linear,
            ),
        },
        exchange,
        |measured| measured.cpu_seconds / (measured.received_bytes() as f64 / 1e9),
    );
    let most = threads(results.options).into_iter().max();
    let name = series(Design::MesqSr, most.unwrap_or_default());
    let [events, _, poll] = WAITS.map(|(_, way)| at(&cpu, &name, way));
    let found = events.zip(poll).map(|(events, poll)| {
        let measured =
            format!("{name}: {events:.2} s for each GB with events, {poll:.2} s polling");
        (measured, above(poll / events, 1.0))
    });
    cpu.find_own("-", "Polling takes more CPU time than events", found);
    vec![latency, throughputs, cpu]
}
