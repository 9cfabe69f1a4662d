//! How receivers learn of a WRITE (section 7.1.2).

use super::judgement::{above, holds, reaches};
use super::tell::{About, axis, each, throughput};
use super::{Case, Experiment, Options, Results};
use crate::claims::claim;
use crate::figure::{Figure, Point, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Buffers, Design, Notification};

pub const EXPERIMENT: Experiment = Experiment {
    name: "notification",
    title: "How receivers learn of a WRITE",
    figures: &["15", "16", "17"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const VARIANTS: [(Notification, &str); 4] = [
    (Notification::CompletionQueue, "poll completion queue"),
    (Notification::MessageQueue, "poll message queue"),
    (Notification::AllBuffers, "poll buffers"),
    (Notification::Buffers, "poll the next buffer"),
];
/// The consumer alone.
const LOCAL: &str = "consuming alone";
/// Rounds of work for each tuple.
pub const ROUNDS: [u32; 6] = [0, 1, 3, 6, 12, 25];
/// Bytes that the axis counts the time of.
const BATCH_BYTES: f64 = 32.0 * 1024.0;
/// Buffers of each link.
const BUFFERS: usize = 8;

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for rounds in ROUNDS {
        let x = X::Number(rounds.into());
        for (notification, name) in VARIANTS {
            let setting = Setting {
                buffers: Buffers::Fixed(BUFFERS),
                work: vec![rounds],
                watch_buffers: true,
                ..options.base(Transport::Design(Design::MemqWr(notification)))
            };
            cases.push(Case::new(name, x.clone(), setting));
        }
        let local = Setting {
            work: vec![rounds],
            ..options.base(Transport::Consume)
        };
        cases.push(Case::new(LOCAL, x, local));
    }
    cases
}

/// Replaces rounds of work by the time that the consumer alone takes for 32 KiB.
pub fn by_time(figure: &mut Figure, results: &Results, local: &str) {
    for series in &mut figure.series {
        for point in &mut series.points {
            if let Some(rate) =
                results.median(local, &point.x, |measured| measured.bytes_per_second)
            {
                point.x = X::Number(BATCH_BYTES / rate);
            }
        }
    }
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut throughputs = results.figure(
        About {
            id: "fig15",
            title: "Throughput of the notifications as the consumer works more",
            place: "Figure 15, section 7.1.2",
            paper_saw: "Polling the completion queue overlaps communication and computation fully from 3.5 µs \
                        for each 32 KiB on, and is up to 1.5 times as fast as the other two.",
            x: axis("time of the consumer for 32 KiB", Unit::Seconds, Scale::Linear),
            y: throughput(),
        },
        each,
        |measured| measured.bytes_per_second,
    );
    let [queue, messages, buffers, _] = VARIANTS.map(|(_, name)| name);
    let others = [messages, buffers].map(|other| throughputs.ratio(queue, other));
    let found = others
        .into_iter()
        .flatten()
        .max_by(f64::total_cmp)
        .map(|ratio| {
            let measured =
                format!("the completion queue is up to {ratio:.2} times as fast as another");
            (measured, reaches(ratio, claim("SH07").times))
        });
    throughputs.find("SH07", found);
    let overlap = throughputs.ratio(queue, LOCAL).map(|share| {
        let measured = format!(
            "at the most work it reaches {:.0} % of what the consumer does alone; a thread here also sends",
            100.0 * share
        );
        (measured, reaches(share, 0.9))
    });
    throughputs.find("SH06", overlap);
    by_time(&mut throughputs, results, LOCAL);

    let network_bound = X::Number(0.0);
    let mut returned = About {
        id: "fig16",
        title: "Mean time until a buffer can be used again",
        place: "Figure 16, section 7.1.2",
        paper_saw: "Polling buffers takes about 0.5 ms longer; the other two cannot be told apart.",
        x: axis("notification", Unit::None, Scale::Names),
        y: axis(
            "from sending it until it is filled again",
            Unit::Seconds,
            Scale::Linear,
        ),
    }
    .figure();
    let mut posted = About {
        id: "fig17",
        title: "WRITEs that are posted for a message",
        place: "Figure 17, section 7.1.2",
        paper_saw: "2 where buffers are polled, 3 with a message queue, 2.5 with a completion queue and a credit \
                    for every 2 receives.",
        x: axis("notification", Unit::None, Scale::Names),
        y: axis("WRITEs for each message", Unit::None, Scale::Linear),
    }
    .figure();
    for (_, name) in VARIANTS {
        let bar = |value| Point::of_runs(X::Name(name.into()), vec![value]);
        let round = results.median(name, &network_bound, |measured| {
            let all = measured.endpoints();
            all.away / all.returned as f64
        });
        let writes = results.median(name, &network_bound, |measured| {
            measured.endpoints().writes as f64 / measured.endpoints().messages as f64
        });
        if let Some((round, writes)) = round.zip(writes) {
            returned.add("network-bound", bar(round));
            posted.add("network-bound", bar(writes));
        }
    }
    let bar = |figure: &Figure, name: &str| figure.at("network-bound", &X::Name(name.into()));
    let times = VARIANTS.map(|(_, name)| bar(&returned, name));
    let found = match times {
        [Some(queue), Some(messages), Some(buffers), _] => {
            let measured = format!(
                "{:.0} µs with the completion queue, {:.0} µs with the message queue, {:.0} µs with buffers",
                queue * 1e6,
                messages * 1e6,
                buffers * 1e6
            );
            Some((measured, above(buffers / queue.max(messages), 1.1)))
        }
        _ => None,
    };
    returned.find("SH08", found);
    let counts = VARIANTS.map(|(_, name)| bar(&posted, name));
    let found = match counts {
        [Some(queue), Some(messages), Some(buffers), _] => {
            let measured = format!(
                "{queue:.2} completion queue, {messages:.2} message queue, {buffers:.2} buffers"
            );
            let near = |value: f64, claimed: f64| (value - claimed).abs() < 0.2;
            let all = near(queue, 2.5) && near(messages, 3.0) && near(buffers, 2.0);
            Some((measured, holds(all, "less than 0.2 from 2.5, 3 and 2")))
        }
        _ => None,
    };
    posted.find("SH09", found);
    vec![throughputs, returned, posted]
}
