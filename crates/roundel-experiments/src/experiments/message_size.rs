//! How long messages should be over reliable connections (section 7.1.3).

use super::judgement::{below, reaches};
use super::tell::{About, axis, each, percent, throughput};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Axis, Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Buffers, Design};

pub const EXPERIMENT: Experiment = Experiment {
    name: "message-size",
    title: "How long messages should be over reliable connections",
    figures: &["18a", "18b", "18c"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const KIB: usize = 1 << 10;
const SIZES: [usize; 7] = [
    4 * KIB,
    8 * KIB,
    16 * KIB,
    64 * KIB,
    128 * KIB,
    256 * KIB,
    1024 * KIB,
];
/// Over datagrams, whose size is the device's.
const DATAGRAMS: Design = Design::MesqSr;
/// Threads of a node, unless it is said how many.
const THREADS: usize = 2;
/// Nodes of the paper, and threads of each: links grow with both, and memory with links.
const PAPER_NODES: usize = 8;
const PAPER_THREADS: usize = 14;
/// Operators of a node, each of which has memory of its own: one sends, one receives.
const OPERATORS: f64 = 2.0;

/// A design with two buffers for each link, as in the paper.
fn setting(options: &Options, design: Design) -> Setting {
    Setting {
        threads: options.threads_or(THREADS),
        buffers: Buffers::Fixed(2),
        ..options.base(Transport::Design(design))
    }
}

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in options.some(&SIZES) {
        for design in connected() {
            let setting = Setting {
                message_bytes: Some(size),
                ..setting(options, design)
            };
            cases.push(Case::new(design.name(), X::Number(size as f64), setting));
        }
    }
    let datagrams = setting(options, DATAGRAMS);
    cases.push(Case::new(DATAGRAMS.name(), datagram(), datagrams));
    cases
}

/// The designs whose message size can be chosen.
fn connected() -> impl Iterator<Item = Design> {
    let connected =
        |design: &Design| design.transport() == roundel_verbs::Transport::ReliableConnection;
    Design::ALL.into_iter().filter(connected)
}

/// Where datagrams are on the axis of sizes.
fn datagram() -> X {
    X::Number((4 * KIB) as f64)
}

fn size() -> Axis {
    axis("message size", Unit::Bytes, Scale::Log2)
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut throughputs = results.figure(
        About {
            id: "fig18a",
            title: "Throughput by message size",
            place: "Figure 18a, section 7.1.3",
            paper_saw: "With one endpoint, messages of up to 16 KiB leave much of the network unused; with an \
                        endpoint for each thread throughput is near its peak from 4 KiB on.",
            x: size(),
            y: throughput(),
        },
        each,
        |measured| measured.bytes_per_second,
    );
    let smallest = X::Number(SIZES[0] as f64);
    // The worst of the designs of one kind, at the smallest size.
    let share = |kind: &str| {
        let of_kind = connected().filter(|design| design.name().starts_with(kind));
        let shares = of_kind.filter_map(|design| {
            let best = throughputs.best(design.name())?.median;
            Some(throughputs.at(design.name(), &smallest)? / best)
        });
        shares.min_by(f64::total_cmp)
    };
    let (single, multiple) = (share("SE"), share("ME"));
    let found = single.map(|share| {
        let measured = format!(
            "at 4 KiB the worst of them has {} of its peak",
            percent(share)
        );
        (measured, below(share, 0.7))
    });
    throughputs.find("SH10a", found);
    let found = multiple.map(|share| {
        let measured = format!(
            "at 4 KiB the worst of them has {} of its peak",
            percent(share)
        );
        (measured, reaches(share, 0.8))
    });
    throughputs.find("SH11", found);

    let messages = results.figure(
        About {
            id: "fig18b",
            title: "Messages a second by message size",
            place: "Figure 18b, section 7.1.3",
            paper_saw: "One endpoint can post so many messages a second and no more, which limits it where \
                        they are small.",
            x: size(),
            y: axis("messages of a node", Unit::PerSecond, Scale::Linear),
        },
        each,
        |measured| {
            let sent = measured.endpoints().messages as f64;
            sent / measured.seconds / measured.nodes.len() as f64
        },
    );

    let mut memory = results.figure(
        About {
            id: "fig18c",
            title: "Registered memory by message size",
            place: "Figure 18c, section 7.1.3",
            paper_saw: "More than 100 MiB for each operator at 1 MiB; datagrams reach their peak with less than \
                        1 MiB.",
            x: size(),
            y: axis("registered memory of a node", Unit::Bytes, Scale::Log2),
        },
        each,
        |measured| measured.endpoints().registered_bytes as f64 / measured.nodes.len() as f64,
    );
    let Setting { nodes, threads, .. } = setting(results.options, DATAGRAMS);
    let times = (PAPER_NODES * PAPER_THREADS) as f64 / (nodes * threads) as f64;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    // Of an operator on the paper's cluster, by what a node has on this one.
    let of_operator = |of_node: f64| mib(of_node) * times / OPERATORS;
    let there = format!("on {PAPER_NODES} nodes of {PAPER_THREADS} threads");
    let largest = X::Number(SIZES[SIZES.len() - 1] as f64);
    let name = Design::MemqSr.name();
    let found = memory.at(name, &largest).zip(memory.at(name, &smallest));
    let found = found.map(|(large, small)| {
        let measured = format!(
            "on {nodes} nodes of {threads} threads a node of MEMQ/SR registers {:.1} MiB at 1 MiB, {:.0} times as much as \
             at 4 KiB; {there} that is {:.0} MiB for each operator",
            mib(large),
            large / small,
            of_operator(large)
        );
        (measured, reaches(of_operator(large), 100.0))
    });
    memory.find("SH12", found);
    let found = memory.at(DATAGRAMS.name(), &datagram()).map(|of_node| {
        let measured = format!(
            "on {nodes} nodes of {threads} threads a node of {DATAGRAMS} registers {:.2} MiB; {there} that is {:.2} MiB for \
             each operator",
            mib(of_node),
            of_operator(of_node)
        );
        (measured, below(of_operator(of_node), 1.0))
    });
    memory.find_own(
        "-",
        "Over datagrams an operator needs less than 1 MiB",
        found,
    );
    vec![throughputs, messages, memory]
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::super::{Got, Work};
    use super::*;
    use crate::measured::{Endpoints, Measured, NodeMeasured};

    /// What nodes register that have two buffers for each link, of both sides.
    fn registers(case: &Case) -> Measured {
        let Work::Setting(setting) = &case.work else {
            panic!("{} moves no rows", case.series);
        };
        let links = setting.nodes * setting.threads;
        let bytes = 2 * 2 * links * setting.message_bytes.unwrap_or(4 * KIB);
        let node = NodeMeasured {
            endpoints: Endpoints {
                registered_bytes: bytes as u64,
                ..Endpoints::default()
            },
            ..NodeMeasured::default()
        };
        Measured::of(vec![node; setting.nodes])
    }

    /// What figure 18c says of connections and of datagrams.
    fn told(options: &Options) -> [String; 2] {
        let cases = plan(options).into_iter().map(|case| {
            let measured = registers(&case);
            (case, vec![Got::Measured(measured)])
        });
        let results = Results {
            options,
            cases: cases.collect(),
        };
        let figures = tell(&results);
        let memory = figures.iter().find(|figure| figure.id == "fig18c").unwrap();
        [0, 1].map(|number| memory.findings[number].measured.clone())
    }

    #[test]
    fn memory_is_that_of_the_nodes_asked_for() {
        let asked = |nodes: &[usize], threads| Options {
            nodes: nodes.to_vec(),
            threads,
            ..options(true)
        };
        for (options, cluster) in [
            (asked(&[], None), "on 2 nodes of 2 threads"),
            (asked(&[4], Some(7)), "on 4 nodes of 7 threads"),
            (asked(&[8], Some(14)), "on 8 nodes of 14 threads"),
        ] {
            let [connections, datagrams] = told(&options);
            // Whatever is run, it is the same of the paper's cluster.
            assert!(connections.starts_with(cluster), "{connections}");
            assert!(
                connections.ends_with("224 MiB for each operator"),
                "{connections}"
            );
            assert!(datagrams.starts_with(cluster), "{datagrams}");
            assert!(datagrams.contains("0.88 MiB"), "{datagrams}");
        }
    }

    #[test]
    fn all_have_two_buffers() {
        for case in plan(&options(false)) {
            let Work::Setting(setting) = case.work else {
                panic!("{} moves no rows", case.series);
            };
            assert_eq!(setting.buffers, Buffers::Fixed(2), "{}", case.series);
        }
    }
}
