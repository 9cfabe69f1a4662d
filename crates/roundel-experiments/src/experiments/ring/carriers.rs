//! Elements moved by NICs, and by kernels.

use super::super::judgement::{at_least, holds};
use super::super::tell::{About, axis};
use super::super::{Case, Experiment, Options, Results};
use super::{case, hosts, join};
use crate::figure::{Figure, Scale, Unit};
use crate::paper::Paper;
use crate::ring::{Carrier, Method, RingMeasured, carried, rates};

pub const EXPERIMENT: Experiment = Experiment {
    name: "ring-tcp",
    title: "A cyclo-join over RDMA and over TCP, by threads that join",
    figures: &["12", "Table I"],
    simulated: true,
    on_devices: false,
    paper: Paper::Ring,
    plan,
    tell,
};

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for threads in 1..=rates::CORES {
        for carrier in [Carrier::Rdma, Carrier::Tcp] {
            let join = join(options, Method::Hash, hosts(options));
            let join = carried(join, carrier, threads);
            cases.push(case(carrier.to_string(), threads as f64, join));
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let of = |id, title, place, paper_saw, y, value: fn(&RingMeasured) -> f64| {
        let mut figure = About {
            id,
            title,
            place,
            paper_saw,
            x: axis("threads that join", Unit::None, Scale::Linear),
            y,
        }
        .figure_of(Paper::Ring);
        for carrier in [Carrier::Rdma, Carrier::Tcp] {
            let name = carrier.to_string();
            results.add_rings(&mut figure, &name, &name, value);
        }
        figure
    };
    let mut times = of(
        "ring-fig12",
        "Time to join, over RDMA and over TCP",
        "Figure 12, section V-G",
        "RDMA is faster with any number of threads, most so with four.",
        axis("time to join", Unit::Seconds, Scale::Linear),
        RingMeasured::after_set_up,
    );
    let (rdma, tcp) = (Carrier::Rdma.to_string(), Carrier::Tcp.to_string());
    let gaps: Vec<f64> = times
        .points(&tcp)
        .iter()
        .filter_map(|point| Some(point.median / times.at(&rdma, &point.x)?))
        .collect();
    let least = gaps.iter().copied().min_by(f64::total_cmp);
    let found = gaps.last().zip(least).map(|(last, least)| {
        let told: Vec<_> = gaps.iter().map(|gap| format!("{gap:.3}")).collect();
        let most = holds(
            gaps.iter().all(|gap| gap <= last),
            "the last is the highest",
        );
        let told = format!("{} times as long over TCP", told.join(", "));
        (told, at_least(least, 1.01).and(most))
    });
    times.find("CJ09", found);
    vec![
        times,
        of(
            "ring-table1",
            "Load of a host's cores while it joins",
            "Table I, section V-G",
            "With 1 to 4 threads 31, 59, 84 and 86 % over TCP, and 25, 50, 76 and 100 % over RDMA.",
            axis("load", Unit::Share, Scale::Linear),
            RingMeasured::load,
        ),
        of(
            "ring-fig12-waiting",
            "Time that a host waits for elements, over RDMA and over TCP",
            "section V-G",
            "Over TCP waiting is not hidden.",
            axis("time to wait", Unit::Seconds, Scale::Linear),
            RingMeasured::synchronisation,
        ),
    ]
}
