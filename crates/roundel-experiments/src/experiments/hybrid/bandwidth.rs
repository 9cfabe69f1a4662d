//! Networks and transports: the queries of TPC-H as they were recorded, replayed on simulated clusters.

use super::super::judgement::at_least;
use super::super::tell::{About, axis};
use super::super::{Case, Experiment, Options, Results, Work};
use super::{hourly, totals};
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::hybrid::{Carrier, Mix, SCALE, Way};
use crate::paper::Paper;

pub const EXPERIMENT: Experiment = Experiment {
    name: "hybrid-bandwidth",
    title: "Networks from 1 GbE to EDR and transports, by the queries of TPC-H",
    figures: &["3", "12b"],
    simulated: true,
    on_devices: false,
    paper: Paper::Hybrid,
    plan,
    tell,
};

const QUICK_QUERIES: [u32; 3] = [1, 4, 9];

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
        Some((measured, at_least(rdma / tcp, 1.2)))
    })();
    figure.find("HY03a", found);
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
    use roundel_verbs::sim::Parameters;

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
