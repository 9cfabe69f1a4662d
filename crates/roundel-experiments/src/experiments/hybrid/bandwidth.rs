//! Networks and transports: the queries of TPC-H as they were recorded, replayed on simulated clusters.
//!
//! A query is what it exchanges and what it computes, dealt to all nodes alike: each thread sends to all other nodes in any
//! order, and for each message that comes a thread computes for as long as the query has to. A part of the query is
//! simulated, which is as long for each node and thread; the whole takes as many times as long as it is larger.

use super::super::tell::{About, axis, verdict};
use super::super::tpch::{Recording, TpchQuery};
use super::super::{Case, Experiment, Options, Results, Work};
use super::{QUERY_COUNT, hourly, totals};
use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::hybrid::{Carrier, Hybrid};
use crate::kept::Kept;
use crate::scorecard::Paper;
use roundel_exchange::{Architecture, Scheduling};
use roundel_verbs::sim::Parameters;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-bandwidth",
    title: "Networks from 1 GbE to EDR and transports, by the queries of TPC-H",
    figures: &["Rödiger et al., 3, 12b"],
    simulated: true,
    on_devices: false,
    hardware: "qdr",
    plan,
    tell,
};

/// Of the tables, as in the paper.
const SCALE: f64 = 100.0;
const QUICK_QUERIES: [u32; 3] = [1, 4, 9];
/// Threads of a node: its processors have 10 cores each.
const THREADS: usize = 20;
/// Bytes of a message, as multiplexers have them; a query with fewer for a node and thread has shorter ones.
const MESSAGE_BYTES: f64 = 65536.0;
const MESSAGE_BYTES_MIN: f64 = 4096.0;
/// Messages of a thread that are simulated.
const MESSAGES: usize = 12;

/// A network: what it is called, and the hardware where there is RDMA, and where there is TCP.
struct Network {
    name: &'static str,
    rdma: Option<&'static str>,
    tcp: &'static str,
}

const NETWORKS: [Network; 6] = [
    // There are no NICs with RDMA for it.
    Network::new("1 GbE", None, "1gbe-tcp"),
    Network::new("10 GbE", Some("iwarp10"), "10gbe-tcp"),
    Network::new("SDR", Some("sdr"), "sdr"),
    Network::new("DDR", Some("ddr"), "ddr"),
    Network::new("QDR", Some("qdr"), "qdr"),
    Network::new("EDR", Some("edr"), "edr"),
];
/// Those of the quick form.
const QUICK_NETWORKS: [&str; 2] = ["10 GbE", "QDR"];

impl Network {
    const fn new(name: &'static str, rdma: Option<&'static str>, tcp: &'static str) -> Self {
        Self { name, rdma, tcp }
    }

    /// The hardware for a way to move rows, if there is any.
    fn hardware(&self, way: Way) -> Option<&'static str> {
        match way.carrier() {
            Carrier::Rdma => self.rdma,
            Carrier::Tcp | Carrier::TunedTcp => Some(self.tcp),
        }
    }
}

/// How rows are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    TunedTcp,
    Rdma,
    RdmaWithSchedule,
}

impl Way {
    const ALL: [Self; 4] = [
        Self::Tcp,
        Self::TunedTcp,
        Self::Rdma,
        Self::RdmaWithSchedule,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::TunedTcp => "tuned TCP",
            Self::Rdma => "RDMA",
            Self::RdmaWithSchedule => "RDMA with schedule",
        }
    }

    fn carrier(self) -> Carrier {
        match self {
            Self::Tcp => Carrier::Tcp,
            Self::TunedTcp => Carrier::TunedTcp,
            Self::Rdma | Self::RdmaWithSchedule => Carrier::Rdma,
        }
    }

    fn scheduling(self) -> Scheduling {
        match self {
            Self::RdmaWithSchedule => Scheduling::On,
            Self::Tcp | Self::TunedTcp | Self::Rdma => Scheduling::Off,
        }
    }
}

/// Queries on a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    fabric: FabricChoice,
    way: Way,
    nodes: usize,
    threads: usize,
    queries: Vec<u32>,
}

impl Mix {
    /// All queries on nodes of this hardware.
    pub(crate) fn new(hardware: &str, way: Way, nodes: usize) -> Self {
        let fabric = format!("sim:{hardware}");
        Self {
            fabric: fabric.parse().expect("a generation"),
            way,
            nodes,
            threads: THREADS,
            queries: (1..=QUERY_COUNT).collect(),
        }
    }

