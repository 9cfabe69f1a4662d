//! Connections, registered memory and throughput of the three exchanges, as nodes and threads grow.

use super::super::judgement::below;
use super::super::tell::{About, axis, throughput};
use super::super::{Case, Experiment, Options, Results};
use super::case;
use crate::figure::{Axis, Figure, Scale, Unit, X};
use crate::hybrid::{Hybrid, HybridMeasured};
use crate::paper::Paper;
use roundel_exchange::Architecture;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-architectures",
    title: "Endpoints, multiplexers and units: connections, registered memory and throughput",
    figures: &["section 3.1"],
    simulated: true,
    on_devices: true,
    paper: Paper::Hybrid,
    plan,
    tell,
};

/// Exchanges of a node at once, as those of a query.
const OPERATORS: usize = 3;
/// Before the names of architectures where threads vary.
const BY_THREADS: &str = "threads, ";
/// Nodes where threads vary, and threads where nodes do.
const NODES: usize = 4;
const THREADS: usize = 4;

fn plan(options: &Options) -> Vec<Case> {
    let simulated = options.fabric.is_simulated();
    let nodes: &[usize] = match (simulated, options.quick) {
        (true, true) => &[2, 8],
        (true, false) => &[2, 4, 8, 16],
        (false, true) => &[2, 4],
        (false, false) => &[2, 3, 4, 6],
    };
    let threads: &[usize] = match (simulated, options.quick) {
        (true, true) => &[1, 4],
        (true, false) => &[1, 2, 4, 8, 16],
        (false, _) => &[1, 2, 4],
    };
    let mut cases = Vec::new();
    for architecture in Architecture::ALL {
        let of = |nodes, threads| Hybrid {
            threads,
            operators: OPERATORS,
            messages: if options.quick { 8 } else { 32 },
            ..Hybrid::new(options.fabric.clone(), architecture, nodes)
        };
        let own = options
            .threads
            .unwrap_or(if simulated { THREADS } else { 2 });
        for nodes in options.nodes_or(nodes) {
            let x = X::Number(nodes as f64);
            cases.push(case(architecture.name(), x, of(nodes, own)));
        }
        for threads in threads {
            let series = format!("{BY_THREADS}{architecture}");
            cases.push(case(
                series,
                X::Number(*threads as f64),
                of(NODES, *threads),
            ));
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let figures = [
        ("nodes", "nodes", ""),
        ("threads", "threads of a node", BY_THREADS),
    ];
    let mut told = Vec::new();
    for (id, label, before) in figures {
        let of = |what: &str, title: &str, y: Axis, value: fn(&HybridMeasured) -> f64| {
            let id = format!("hybrid-{what}-{id}");
            let title = format!("{title}, by {label}");
            let mut figure = About {
                id: &id,
                title: &title,
                place: "section 3.1",
                paper_saw: "A classic exchange has a connection between every two of n·t units, for each operator; a \
                            multiplexer connects servers only.",
                x: axis(label, Unit::None, Scale::Linear),
                y,
            }
            .figure_of(Paper::Hybrid);
            let series = |name: &str| {
                let by_threads = name.strip_prefix(BY_THREADS);
                match before.is_empty() {
                    true => by_threads.is_none().then(|| name.to_owned()),
                    false => by_threads.map(str::to_owned),
                }
            };
            results.add(&mut figure, series, |run| {
                run.try_as_hybrid_ref().map(value)
            });
            figure
        };
        let mut pairs = of(
            "connections",
            "Queue pairs of a node",
            axis("queue pairs", Unit::None, Scale::Log2),
            |measured| measured.queue_pairs as f64,
        );
        let multiplexer = pairs.points(Architecture::Multiplexer.name());
        let classic = pairs.points(Architecture::Classic.name());
        let found = multiplexer.last().zip(classic.last()).map(|(one, other)| {
            let measured = format!(
                "{} through the multiplexer, {} between units, with {OPERATORS} operators",
                one.median, other.median
            );
            (measured, below(one.median / other.median, 1.0))
        });
        pairs.find("HY04a", found);
        told.push(pairs);
        told.push(of(
            "memory",
            "Registered memory of a node",
            axis("registered memory", Unit::Bytes, Scale::Log2),
            |measured| measured.registered_bytes as f64,
        ));
        told.push(of(
            "throughput",
            "Throughput of a node",
            throughput(),
            |measured| measured.bytes_per_second,
        ));
    }
    told
}
