//! Flow control (sections 7.1.1 and 7.1.2) and what senders and receivers wait for (section 7.1.4).

use super::lab::{Lab, MEMQ_WR, SEMQ_WR, edr, giga, is_near, on, range};
use super::{Judge, Seen};
use crate::error::Result;
use crate::measured::Measured;
use crate::setting::{Setting, TUPLE_BYTES, Transport};
use roundel_exchange::{Buffers, Design, Notification};
use std::sync::Arc;

const NODES: usize = 8;
const FREQUENCIES: [u32; 5] = [1, 2, 4, 8, 16];
const SENDS: [Design; 3] = [Design::MemqSr, Design::SemqSr, Design::MesqSr];
/// WRITEs per second of a queue pair: 8 million, batched (rdma_bench).
const WRITES_PER_SECOND: f64 = 8e6;

pub(super) const JUDGES: &[Judge] = &[
    ("SH01a", frequency_does_not_matter),
    ("SH01b", near_qperf),
    ("SH02", crediting_is_negligible),
    ("SH03", few_writes),
    ("SH05a", blocked_by_frequency),
    ("SH05b", blocked_by_design),
    ("SH08", returned_later),
    ("SH26a", blocked_for_credit),
    ("SH26b", blocked_for_completions),
];

fn every(frequency: u32, design: Design) -> Setting {
    Setting {
        buffers: Buffers::Fixed(16),
        credit_frequency: Some(frequency),
        ..edr(design, NODES)
    }
}

fn over_frequencies(lab: &Lab, design: Design, value: fn(&Measured) -> f64) -> Result<Vec<f64>> {
    FREQUENCIES
        .iter()
        .map(|frequency| Ok(value(&*lab.run(&every(*frequency, design))?)))
        .collect()
}

fn frequency_does_not_matter(lab: &Lab) -> Result<Seen> {
    let mut worst = (0.0, Design::MemqSr);
    for design in SENDS {
        let rates = over_frequencies(lab, design, |measured| measured.bytes_per_second)?;
        let (least, most) = range(rates);
        let spread = 1.0 - least / most;
        if spread > worst.0 {
            worst = (spread, design);
        }
    }
    Seen::new(
        format!(
            "at most {:.1} % between frequencies ({})",
            100.0 * worst.0,
            worst.1
        ),
        worst.0 <= 0.1,
        "sixteen buffers for each destination cover what the frequency delays",
        "some frequency holds senders up",
    )
}

fn near_qperf(lab: &Lab) -> Result<Seen> {
    let qperf = lab.rate(&on("edr", Transport::Qperf, NODES))?;
    let mut rates = Vec::new();
    for design in SENDS {
        rates.push(lab.rate(&every(2, design))?);
    }
    let (least, _) = range(rates);
    Seen::new(
        format!("{} or more, of {}", giga(least), giga(qperf)),
        least >= 0.85 * qperf,
        "credit takes little of the link and of the processors",
        "some design stays behind",
    )
}

/// Seconds of threads for a gigabyte.
fn crediting(measured: &Measured) -> f64 {
    let gigabytes = measured.sent_rows() as f64 * TUPLE_BYTES as f64 / 1e9;
    measured.endpoints().crediting / gigabytes
}

fn crediting_is_negligible(lab: &Lab) -> Result<Seen> {
    let mut others = Vec::new();
    for design in SENDS {
        let times = over_frequencies(lab, design, crediting)?;
        let from = usize::from(design == Design::MesqSr);
        others.extend_from_slice(&times[from..]);
    }
    let (_, others) = range(others);
    let often = crediting(&*lab.run(&every(1, Design::MesqSr))?);
    Seen::new(
        format!(
            "{:.1} ms for each GB, {:.1} ms with MESQ/SR for every message",
            1e3 * others,
            1e3 * often
        ),
        // A thread moves a gigabyte in about a second.
        others <= 0.05 && often > 1.3 * others,
        "small messages, each with its credit, are the only ones that take notable time",
        "crediting every message is not what sticks out",
    )
}

fn few_writes(lab: &Lab) -> Result<Seen> {
    let mut most: f64 = 0.0;
    for design in SENDS {
        let measured = lab.run(&every(1, design))?;
        let all = measured.endpoints();
        let each = all.credit_messages as f64 / all.queue_pairs as f64;
        most = most.max(each / (every(1, design).seconds));
    }
    Seen::new(
        format!("{:.2} million in a second, of 8 million", most / 1e6),
        most <= WRITES_PER_SECOND / 4.0,
        "even the one queue pair of a thread writes but a fraction of what it could",
        "credit is a large part of what a queue pair can write",
    )
}