    /// Runs them, one after the other.
    pub(in super::super) fn run(&self, kept: &Kept) -> Result<Vec<TpchQuery>> {
        let queries = self.queries.iter();
        let run = |one: &Hybrid| {
            Ok(kept
                .or_measure(one, || crate::hybrid::run(one))?
                .bytes_per_second)
        };
        let took = queries.map(|query| Ok(TpchQuery::replayed(*query, self.seconds(*query, run)?)));
        took.collect()
    }

    /// How many queries it has.
    pub(crate) fn count(&self) -> usize {
        self.queries.len()
    }

    /// Seconds of all queries, one after the other, of which `rate` says the bytes per second that a node gets.
    pub(crate) fn total_seconds(&self, rate: impl Fn(&Hybrid) -> Result<f64>) -> Result<f64> {
        let queries = self.queries.iter();
        queries.map(|query| self.seconds(*query, &rate)).sum()
    }

    /// Seconds of all queries on one node.
    pub(crate) fn alone_seconds(&self) -> Result<f64> {
        let alone = Self {
            nodes: 1,
            ..self.clone()
        };
        let queries = self.queries.iter();
        queries
            .map(|query| alone.computing_seconds(&Recording::of(*query)?))
            .sum()
    }

    /// Seconds that each node computes.
    fn computing_seconds(&self, recording: &Recording) -> Result<f64> {
        let cycles = self.cycles(recording);
        let cycle = self.parameters()?.cpu.cycle.as_picos() as f64 * 1e-12;
        Ok(cycles * cycle / self.threads as f64)
    }

    /// Cycles that each node computes: a second of the host that recorded is one of the base case.
    fn cycles(&self, recording: &Recording) -> f64 {
        let (_, seconds) = recording.of_node(SCALE, self.nodes);
        seconds * 1e12 / Parameters::edr().cpu.cycle.as_picos() as f64
    }

    fn parameters(&self) -> Result<Parameters> {
        let hardware = self.fabric.hardware();
        hardware.ok_or_else(|| Error::Setting(format!("{} is not simulated", self.fabric)))
    }

    fn seconds(&self, query: u32, rate: impl Fn(&Hybrid) -> Result<f64>) -> Result<f64> {
        let recording = Recording::of(query)?;
        let computing = self.computing_seconds(&recording)?;
        let (bytes, _) = recording.of_node(SCALE, self.nodes);
        match self.part(bytes, self.cycles(&recording)) {
            Some(part) => Ok((bytes / rate(&part)?).max(computing)),
            None => Ok(computing),
        }
    }

    /// The part of a query that is simulated; none where a node exchanges less than a short message for each of its threads
    /// and each other node, which takes no time beside what it computes.
    fn part(&self, bytes: f64, cycles: f64) -> Option<Hybrid> {
        let others = self.nodes - 1;
        let of_thread = bytes / (self.threads * others) as f64;
        if of_thread < MESSAGE_BYTES_MIN {
            return None;
        }
        let message_bytes = of_thread.min(MESSAGE_BYTES).floor();
        let most = (of_thread / message_bytes) as usize;
        Some(Hybrid {
            threads: self.threads,
            message_bytes: message_bytes as usize,
            messages: MESSAGES.div_ceil(others).clamp(1, most.max(1)),
            carrier: self.way.carrier(),
            scheduling: self.way.scheduling(),
            work_cycles: (cycles * message_bytes / bytes) as u64,
            ..Hybrid::new(self.fabric.clone(), Architecture::Multiplexer, self.nodes)
        })
    }
}

fn plan(options: &Options) -> Vec<Case> {
    let own: &[usize] = match options.quick {
        true => &[2, 6],
        false => &[2, 3, 4, 5, 6],
    };
    let networks = NETWORKS.iter();
    let networks = networks.filter(|one| !options.quick || QUICK_NETWORKS.contains(&one.name));
    let mut cases = Vec::new();
    for network in networks {
        for way in Way::ALL {
            let Some(hardware) = network.hardware(way) else {
                continue;
            };
            for nodes in options.nodes_or(own) {
                let all = Mix::new(hardware, way, nodes);
                let mix = Mix {
                    threads: options.threads.unwrap_or(all.threads),
                    queries: match options.quick {
                        true => QUICK_QUERIES.to_vec(),
                        false => all.queries,
                    },
                    ..all
                };
                cases.push(Case {
                    series: series(network.name, way),
                    x: X::Number(nodes as f64),
                    work: Work::Mix(Box::new(mix)),
                });
            }
        }
    }
    cases
}

fn series(network: &str, way: Way) -> String {
    format!("{network}, {}", way.name())
}

const PAPER_SAW: &str = "More bandwidth alone is not enough: over TCP queries gain little by it; through multiplexers over RDMA                          they do.";

fn tell(results: &Results) -> Vec<Figure> {
    let mut figures = vec![by_network(results)];
    figures.extend(Way::ALL.map(|way| by_nodes(results, way)));
    figures
}

