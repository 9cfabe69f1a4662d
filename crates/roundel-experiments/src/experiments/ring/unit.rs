//! How large what is sent at a time has to be: messages by themselves, and elements of a ring.

use super::super::tell::{About, axis, throughput};
use super::super::{Case, Experiment, Options, Results};
use super::{case, hosts, join, judged};
use crate::fabric::FabricChoice;
use crate::figure::{Figure, Scale, Unit, X};
use crate::ring::{Method, RelationRows, RingJoin, RingMeasured};
use crate::scorecard::Paper;
use crate::setting::{Setting, Transport};

pub const EXPERIMENT: Experiment = Experiment {
    name: "ring-unit",
    title: "Throughput of a link by the size of messages, and of elements of a ring",
    figures: &["Frey et al. 5"],
    simulated: true,
    on_devices: true,
    hardware: "iwarp10",
    plan,
    tell,
};

const RAW: &str = "messages";
const RING: &str = "elements of a ring";
/// Elements that begin on a host: of simulated ones, which keep no rows, and of others.
const ELEMENTS: u64 = 128;
const ELEMENTS_OF_ROWS: u64 = 8;
/// Least bytes of an element that rows fit into, with what is around them.
const ROOM_FOR_ROWS: usize = 1 << 12;
/// Of virtual time, in which messages are sent: of the largest there are some hundreds.
const SECONDS: f64 = 0.4;
/// Of messages and elements, in bytes.
pub(crate) const SIZES: [usize; 11] = [
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
];
/// A share of the highest throughput that is as good as all of it.
pub(crate) const FULL: f64 = 0.95;

/// Messages of a size between two hosts, over and over.
pub(crate) fn raw(fabric: &FabricChoice, bytes: usize) -> Setting {
    let fabric = match fabric {
        // Short messages do not stand for longer ones.
        FabricChoice::Simulated { name, .. } => FabricChoice::Simulated {
            name: name.clone(),
            bytes: true,
        },
        device => device.clone(),
    };
    Setting {
        message_bytes: Some(bytes),
        seconds: SECONDS,
        ..Setting::new(Transport::Qperf, fabric)
    }
}

/// The join that needs most of the network, of as many elements whatever their size.
pub(crate) fn by_element(join: RingJoin, element_bytes: usize) -> RingJoin {
    let elements = match join.fabric.is_simulated() {
        true => ELEMENTS,
        false => ELEMENTS_OF_ROWS,
    };
    let own = elements * (element_bytes / join.row_bytes) as u64;
    RingJoin {
        method: Method::Merge,
        rows: RelationRows::alike(own * join.hosts as u64),
        element_bytes,
        ..join
    }
}

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for bytes in options.some(&SIZES) {
        let x = X::Number(bytes as f64);
        cases.push(Case::new(RAW, x, raw(&options.fabric, bytes)));
        if bytes < ROOM_FOR_ROWS && !options.fabric.is_simulated() {
            continue;
        }
        let ring = join(options, Method::Merge, hosts(options));
        cases.push(case(RING, bytes as f64, by_element(ring, bytes)));
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = About {
        id: "ring-fig5",
        title: "Throughput of a link by the size of what is sent at a time",
        place: "Figure 5, section III-C",
        paper_saw: "At 10 Gb/s RDMA needs messages of about 4 kB, and the ring elements of 1 MB, for all of the link.",
        x: axis("size", Unit::Bytes, Scale::Log2),
        y: throughput(),
    }
    .figure_of(Paper::Ring);
    results.add_settings(
        &mut figure,
        |series| (series == RAW).then(|| series.into()),
        |measured| measured.bytes_per_second,
    );
    results.add_rings(&mut figure, RING, RING, RingMeasured::link_rate);
    for (series, statement) in [
        (RAW, "Messages have all of the link from about 4 kB on"),
        (RING, "Elements have all of the link from about 1 MB on"),
    ] {
        let least: f64 = if series == RAW { 4e3 } else { 1e6 };
        let found = figure.best(series).map(|best| {
            let points = figure.points(series).iter();
            let full = points.filter(|point| point.median >= FULL * best.median);
            let first = full.filter_map(|point| match point.x {
                X::Number(bytes) => Some(bytes),
                X::Name(_) => None,
            });
            let first = first.fold(f64::INFINITY, f64::min);
            let told = format!("from {first} bytes, of those that were run");
            (
                told,
                judged(results, (0.5..=2.1).contains(&(first / least))),
            )
        });
        figure.find("CJ01", statement, found);
    }
    vec![figure]
}
