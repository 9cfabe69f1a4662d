//! How often receivers write credit back (section 7.1.1).

use super::judgement::{below, reaches, stays_below, within};
use super::tell::{About, axis, percent, rate, spread, throughput};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Axis, Figure, Scale, Unit, X};
use crate::measured::Measured;
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Buffers, Design, Verb};
use roundel_verbs::Transport::ReliableConnection;

pub const EXPERIMENT: Experiment = Experiment {
    name: "credit",
    title: "How often receivers write credit back",
    figures: &["13", "14a", "14b", "14c"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

/// The designs that have credit for each message.
const DESIGNS: [Design; 4] = [
    Design::MemqSr,
    Design::MesqSr,
    Design::SemqSr,
    Design::SesqSr,
];
const FREQUENCIES: [u32; 5] = [1, 2, 4, 8, 16];
/// Buffers for each link, as in the paper.
const BUFFERS: usize = 16;
/// Behind the name of a design whose credit is written to memory.
const IN_MEMORY: &str = ", credit in memory";
/// Before the name of a design where it has as few buffers as a frequency needs.
const LEAST: &str = "least buffers, ";
/// Threads of a node, unless it is said how many.
const THREADS: usize = 2;
/// What the network can do.
const QPERF: &str = "qperf";

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for frequency in FREQUENCIES {
        let x = X::Number(frequency.into());
        for design in DESIGNS {
            let setting = Setting {
                threads: options.threads_or(THREADS),
                buffers: Buffers::Fixed(BUFFERS),
                credit_frequency: Some(frequency),
                ..options.base(Transport::Design(design))
            };
            let least = Setting {
                buffers: Buffers::Fixed(frequency.max(2) as usize),
                rows: 1 << 13,
                seconds: 0.0,
                ..setting.clone()
            };
            if design.verb() == Verb::Send && design.transport() == ReliableConnection {
                let in_memory = Setting {
                    credit_in_memory: true,
                    ..setting.clone()
                };
                let series = format!("{design}{IN_MEMORY}");
                cases.push(Case::new(series, x.clone(), in_memory));
            }
            cases.push(Case::new(design.name(), x.clone(), setting));
            cases.push(Case::new(format!("{LEAST}{design}"), x.clone(), least));
        }
        let qperf = options.base(Transport::Qperf);
        cases.push(Case::new(QPERF, x, qperf));
    }
    cases
}

fn frequency() -> Axis {
    axis("receives for each credit", Unit::None, Scale::Log2)
}

fn of_design(series: &str) -> Option<String> {
    (!series.starts_with(LEAST) && series != QPERF).then(|| series.into())
}

fn per_gigabyte(value: f64, measured: &Measured) -> f64 {
    value / (measured.received_bytes() as f64 / 1e9)
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut throughputs = results.figure(
        About {
            id: "fig13",
            title: "Throughput by how often credit is written back",
            place: "Figure 13, section 7.1.1",
            paper_saw: "How often credit is written back has very little effect, and throughput is near \
                        that of qperf.",
            x: frequency(),
            y: throughput(),
        },
        |series| (!series.starts_with(LEAST)).then(|| series.into()),
        |measured| measured.bytes_per_second,
    );
    let widest = DESIGNS
        .iter()
        .map(|design| (throughputs.points(design.name()), design))
        .filter(|(points, _)| !points.is_empty())
        .map(|(points, design)| (spread(points), design))
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let found = widest.map(|(share, design)| {
        let measured = format!(
            "throughput varies by {} at most, in {design}",
            percent(share)
        );
        (measured, stays_below(share, 0.15, 0.3))
    });
    throughputs.find("SH01a", found);
    let best = DESIGNS
        .iter()
        .filter_map(|design| throughputs.best(design.name()));
    let best = best.map(|point| point.median).fold(0.0, f64::max);
    let found = throughputs.best(QPERF).map(|qperf| {
        let share = best / qperf.median;
        let measured = format!(
            "the best design has {} of qperf's {}: here bytes are moved by the cores that partition them",
            percent(share),
            rate(qperf.median)
        );
        (measured, reaches(share, 0.8))
    });
    throughputs.find("SH01b", found);

    let mut crediting = results.figure(
        About {
            id: "fig14a",
            title: "Time that receivers spend on credit",
            place: "Figure 14a, section 7.1.1",
            paper_saw: "Negligible, but in MESQ/SR when credit is written back for every message.",
            x: frequency(),
            y: axis("time for each GB received", Unit::Seconds, Scale::Linear),
        },
        of_design,
        |measured| per_gigabyte(measured.endpoints().crediting, measured),
    );
    let share = |design: Design, x: f64| {
        results.median(design.name(), &X::Number(x), |measured| {
            measured.endpoints().crediting / measured.cpu_seconds.max(1e-9)
        })
    };
    let found = share(Design::MesqSr, 2.0)
        .zip(share(Design::MemqSr, 2.0))
        .map(|(sq, mq)| {
            let measured = format!(
                "at a credit for every 2 receives {} of all CPU time in MESQ/SR, {} in MEMQ/SR",
                percent(sq),
                percent(mq)
            );
            (measured, below(sq.max(mq), 0.03))
        });
    crediting.find("SH02", found);

    let mut writes = results.figure(
        About {
            id: "fig14b",
            title: "Messages with credit",
            place: "Figure 14b, section 7.1.1",
            paper_saw: "Far below what a queue pair can post, even when every message is answered.",
            x: frequency(),
            y: axis("messages with credit", Unit::PerSecond, Scale::Linear),
        },
        of_design,
        |measured| measured.endpoints().credit_messages as f64 / measured.seconds,
    );
    let found = share(Design::MesqSr, 1.0).map(|busy| {
        let measured = format!(
            "at a credit for every receive, posting them takes {} of CPU time in MESQ/SR",
            percent(busy)
        );
        (measured, below(busy, 0.1))
    });
    writes.find("SH03", found);

    let mut memory = results.figure(
        About {
            id: "fig14c",
            title: "Registered memory that a frequency needs at least",
            place: "Figure 14c, section 7.1.1",
            paper_saw: "It grows with the number of receives for each credit, to nearly 1 GB over 8 nodes of \
                        14 threads at 16.",
            x: frequency(),
            y: axis("registered memory of all nodes", Unit::Bytes, Scale::Linear),
        },
        |series| series.strip_prefix(LEAST).map(Into::into),
        |measured| measured.endpoints().registered_bytes as f64,
    );
    let name = Design::MemqSr.name();
    let at = |x: f64| memory.at(name, &X::Number(x));
    let found = at(2.0).zip(at(16.0)).map(|(two, sixteen)| {
        let measured = format!(
            "MEMQ/SR registers {:.1} MiB at 16, {:.1} times as much as at 2",
            sixteen / f64::from(1 << 20),
            sixteen / two
        );
        (measured, within(sixteen / two, 4.0..=10.0))
    });
    memory.find("SH04", found);

    let mut blocked = results.figure(
        About {
            id: "credit-blocked",
            title: "Time that senders wait for credit",
            place: "section 7.1.1",
            paper_saw: "About the same in all designs, and without a significant effect of the frequency.",
            x: frequency(),
            y: axis("share of the time of a thread", Unit::Share, Scale::Linear),
        },
        of_design,
        |measured| {
            let threads = results.options.threads_or(THREADS) * measured.nodes.len();
            measured.endpoints().blocked_for_credit / measured.seconds / threads as f64
        },
    );
    let range = DESIGNS.iter().filter_map(|design| {
        let points = blocked.points(design.name());
        if points.is_empty() {
            return None;
        }
        let highest = points.iter().map(|point| point.median).fold(0.0, f64::max);
        let lowest = points
            .iter()
            .map(|point| point.median)
            .fold(f64::MAX, f64::min);
        Some(highest - lowest)
    });
    let found = range.max_by(f64::total_cmp).map(|widest| {
        let measured = format!(
            "the share of time varies by {} of all time at most",
            percent(widest)
        );
        (measured, below(widest, 0.15))
    });
    blocked.find("SH05a", found);
    vec![throughputs, crediting, writes, memory, blocked]
}