/// Queries per hour at the most nodes.
fn by_network(results: &Results) -> Figure {
    let places = results.cases.iter().filter_map(|(case, _)| match case.x {
        X::Number(nodes) => Some(nodes),
        X::Name(_) => None,
    });
    let most = places.fold(0.0, f64::max);
    let title = format!("Queries of TPC-H per hour on {most} nodes, scale factor {SCALE}");
    let mut figure = About {
        id: "hybrid-bandwidth",
        title: &title,
        place: "Figures 3 and 12b",
        paper_saw: PAPER_SAW,
        x: axis("network", Unit::None, Scale::Names),
        y: axis("queries per hour", Unit::None, Scale::Linear),
    }
    .figure_of(Paper::Hybrid);
    for way in Way::ALL {
        for network in &NETWORKS {
            let own = results.cases.iter();
            let mut own = own.filter(|(case, _)| {
                case.series == series(network.name, way) && case.x == X::Number(most)
            });
            if let Some((_, runs)) = own.next() {
                let x = X::Name(network.name.into());
                figure.add(way.name(), Point::of_runs(x, hourly(runs)));
            }
        }
    }
    let at = |network: &str, way: Way| figure.at(way.name(), &X::Name(network.into()));
    let [slow, fast] = QUICK_NETWORKS;
    let found = (|| {
        let (before, tcp) = (at(slow, Way::TunedTcp)?, at(fast, Way::TunedTcp)?);
        let rdma = at(fast, Way::Rdma)?;
        let measured = format!(
            "from {slow} to {fast} {:.2} times as many queries over tuned TCP, and {:.2} times over RDMA",
            tcp / before,
            rdma / before
        );
        Some((measured, verdict(rdma >= 1.2 * tcp)))
    })();
    figure.find("HY03", "More bandwidth alone is not enough", found);
    figure
}

/// How many times as fast all queries are as on one node, which exchanges nothing.
fn by_nodes(results: &Results, way: Way) -> Figure {
    let id = format!(
        "hybrid-bandwidth-{}",
        way.name().to_lowercase().replace(' ', "-")
    );
    let title = format!("All queries beside one node: {}", way.name());
    let mut figure = About {
        id: &id,
        title: &title,
        place: "Figure 3",
        paper_saw: PAPER_SAW,
        x: axis("nodes", Unit::None, Scale::Linear),
        y: axis("times as fast as one node", Unit::None, Scale::Linear),
    }
    .figure_of(Paper::Hybrid);
    for (case, runs) in &results.cases {
        let Work::Mix(mix) = &case.work else { continue };
        let (Ok(alone), true) = (mix.alone_seconds(), mix.way == way) else {
            continue;
        };
        let network = case.series.split(',').next().unwrap_or_default();
        let times = totals(runs).map(|seconds| alone / seconds).collect();
        figure.add(network, Point::of_runs(case.x.clone(), times));
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_simulated_is_a_part_of_the_query() {
        let mix = Mix::new("qdr", Way::Rdma, 6);
        let (bytes, cycles) = (1e9, 1e11);
        let part = mix.part(bytes, cycles).unwrap();
        assert_eq!(part.message_bytes, 65536);
        assert_eq!(part.messages, MESSAGES.div_ceil(5));
        let work = part.work_cycles as f64 / part.message_bytes as f64;
        assert!((work / (cycles / bytes) - 1.0).abs() < 1e-3);
        // Of little, all; of next to nothing, none.
        let little = mix.part(20.0 * 5.0 * 10_000.0, cycles).unwrap();
        assert_eq!((little.message_bytes, little.messages), (10_000, 1));
        assert_eq!(mix.part(1000.0, cycles), None);
    }

    #[test]
    fn queries_take_as_long_as_they_compute_or_exchange() {
        let mix = Mix::new("edr", Way::Rdma, 4);
        let fast = mix.total_seconds(|_| Ok(1e15)).unwrap();
        assert!((fast / (mix.alone_seconds().unwrap() / 4.0) - 1.0).abs() < 1e-9);
        let slow = |rate: f64| mix.total_seconds(|_| Ok(rate)).unwrap();
        assert!(slow(1e6) > 100.0 * fast);
        assert!((slow(1e5) / slow(1e6) - 10.0).abs() < 0.1);
    }

    #[test]
    fn every_way_has_its_hardware() {
        for network in &NETWORKS {
            for way in Way::ALL {
                if let Some(hardware) = network.hardware(way) {
                    assert!(Parameters::named(hardware).is_some(), "{hardware}");
                }
            }
            assert!(network.hardware(Way::TunedTcp).is_some());
        }
    }
}
