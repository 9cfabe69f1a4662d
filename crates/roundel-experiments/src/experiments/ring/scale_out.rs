//! Rings beyond the paper's: which join is faster when each host brings its data.

use super::super::judgement::within;
use super::super::tell::{About, axis};
use super::super::{Case, Experiment, Options, Results};
use super::{HASH, MERGE, METHODS, case, join};
use crate::figure::{Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::ring::{RingMeasured, large, rates};

pub const EXPERIMENT: Experiment = Experiment {
    name: "ring-scale-out",
    title: "Rings beyond the paper's: hash join and sort-merge join",
    figures: &["section V-E, forecast"],
    simulated: true,
    on_devices: false,
    paper: Paper::Ring,
    plan,
    tell,
};

const HOSTS: [usize; 6] = [10, 20, 30, 60, 100, 200];
fn plan(options: &Options) -> Vec<Case> {
    let own = match options.quick {
        true => &HOSTS[..4],
        false => &HOSTS,
    };
    let mut cases = Vec::new();
    for hosts in options.nodes_or(own) {
        for (name, method) in METHODS {
            cases.push(case(
                name,
                hosts as f64,
                large(join(options, method, hosts)),
            ));
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = About {
        id: "ring-scaleout",
        title: "Time of a join as hosts bring 140 million rows of each relation",
        place: "section V-E",
        paper_saw: "From about 30 hosts on, or 100 GB, the sort-merge join is expected to be faster than the hash join.",
        x: axis("hosts", Unit::None, Scale::Log2),
        y: axis("time", Unit::Seconds, Scale::Log2),
    }
    .figure_of(Paper::Ring);
    for (name, _) in METHODS {
        results.add_rings(&mut figure, name, name, RingMeasured::total);
    }
    let faster = figure.points(MERGE).iter().find(|point| {
        let hash = figure.at(HASH, &point.x);
        hash.is_some_and(|hash| point.median < hash)
    });
    let found = faster.and_then(|point| {
        let X::Number(hosts) = point.x else {
            return None;
        };
        let bytes = hosts * 2.0 * (rates::ROWS_OF_HOST as usize * rates::ROW_BYTES) as f64;
        let told = format!(
            "{hosts} hosts, {:.0} GB, is the first that was run",
            bytes / 1e9
        );
        Some((told, within(hosts, 20.0..=40.0)))
    });
    figure.find("CJ11", found);
    vec![figure]
}
