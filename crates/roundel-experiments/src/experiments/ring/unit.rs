//! How large what is sent at a time has to be: messages by themselves, and elements of a ring.

use super::super::judgement::within;
use super::super::tell::{About, axis, throughput};
use super::super::{Case, Experiment, Options, Results};
use super::{case, hosts, join, judged};
use crate::figure::{Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::ring::{FULL, Method, RingMeasured, SIZES, by_element, raw};

pub const EXPERIMENT: Experiment = Experiment {
    name: "ring-unit",
    title: "Throughput of a link by the size of messages, and of elements of a ring",
    figures: &["5"],
    simulated: true,
    on_devices: true,
    paper: Paper::Ring,
    plan,
    tell,
};

const RAW: &str = "messages";
const RING: &str = "elements of a ring";
/// Least bytes of an element that rows fit into, with what is around them.
const ROOM_FOR_ROWS: usize = 1 << 12;

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
    let own = |series: &str| (series == RAW).then(|| series.into());
    results.add(&mut figure, own, |run| {
        Some(run.try_as_measured_ref()?.bytes_per_second)
    });
    results.add_rings(&mut figure, RING, RING, RingMeasured::link_rate);
    for (series, claim, least) in [(RAW, "CJ01a", 4e3), (RING, "CJ01c", 1e6)] {
        let found = figure.best(series).map(|best| {
            let points = figure.points(series).iter();
            let full = points.filter(|point| point.median >= FULL * best.median);
            let first = full.filter_map(|point| match point.x {
                X::Number(bytes) => Some(bytes),
                X::Name(_) => None,
            });
            let first = first.fold(f64::INFINITY, f64::min);
            let told = format!("from {first} bytes, of those that were run");
            (told, judged(results, within(first / least, 0.5..=2.1)))
        });
        figure.find(claim, found);
    }
    vec![figure]
}
