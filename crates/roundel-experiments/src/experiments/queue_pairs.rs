//! What more queue pairs are worth (section 7.1.5).

use super::judgement::{at_least, holds};
use super::tell::{About, axis, each, rate, throughput};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Design, Notification};

pub const EXPERIMENT: Experiment = Experiment {
    name: "queue-pairs",
    title: "What more queue pairs are worth",
    figures: &["20", "table 1"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

/// The designs with one endpoint and with one for each thread, by what they have in common.
const FAMILIES: [(&str, [Design; 2]); 4] = [
    ("SQ/SR", [Design::SesqSr, Design::MesqSr]),
    ("MQ/SR", [Design::SemqSr, Design::MemqSr]),
    ("MQ/RD", [Design::SemqRd, Design::MemqRd]),
    (
        "MQ/WR",
        [
            Design::SemqWr(Notification::CompletionQueue),
            Design::MemqWr(Notification::CompletionQueue),
        ],
    ),
];
/// Threads of a node, unless it is said how many.
const THREADS: usize = 2;

/// How many nodes there are, and threads of each.
fn cluster(options: &Options) -> (usize, usize) {
    let nodes = options.fixed_nodes_or(if options.quick { 4 } else { 8 });
    (nodes, options.threads_or(THREADS))
}

fn plan(options: &Options) -> Vec<Case> {
    let (nodes, threads) = cluster(options);
    let mut cases = Vec::new();
    for (family, designs) in FAMILIES {
        for design in designs {
            let setting = Setting {
                nodes,
                threads,
                ..options.base(Transport::Design(design))
            };
            let queue_pairs = design.queue_pairs(nodes, threads);
            cases.push(Case::new(family, X::Number(queue_pairs as f64), setting));
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = results.figure(
        About {
            id: "fig20",
            title: "Throughput by queue pairs of a node",
            place: "Figure 20 and Table 1, section 7.1.5",
            paper_saw: "Over datagrams throughput is higher with fewer queue pairs than over connections.",
            x: axis("queue pairs that send", Unit::None, Scale::Log2),
            y: throughput(),
        },
        each,
        |measured| measured.bytes_per_second,
    );
    let datagrams = figure.best("SQ/SR").cloned();
    let connected = FAMILIES[1..]
        .iter()
        .filter_map(|(family, _)| figure.best(family));
    let connected = connected
        .max_by(|one, other| one.median.total_cmp(&other.median))
        .cloned();
    let found = datagrams.zip(connected).map(|(datagrams, connected)| {
        let pairs = |point: &Point| match &point.x {
            X::Number(pairs) => *pairs,
            X::Name(_) => 0.0,
        };
        let measured = format!(
            "{} with {} queue pairs over datagrams, at best {} with {} over connections",
            rate(datagrams.median),
            pairs(&datagrams),
            rate(connected.median),
            pairs(&connected)
        );
        (measured, at_least(datagrams.median / connected.median, 1.0))
    });
    figure.find("SH27a", found);
    let (nodes, threads) = cluster(results.options);
    let designs = FAMILIES
        .iter()
        .flat_map(|(family, designs)| designs.iter().map(move |design| (family, design)));
    let used: Option<Vec<_>> = designs
        .map(|(family, design)| {
            let expected = design.queue_pairs(nodes, threads) as f64;
            let used = results.median(family, &X::Number(expected), |measured| {
                measured.endpoints().queue_pairs as f64 / measured.nodes.len() as f64
            });
            used.map(|used| (format!("{design} {used}"), used == expected))
        })
        .collect();
    let found = used.map(|used| {
        let as_in_table = used.iter().all(|(_, as_in_table)| *as_in_table);
        let seen: Vec<_> = used.into_iter().map(|(seen, _)| seen).collect();
        let measured = format!("{} at {nodes} nodes of {threads} threads", seen.join(", "));
        (measured, holds(as_in_table, "all as in Table 1"))
    });
    figure.find("SH27b", found);
    vec![figure]
}
