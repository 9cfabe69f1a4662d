//! How long messages should be over reliable connections (section 7.1.3).

use super::tell::{About, axis, each, percent, reaches, throughput, verdict};
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

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in options.some(&SIZES) {
        for design in connected() {
            let setting = Setting {
                threads: 2,
                message_bytes: Some(size),
                buffers: Buffers::Fixed(2),
                ..options.base(Transport::Design(design))
            };
            cases.push(Case::new(design.name(), X::Number(size as f64), setting));
        }
    }
    let datagrams = Setting {
        threads: 2,
        ..options.base(Transport::Design(DATAGRAMS))
    };
    cases.push(Case::new(DATAGRAMS.name(), X::Number(4096.0), datagrams));
    cases
}

/// The designs whose message size can be chosen.
fn connected() -> impl Iterator<Item = Design> {
    let connected =
        |design: &Design| design.transport() == roundel_verbs::Transport::ReliableConnection;
    Design::ALL.into_iter().filter(connected)
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
        (measured, verdict(share < 0.7))
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
    let largest = X::Number(SIZES[SIZES.len() - 1] as f64);
    let name = Design::MemqSr.name();
    let found = memory.at(name, &largest).zip(memory.at(name, &smallest)).map(|(large, small)| {
        let measured = format!(
            "MEMQ/SR registers {:.1} MiB at 1 MiB, {:.0} times as much as at 4 KiB; at 8 nodes and 14 threads \
             that would be {:.0} MiB",
            large / f64::from(1 << 20),
            large / small,
            large / f64::from(1 << 20) * 4.0 * 7.0
        );
        (measured, reaches(large * 28.0, 100.0 * f64::from(1 << 20)))
    });
    memory.find("SH12", found);
    vec![throughputs, messages, memory]
}
