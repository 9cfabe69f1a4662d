//! What is left of a transport when the consumer computes (section 7.1.7).

use super::judgement::{below, holds, reaches, within};
use super::notification::{ROUNDS, by_time};
use super::tell::{About, axis, percent};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Design, Notification};

pub const EXPERIMENT: Experiment = Experiment {
    name: "compute",
    title: "What is left of a transport when the consumer computes",
    figures: &["22"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const DESIGNS: [Design; 5] = [
    Design::MesqSr,
    Design::MemqSr,
    Design::MemqWr(Notification::CompletionQueue),
    Design::MemqRd,
    Design::SesqSr,
];
const LOCAL: &str = "consuming alone";

fn plan(options: &Options) -> Vec<Case> {
    let mut transports: Vec<_> = DESIGNS.into_iter().map(Transport::Design).collect();
    transports.extend(options.baselines());
    transports.push(Transport::Consume);
    let mut cases = Vec::new();
    for rounds in ROUNDS {
        for &transport in &transports {
            let setting = Setting {
                work: vec![rounds],
                ..options.base(transport)
            };
            cases.push(Case::new(
                transport.name(),
                X::Number(rounds.into()),
                setting,
            ));
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = results.figure(
        About {
            id: "fig22",
            title: "Throughput as the consumer computes more, of what it has alone",
            place: "Figure 22, section 7.1.7",
            paper_saw: "With little to compute about 20 % of what the consumer has alone. Designs that send or \
                        write reach it earlier than those that read; MPI and sockets never do.",
            x: axis("time of the consumer for 32 KiB", Unit::Seconds, Scale::Linear),
            y: axis("throughput over that of the consumer alone", Unit::Share, Scale::Linear),
        },
        |series| (series != LOCAL).then(|| series.into()),
        |measured| measured.bytes_per_second,
    );
    for series in &mut figure.series {
        for point in &mut series.points {
            let alone = results.median(LOCAL, &point.x, |measured| measured.bytes_per_second);
            let alone = alone.unwrap_or(f64::INFINITY);
            point.median /= alone;
            point.low /= alone;
            point.high /= alone;
        }
    }
    let (least, most) = (X::Number(0.0), X::Number(ROUNDS[ROUNDS.len() - 1].into()));
    let best = |x: &X| {
        let shares = DESIGNS
            .iter()
            .filter_map(|design| figure.at(design.name(), x));
        shares.max_by(f64::total_cmp)
    };
    let found = best(&least).map(|share| {
        let measured = format!(
            "{} at best: a thread here also partitions what it sends, and copies it",
            percent(share)
        );
        (measured, within(share, 0.02..=0.4))
    });
    let at_most = best(&most);
    figure.find("SH31b", found);
    // Where a design first reaches half of the consumer alone.
    let reached = |name: &str| {
        let half = figure.points(name).iter().find(|point| point.median >= 0.5);
        half.map(|point| match &point.x {
            X::Number(rounds) => *rounds,
            X::Name(_) => 0.0,
        })
    };
    let sends = reached(Design::MemqSr.name());
    let found = sends.map(|sends| {
        let reads = reached(Design::MemqRd.name()).unwrap_or(f64::INFINITY);
        let measured = format!(
            "MEMQ/SR has half of the consumer's throughput from {sends} rounds of work on, MEMQ/RD from {reads}"
        );
        (measured, holds(sends <= reads, "MEMQ/SR from no more rounds on"))
    });
    figure.find("SH32", found);
    let others = results
        .options
        .baselines()
        .into_iter()
        .filter_map(|transport| {
            figure
                .at(transport.name(), &most)
                .map(|share| (transport.name(), share))
        });
    let others: Vec<_> = others
        .filter(|(name, _)| *name != Transport::Grpc.name())
        .collect();
    let found = (!others.is_empty()).then(|| {
        let shares: Vec<_> = others
            .iter()
            .map(|(name, share)| format!("{name} {}", percent(*share)))
            .collect();
        let measured = format!(
            "at the most work {}, the best design {}",
            shares.join(", "),
            percent(at_most.unwrap_or_default())
        );
        let highest = others.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        (measured, below(highest, 0.9))
    });
    figure.find("SH33", found);
    let slowest = |x: &X| {
        let shares = DESIGNS[..4]
            .iter()
            .filter_map(|design| figure.at(design.name(), x));
        shares.min_by(f64::total_cmp)
    };
    let margins = ROUNDS.iter().filter_map(|rounds| {
        let x = X::Number((*rounds).into());
        let other = others
            .iter()
            .filter_map(|(name, _)| figure.at(name, &x))
            .max_by(f64::total_cmp)?;
        Some(slowest(&x)? / other)
    });
    let found = margins.min_by(f64::total_cmp).map(|margin| {
        let measured =
            format!("the slowest of them has at least {margin:.2} times the throughput of these");
        (measured, reaches(margin, 1.0))
    });
    figure.find("SH34", found);
    by_time(&mut figure, results, LOCAL);
    vec![figure]
}
