//! The designs and what they are compared with, as nodes are added (section 7.1.4).

use super::judgement::{Judgement, above, below, reaches};
use super::tell::{About, axis, percent, rate, throughput};
use super::{Case, Experiment, Options, Results};
use crate::claims::claim;
use crate::figure::{Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Pattern, Setting, Transport};
use roundel_exchange::Design;

pub const EXPERIMENT: Experiment = Experiment {
    name: "designs",
    title: "The designs and what they are compared with, as nodes are added",
    figures: &["19a", "19b", "19c", "19d", "section 7.3.4"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const BROADCAST: &str = "broadcast, ";
/// MPI where cores are used by threads, and by processes.
const THREADS: &str = "threads of 2 processes";
const PROCESSES: &str = "processes of 1 thread";

fn plan(options: &Options) -> Vec<Case> {
    let nodes: &[usize] = if options.quick { &[2, 4] } else { &[2, 4, 8] };
    let mut transports = options.designs();
    transports.extend(options.baselines());
    let mut cases = Vec::new();
    for nodes in options.nodes_or(nodes) {
        let x = X::Number(nodes as f64);
        for &transport in &transports {
            let repartition = Setting {
                nodes,
                ..options.base(transport)
            };
            let broadcast = Setting {
                pattern: Pattern::Broadcast,
                ..repartition.clone()
            };
            cases.push(Case::new(transport.name(), x.clone(), repartition));
            cases.push(Case::new(
                format!("{BROADCAST}{}", transport.name()),
                x.clone(),
                broadcast,
            ));
        }
        for alone in [Transport::Qperf, Transport::Partition] {
            let setting = Setting {
                nodes,
                ..options.base(alone)
            };
            cases.push(Case::new(alone.name(), x.clone(), setting));
        }
    }
    if options.mpi && !options.fabric.is_simulated() {
        cases.extend(mpi_cases(options));
    }
    cases
}

/// Threads against processes: by how many there are of both.
fn mpi_cases(options: &Options) -> impl Iterator<Item = Case> {
    let base = options.base(Transport::Mpi);
    [2, 4].into_iter().flat_map(move |workers| {
        let threads = Setting {
            nodes: 2,
            threads: workers / 2,
            ..base.clone()
        };
        let processes = Setting {
            nodes: workers,
            threads: 1,
            ..base.clone()
        };
        let x = X::Number(workers as f64);
        [
            Case::new(THREADS, x.clone(), threads),
            Case::new(PROCESSES, x, processes),
        ]
    })
}

/// The best design at the place where it is ahead most, with how far: name, ratio.
fn most_ahead(figure: &Figure, to: &str) -> Option<(&'static str, f64)> {
    let ratios = Design::ALL.iter().filter_map(|design| {
        figure
            .ratio(design.name(), to)
            .map(|ratio| (design.name(), ratio))
    });
    ratios.max_by(|one, other| one.1.total_cmp(&other.1))
}

/// Whether a design is so many times ahead as is claimed.
fn ahead(figure: &Figure, to: &str, claimed: f64) -> Option<(String, Judgement)> {
    most_ahead(figure, to).map(|(design, ratio)| {
        (
            format!("{design} is up to {ratio:.2} times as fast"),
            reaches(ratio, claimed),
        )
    })
}

fn tell(results: &Results) -> Vec<Figure> {
    let nodes = || axis("nodes", Unit::None, Scale::Log2);
    let mut repartition = results.figure(
        About {
            id: "fig19ac",
            title: "Throughput of repartitioning",
            place: "Figures 19a and 19c, section 7.1.4",
            paper_saw: "The best designs are near the line rate, up to twice as fast as MPI and three times as \
                        fast as sockets. MESQ/SR keeps its throughput as nodes are added.",
            x: nodes(),
            y: throughput(),
        },
        |series| {
            let other = series.starts_with(BROADCAST) || [THREADS, PROCESSES].contains(&series);
            (!other).then(|| series.into())
        },
        |measured| measured.bytes_per_second,
    );
    let mesq = Design::MesqSr.name();
    let (mpi, sockets) = (Transport::Mpi.name(), Transport::Sockets.name());
    let partition = Transport::Partition.name();
    let found = most_ahead(&repartition, partition).map(|(design, share)| {
        let measured = format!(
            "{design} has {} of what partitioning alone has on the same cores, which are the limit here",
            percent(share)
        );
        (measured, reaches(share, 0.7))
    });
    repartition.find("SH13", found);
    let found = ahead(&repartition, mpi, claim("SH14").times);
    repartition.find("SH14", found);
    let found = ahead(&repartition, sockets, claim("SH15").times);
    repartition.find("SH15", found);
    let grpc = Transport::Grpc.name();
    let found = ahead(&repartition, grpc, 4.0);
    repartition.find_own(
        "-",
        "Designs are 4 times as fast as Arrow Flight over gRPC",
        found,
    );
    let kept = |design: &str| {
        let points = repartition.points(design);
        Some(points.last()?.median / points.first()?.median)
    };
    let found = kept(mesq)
        .zip(kept(Design::MemqRd.name()))
        .map(|(datagrams, connections)| {
            let measured = format!(
                "with the most nodes MESQ/SR has {} of its throughput at 2, MEMQ/RD {}",
                percent(datagrams),
                percent(connections)
            );
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let last = repartition.points(mesq).last().map(|point| &point.x);
            let judged = above(datagrams / connections, 1.0);
            match last {
                Some(X::Number(nodes)) if *nodes > cores as f64 => (
                    format!("{measured}; they share {cores} cores"),
                    judged.if_told(false),
                ),
                _ => (measured, judged),
            }
        });
    repartition.find("SH16", found);

    let mut broadcast = results.figure(
        About {
            id: "fig19bd",
            title: "Throughput of broadcasting",
            place: "Figures 19b and 19d, section 7.1.4",
            paper_saw: "Designs are up to 4 times as fast as MPI and 3 times as fast as sockets. Those that read \
                        lose much: a buffer waits for its slowest reader.",
            x: nodes(),
            y: throughput(),
        },
        |series| series.strip_prefix(BROADCAST).map(Into::into),
        |measured| measured.bytes_per_second,
    );
    let found = ahead(&broadcast, mpi, claim("SH20").times);
    broadcast.find("SH20", found);
    let found = ahead(&broadcast, sockets, claim("SH21").times);
    broadcast.find("SH21", found);
    let (reads, sends) = (Design::MemqRd.name(), Design::MemqSr.name());
    let at_most = |figure: &Figure| {
        let most = figure.points(sends).last()?;
        Some((figure.at(reads, &most.x)? / most.median, most.median))
    };
    let found = at_most(&broadcast).zip(at_most(&repartition)).map(
        |((in_broadcast, sends), (other, _))| {
            let measured = format!(
                "MEMQ/RD has {} of MEMQ/SR's {} in broadcasts, {} in repartitioning",
                percent(in_broadcast),
                rate(sends),
                percent(other)
            );
            (measured, below(in_broadcast / other, 0.85))
        },
    );
    broadcast.find("SH22a", found);
    let mut figures = vec![repartition, broadcast];
    if results.options.mpi {
        figures.push(tell_mpi(results));
    }
    figures
}

fn tell_mpi(results: &Results) -> Figure {
    let mut figure = results.figure(
        About {
            id: "mpi-threads",
            title: "MPI with threads and with processes",
            place: "section 7.3.4",
            paper_saw: "MPI is slow with many threads, and near the line rate with many processes.",
            x: axis("threads in all", Unit::None, Scale::Log2),
            y: axis("throughput of all", Unit::BytesPerSecond, Scale::Linear),
        },
        |series| {
            [THREADS, PROCESSES]
                .contains(&series)
                .then(|| series.into())
        },
        |measured| measured.bytes_per_second * measured.nodes.len() as f64,
    );
    let most = X::Number(4.0);
    let found = figure
        .at(THREADS, &most)
        .zip(figure.at(PROCESSES, &most))
        .map(|(threads, processes)| {
            let measured = format!(
                "{} with 4 threads, {} with 4 processes",
                rate(threads),
                rate(processes)
            );
            (measured, below(threads / processes, 0.9))
        });
    figure.find("SH40", found);
    figure
}
