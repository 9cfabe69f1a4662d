//! Clusters beyond those of the paper: what throughput is left, and what a node spends on it (section 7.1.4 forecasts
//! as much).

use super::judgement::at_least;
use super::tell::{About, axis, each, percent, throughput};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Axis, Figure, Scale, Unit, X};
use crate::measured::Measured;
use crate::paper::Paper;
use crate::setting::{Setting, TUPLE_BYTES, Transport};
use roundel_exchange::{Buffers, Design};

pub const EXPERIMENT: Experiment = Experiment {
    name: "scale-out",
    title: "Clusters beyond the paper's: throughput, and what it costs a node",
    figures: &["section 7.1.4, forecast"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const DESIGNS: [Design; 3] = [Design::MesqSr, Design::MemqSr, Design::SemqSr];
/// Most nodes of those over connections, where nobody says how many: beyond that, hosts lack memory for them.
const CONNECTED_MAX: usize = 256;

fn plan(options: &Options) -> Vec<Case> {
    let own: &[usize] = match (options.fabric.is_simulated(), options.quick) {
        (true, true) => &[8, 16, 32],
        (true, false) => &[16, 64, 256, 1024],
        (false, true) => &[2, 4],
        (false, false) => &[2, 4, 8, 16],
    };
    let mut cases = Vec::new();
    for nodes in options.nodes_or(own) {
        for design in DESIGNS {
            if options.nodes.is_empty() && design != Design::MesqSr && nodes > CONNECTED_MAX {
                continue;
            }
            let setting = Setting {
                nodes,
                buffers: Buffers::Fixed(2),
                ..options.base(Transport::Design(design))
            };
            cases.push(Case::new(design.name(), X::Number(nodes as f64), setting));
        }
    }
    cases
}

fn per_node(measured: &Measured, value: u64) -> f64 {
    value as f64 / measured.nodes.len() as f64
}

fn tell(results: &Results) -> Vec<Figure> {
    let figure = |id, title, y: Axis, value: fn(&Measured) -> f64| {
        results.figure(
            About {
                id,
                title,
                place: "section 7.1.4",
                paper_saw: "Up to 16 nodes on EDR no design degrades; the paper expects those over connections to do so \
                            in larger clusters, and MESQ/SR not to.",
                x: axis("nodes", Unit::None, Scale::Log2),
                y,
            },
            each,
            value,
        )
    };
    let mut rates = figure(
        "scaleout-throughput",
        "Throughput as the cluster grows",
        throughput(),
        |measured| measured.bytes_per_second,
    );
    let kept = |design: Design| {
        let points = rates.points(design.name());
        Some(points.last()?.median / points.first()?.median)
    };
    let found = kept(Design::MesqSr).map(|share| {
        let measured = format!(
            "it keeps {} from the fewest to the most nodes",
            percent(share)
        );
        (measured, at_least(share, 0.9))
    });
    rates.find("SH16", found);
    let count = |label: &str| axis(label, Unit::None, Scale::Log2);
    vec![
        rates,
        figure(
            "scaleout-setup",
            "Time to connect as the cluster grows",
            axis("time to connect", Unit::Seconds, Scale::Log2),
            |measured| measured.setup_seconds,
        ),
        figure(
            "scaleout-queue-pairs",
            "Queue pairs of a node as the cluster grows",
            count("queue pairs that send"),
            |measured| per_node(measured, measured.endpoints().queue_pairs),
        ),
        figure(
            "scaleout-memory",
            "Registered memory of a node as the cluster grows",
            axis("registered memory of a node", Unit::Bytes, Scale::Log2),
            |measured| per_node(measured, measured.endpoints().registered_bytes),
        ),
        figure(
            "scaleout-messages",
            "Messages that a node sends for each gigabyte as the cluster grows",
            count("messages for a gigabyte, those of credit included"),
            |measured| {
                let all = measured.endpoints();
                let gigabytes = measured.sent_rows() as f64 * TUPLE_BYTES as f64 / 1e9;
                (all.messages + all.credit_messages) as f64 / gigabytes
            },
        ),
    ]
}