/// Share of their time in which senders are blocked for credit.
fn blocked(measured: &Measured) -> f64 {
    measured.endpoints().blocked_for_credit / measured.nodes.len() as f64
}

fn share(setting: &Setting, seconds: f64) -> f64 {
    seconds / (setting.seconds * setting.threads as f64)
}

fn blocked_by_frequency(lab: &Lab) -> Result<Seen> {
    let mut worst: f64 = 0.0;
    for design in SENDS {
        let setting = every(1, design);
        let times = over_frequencies(lab, design, blocked)?;
        let (least, most) = range(times.into_iter().map(|time| share(&setting, time)));
        worst = worst.max(most - least);
    }
    Seen::new(
        format!("it differs by {:.0} % of the time at most", 100.0 * worst),
        worst <= 0.15,
        "there are buffers enough for each frequency",
        "the frequency decides how long senders wait",
    )
}

fn blocked_by_design(lab: &Lab) -> Result<Seen> {
    let mut shares = Vec::new();
    for design in SENDS {
        let setting = every(2, design);
        shares.push((share(&setting, blocked(&*lab.run(&setting)?)), design));
    }
    let (least, most) = range(shares.iter().map(|(share, _)| *share));
    let told: Vec<_> = shares
        .iter()
        .map(|(share, design)| format!("{design} {:.0} %", 100.0 * share))
        .collect();
    Seen::new(
        told.join(", "),
        most - least <= 0.2,
        "the network is the limit of all of them",
        "where threads share queue pairs, they wait for the one buffer or the other before they want credit",
    )
}

/// Milliseconds that buffers are away.
fn away(lab: &Lab, notification: Notification) -> Result<f64> {
    let measured = lab.run(&Setting {
        buffers: Buffers::Fixed(8),
        watch_buffers: true,
        ..edr(Design::MemqWr(notification), NODES)
    })?;
    let all = measured.endpoints();
    Ok(1e3 * all.away / all.returned as f64)
}

fn returned_later(lab: &Lab) -> Result<Seen> {
    let buffers = away(lab, Notification::AllBuffers)?;
    let queue = away(lab, Notification::CompletionQueue)?;
    let messages = away(lab, Notification::MessageQueue)?;
    Seen::new(
        format!(
            "{buffers:.3} ms, against {queue:.3} with a completion queue and {messages:.3} with a message queue"
        ),
        is_near(buffers - queue.max(messages), 0.5),
        "polling all buffers takes time",
        "polling all buffers takes little of the time",
    )
}

/// Shares of senders' time: blocked for credit, and for buffers that have not been given back.
fn waits(lab: &Lab, design: Design) -> Result<(f64, f64)> {
    let setting = edr(design, NODES);
    let measured: Arc<Measured> = lab.run(&setting)?;
    let nodes = measured.nodes.len() as f64;
    let all = measured.endpoints();
    Ok((
        share(&setting, all.blocked_for_credit / nodes),
        share(&setting, all.blocked_for_buffers / nodes),
    ))
}

fn told(waits: &[(Design, (f64, f64))]) -> String {
    let one = |(design, (credit, buffers)): &(Design, (f64, f64))| {
        format!(
            "{design} {:.0} % for credit and {:.0} % for buffers",
            100.0 * credit,
            100.0 * buffers
        )
    };
    waits.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn blocked_for_credit(lab: &Lab) -> Result<Seen> {
    let mut seen = Vec::new();
    for design in [Design::MemqSr, Design::MesqSr] {
        seen.push((design, waits(lab, design)?));
    }
    let holds = seen
        .iter()
        .all(|(_, (credit, buffers))| credit > buffers && *credit > 0.05);
    Seen::new(
        told(&seen),
        holds,
        "a message is on its way as soon as it is posted, and then the receiver's buffers are what is missing",
        "they wait rather for their own buffers",
    )
}

fn blocked_for_completions(lab: &Lab) -> Result<Seen> {
    let mut seen = Vec::new();
    for design in [
        Design::SemqSr,
        Design::MemqRd,
        Design::SemqRd,
        MEMQ_WR,
        SEMQ_WR,
    ] {
        seen.push((design, waits(lab, design)?));
    }
    let holds = seen.iter().all(|(_, (credit, buffers))| buffers > credit);
    Seen::new(
        told(&seen),
        holds,
        "their buffers come back when the network is done with them",
        "not all of them wait for that",
    )
}
