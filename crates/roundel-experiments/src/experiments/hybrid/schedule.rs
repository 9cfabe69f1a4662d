//! All nodes send to all others, with and without a schedule.

use super::super::judgement::{at_least, at_most};
use super::super::tell::{About, axis, each, throughput};
use super::super::{Case, Experiment, Options, Results};
use super::case;
use crate::figure::{Figure, Scale, Unit, X};
use crate::hybrid::{Hybrid, HybridMeasured, Order};
use crate::paper::Paper;
use roundel_exchange::{Architecture, Scheduling};

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-schedule",
    title: "All to all through multiplexers, with a schedule and without",
    figures: &["section 3.2.3"],
    simulated: true,
    on_devices: true,
    paper: Paper::Hybrid,
    plan,
    tell,
};

/// What is sent, by name: long messages in any order, and to all at once; and short ones.
const TRAFFIC: [(&str, usize, Order); 3] = [
    (RANDOM, 512 << 10, Order::Random),
    (FLOWS, 512 << 10, Order::Flows),
    (SHORT, 4 << 10, Order::Random),
];
const RANDOM: &str = "512 KiB, any order";
const FLOWS: &str = "512 KiB, to all at once";
const SHORT: &str = "4 KiB, any order";
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
        for (name, message_bytes, order) in TRAFFIC {
            for scheduling in Scheduling::ALL {
                let threads = options
                    .threads
                    .unwrap_or(match options.fabric.is_simulated() {
                        true => THREADS,
                        false => 1,
                    });
                // Fewer to each of many.
                let messages = if options.quick { 40 } else { 160 };
                let messages = (messages * 8 / nodes).clamp(16, messages);
                let hybrid = Hybrid {
                    threads,
                    scheduling,
                    message_bytes,
                    messages: (messages / threads).max(1),
                    order,
                    ..Hybrid::new(options.fabric.clone(), Architecture::Multiplexer, nodes)
                };
                cases.push(case(
                    series(name, scheduling),
                    X::Number(nodes as f64),
                    hybrid,
                ));
            }
        }
    }
    cases
}

fn series(name: &str, scheduling: Scheduling) -> String {
    format!("{name}, schedule {scheduling}")
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
    results.add(&mut rates, each, |run| {
        Some(run.try_as_hybrid_ref()?.bytes_per_second)
    });
    let ratio = |name, one, other| rates.ratio(&series(name, one), &series(name, other));
    let gain = |name| ratio(name, Scheduling::On, Scheduling::Off);
    let simulated = results.options.fabric.is_simulated();
    let gains = gain(FLOWS).zip(gain(RANDOM)).map(|(flows, random)| {
        let measured = format!(
            "with messages of 512 KiB {flows:.2} times at best where nodes send to all others at once, {random:.2} times \
             where their threads send to one after the other, in any order"
        );
        (measured, at_least(flows, 1.3).if_told(simulated))
    });
    let losses = TRAFFIC.map(|(name, ..)| ratio(name, Scheduling::Off, Scheduling::Auto));
    let losses = losses.into_iter().flatten().reduce(f64::max).map(|loss| {
        let measured = format!("at most {loss:.2} times as fast without a schedule as with auto");
        (measured, at_most(loss, 1.05).if_told(simulated))
    });
    rates.find("HY01", gains);
    rates.find_own(
        "schedule",
        "Where a schedule gains nothing, auto leaves rows alone",
        losses,
    );
    let scheduled = |id, title, y, value: fn(&HybridMeasured) -> f64| {
        let mut figure = about(id, title, y).figure_of(Paper::Hybrid);
        let series = |name: &str| name.ends_with("on").then(|| name.to_owned());
        results.add(&mut figure, series, |run| {
            run.try_as_hybrid_ref().map(value)
        });
        figure
    };
    vec![
        rates,
        scheduled(
            "hybrid-phases",
            "Phases of a node's schedule",
            axis("phases", Unit::None, Scale::Linear),
            |measured| measured.phases as f64,
        ),
        scheduled(
            "hybrid-stalls",
            "How long rows wait for a neighbour's phase to end, of the time",
            axis("time waited", Unit::Share, Scale::Linear),
            |measured| measured.stalled_seconds / measured.seconds,
        ),
    ]
}
