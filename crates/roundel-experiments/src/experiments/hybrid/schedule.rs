//! All nodes send to all others, with and without a schedule.

use super::super::tell::{About, axis, throughput, verdict};
use super::super::{Case, Experiment, Options, Results};
use super::case;
use crate::figure::{Figure, Scale, Unit, Verdict, X};
use crate::hybrid::Hybrid;
use crate::scorecard::Paper;
use roundel_exchange::{Architecture, Scheduling};

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-schedule",
    title: "All to all through multiplexers, with a schedule and without",
    figures: &["Rödiger et al., section 3.2.3"],
    simulated: true,
    on_devices: true,
    hardware: "qdr",
    plan,
    tell,
};

/// Long enough to fill the buffers of a switch; where there is none, short enough for a host.
const LONG: usize = 512 << 10;
const SHORT: usize = 4 << 10;
/// Simulated ones are sent as fast as any link carries them.
const THREADS: usize = 4;

fn plan(options: &Options) -> Vec<Case> {
    let nodes: &[usize] = match (options.fabric.is_simulated(), options.quick) {
        (true, true) => &[2, 8],
        (true, false) => &[2, 4, 8, 16, 32, 64],
        (false, true) => &[2, 4],
        (false, false) => &[2, 3, 4, 6],
    };
    let mut cases = Vec::new();
    for nodes in options.nodes_or(nodes) {
        for message_bytes in [LONG, SHORT] {
            for scheduling in Scheduling::ALL {
                let hybrid = all_to_all(options, nodes, message_bytes, scheduling);
                let series = series(message_bytes, scheduling);
                cases.push(case(series, X::Number(nodes as f64), hybrid));
            }
        }
    }
    cases
}

fn all_to_all(
    options: &Options,
    nodes: usize,
    message_bytes: usize,
    scheduling: Scheduling,
) -> Hybrid {
    let messages = if options.quick { 5 } else { 25 };
    Hybrid {
        threads: if options.fabric.is_simulated() {
            THREADS
        } else {
            1
        },
        scheduling,
        message_bytes,
        messages,
        ..Hybrid::new(options.fabric.clone(), Architecture::Multiplexer, nodes)
    }
}

fn series(message_bytes: usize, scheduling: Scheduling) -> String {
    format!("{} KiB, schedule {scheduling}", message_bytes >> 10)
}

fn tell(results: &Results) -> Vec<Figure> {
    let about = |id, title, y| About {
        id,
        title,
        place: "section 3.2.3",
        paper_saw: "Messages that are sent when they are ready collide in the switch; in phases in which each node sends \
                    to one other they do not, which is worth up to 40 % of throughput.",
        x: axis("nodes", Unit::None, Scale::Log2),
        y,
    };
    let mut rates = about(
        "hybrid-schedule",
        "Throughput of a node when all send to all",
        throughput(),
    )
    .figure_of(Paper::Hybrid);
    results.add_hybrids(
        &mut rates,
        |name| Some(name.to_owned()),
        |measured| measured.bytes_per_second,
    );
    let ratio = |bytes, one, other| rates.ratio(&series(bytes, one), &series(bytes, other));
    let gain = ratio(LONG, Scheduling::On, Scheduling::Off);
    let loss = ratio(SHORT, Scheduling::Off, Scheduling::Auto);
    let found = gain.map(|gain| {
        let measured = format!(
            "{gain:.2} times at best, with messages of {} KiB",
            LONG >> 10
        );
        let agrees = match results.options.fabric.is_simulated() {
            true => verdict(gain >= 1.3),
            false => Verdict::CannotTell,
        };
        (measured, agrees)
    });
    rates.find(
        "HY01",
        "A schedule makes all to all up to 40 % faster",
        found,
    );
    let found = loss.map(|loss| {
        let measured = format!("{loss:.2} times as fast without, at most, with 4 KiB");
        (measured, verdict(loss <= 1.02))
    });
    rates.find(
        "HY01",
        "Short messages lose nothing, as auto leaves them alone",
        found,
    );
    let mut phases = about(
        "hybrid-phases",
        "Phases of a node's schedule",
        axis("phases", Unit::None, Scale::Linear),
    )
    .figure_of(Paper::Hybrid);
    results.add_hybrids(
        &mut phases,
        |name| name.ends_with("on").then(|| name.to_owned()),
        |measured| measured.phases as f64,
    );
    let mut stalls = about(
        "hybrid-stalls",
        "How long rows wait for a neighbour's phase to end, of the time",
        axis("time waited", Unit::Share, Scale::Linear),
    )
    .figure_of(Paper::Hybrid);
    results.add_hybrids(
        &mut stalls,
        |name| name.ends_with("on").then(|| name.to_owned()),
        |measured| measured.stalled_seconds / measured.seconds,
    );
    vec![rates, phases, stalls]
}
