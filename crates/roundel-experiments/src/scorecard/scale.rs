//! Scaling out, by generation, pattern and number of queue pairs (sections 7.1.4 and 7.1.5).

use super::lab::{Lab, MEMQ_WR, SEMQ_WR, broadcast, edr, fdr, giga, on, range};
use super::{Judge, Seen};
use crate::error::Result;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;

/// Bytes per second of payload in packets of 4 KiB.
const FDR_LINE: f64 = 6.78e9;
const EDR_LINE: f64 = 12.42e9;
const CONNECTED: [Design; 6] = [
    Design::MemqSr,
    Design::SemqSr,
    Design::MemqRd,
    Design::SemqRd,
    MEMQ_WR,
    SEMQ_WR,
];
/// Nodes of a larger cluster than the paper's.
const MANY: usize = 64;

pub(super) const JUDGES: &[Judge] = &[
    ("SH13a", |lab| near_line(lab, "fdr", FDR_LINE)),
    ("SH13b", |lab| near_line(lab, "edr", EDR_LINE)),
    ("SH16a", alike_when_small),
    ("SH16b", connections_degrade),
    ("SH16c", datagrams_do_not),
    ("SH17", faster_than_qperf),
    ("SH18", edr_does_not_degrade),
    ("SH19", edr_degrades_later),
    ("SH22a", |lab| read_in_broadcast(lab, Design::MemqRd)),
    ("SH22b", |lab| read_in_broadcast(lab, Design::SemqRd)),
    ("SH24", contended),
    ("SH27a", datagrams_ahead),
    ("SH27b", queue_pairs),
];

fn near_line(lab: &Lab, generation: &str, line: f64) -> Result<Seen> {
    let mut rates = Vec::new();
    for design in [Design::MemqSr, Design::SemqSr, Design::MesqSr] {
        rates.push(lab.rate(&on(generation, Transport::Design(design), 8))?);
    }
    let (_, best) = range(rates);
    Seen::new(
        format!("{} of {}", giga(best), giga(line)),
        best >= 0.85 * line,
        "processors and switch are faster than the link",
        "something else than the link is the limit",
    )
}

fn alike_when_small(lab: &Lab) -> Result<Seen> {
    let mut rates = vec![lab.rate(&fdr(Design::MesqSr, 2))?];
    for design in CONNECTED {
        rates.push(lab.rate(&fdr(design, 2))?);
    }
    let (least, most) = range(rates);
    Seen::new(
        format!("{} to {} with 2 nodes", giga(least), giga(most)),
        least >= 0.8 * most,
        "the link is the limit of each",
        "they differ by more than 20 %",
    )
}

/// Throughput with so many nodes, as a share of that with fewer.
fn kept(lab: &Lab, few: &Setting, many: &Setting) -> Result<f64> {
    Ok(lab.rate(many)? / lab.rate(few)?)
}

/// Whether something holds of the shares of their throughput that designs keep from 4 to 16 nodes.
fn designs_keep(
    lab: &Lab,
    of: fn(Design, usize) -> Setting,
    designs: &[Design],
    holds: fn(f64) -> bool,
    yes: &str,
    no: &str,
) -> Result<Seen> {
    let (mut seen, mut all) = (Vec::new(), true);
    for design in designs {
        let share = kept(lab, &of(*design, 4), &of(*design, 16))?;
        all &= holds(share);
        seen.push(format!("{design} keeps {:.0} %", 100.0 * share));
    }
    let seen = format!("from 4 to 16 nodes {}", seen.join(", "));
    Seen::new(seen, all, yes, no)
}

fn connections_degrade(lab: &Lab) -> Result<Seen> {
    let (mut seen, mut holds) = (Vec::new(), true);
    for design in [Design::MemqSr, Design::MemqRd, MEMQ_WR] {
        let share = kept(lab, &fdr(design, 4), &fdr(design, 16))?;
        // What they lose on EDR too is not for want of contexts.
        let newer = kept(lab, &edr(design, 4), &edr(design, 16))?;
        holds &= share <= 0.9 && share <= newer - 0.05;
        seen.push(format!(
            "{design} keeps {:.0} %, and {:.0} % on EDR",
            100.0 * share,
            100.0 * newer
        ));
    }
    Seen::new(
        format!("from 4 to 16 nodes {}", seen.join(", ")),
        holds,
        "their queue pairs take turns packet by packet, and there are more than the NIC has room for",
        "a context that is missed takes no longer than a packet does on the link",
    )
}

fn datagrams_do_not(lab: &Lab) -> Result<Seen> {
    designs_keep(
        lab,
        fdr,
        &[Design::MesqSr],
        |share| share >= 0.95,
        "its queue pairs are as many in any cluster",
        "it loses throughput",
    )
}

fn faster_than_qperf(lab: &Lab) -> Result<Seen> {
    let mesq = lab.rate(&fdr(Design::MesqSr, 16))?;
    let qperf = lab.rate(&on("fdr", Transport::Qperf, 16))?;
    Seen::new(
        format!("{} against {}", giga(mesq), giga(qperf)),
        mesq > qperf,
        "connections do not fit into the NIC",
        "16 connections of a node fit into the NIC, and qperf has neither credit nor headers of messages",
    )
}

fn edr_does_not_degrade(lab: &Lab) -> Result<Seen> {
    designs_keep(
        lab,
        edr,
        &[Design::MemqSr, Design::SemqSr, MEMQ_WR, SEMQ_WR],
        |share| share >= 0.95,
        "the NIC has room for these queue pairs, or fetches their contexts fast enough",
        "some design loses more than 5 %",
    )
}

fn edr_degrades_later(lab: &Lab) -> Result<Seen> {
    let share = kept(lab, &edr(Design::MemqSr, 8), &edr(Design::MemqSr, MANY))?;
    Seen::new(
        format!(
            "from 8 to {MANY} nodes MEMQ/SR keeps {:.0} %",
            100.0 * share
        ),
        share <= 0.9,
        "queue pairs, and those who send to one receiver at a time, have become too many",
        "a context that is missed costs 39 ns at most, and a packet takes 330 ns on the link; receives that are \
             fetched with it are 400 ns for a message of many packets",
    )
}

fn read_in_broadcast(lab: &Lab, design: Design) -> Result<Seen> {
    let one_by_one = lab.rate(&edr(design, 8))?;
    let all = lab.rate(&broadcast(edr(design, 8)))?;
    let sends = lab.rate(&edr(Design::MesqSr, 8))?;
    Seen::new(
        format!(
            "{} in broadcast, {} in repartition",
            giga(all),
            giga(one_by_one)
        ),
        all <= 0.85 * one_by_one && one_by_one >= 0.85 * sends,
        "a buffer waits for the slowest of its readers",
        "enough buffers have been read by all",
    )
}

fn contended(lab: &Lab) -> Result<Seen> {
    let (one, each) = (
        lab.rate(&edr(Design::SesqSr, 8))?,
        lab.rate(&edr(Design::MesqSr, 8))?,
    );
    let fewer = Setting {
        threads: 4,
        ..edr(Design::SesqSr, 8)
    };
    let fewer = lab.rate(&fewer)?;
    Seen::new(
        format!(
            "{}, and {} with a queue pair for each thread; {} with 4 threads",
            giga(one),
            giga(each),
            giga(fewer)
        ),
        one <= 0.85 * each,
        "a datagram takes 330 ns on the link, and handing a lock to one of 14 threads takes longer",
        "posting under one lock is fast enough",
    )
}

fn datagrams_ahead(lab: &Lab) -> Result<Seen> {
    let mesq = lab.rate(&edr(Design::MesqSr, 16))?;
    let mut rates = Vec::new();
    for design in CONNECTED {
        rates.push(lab.rate(&edr(design, 16))?);
    }
    let (least, most) = range(rates);
    Seen::new(
        format!("{} against {} to {}", giga(mesq), giga(least), giga(most)),
        mesq > most,
        "it has the least queue pairs",
        "on EDR 16 nodes do not yet cost those over connections anything, whose messages have less headers",
    )
}

fn queue_pairs(lab: &Lab) -> Result<Seen> {
    let (nodes, threads) = (8, edr(Design::MesqSr, 8).threads);
    let expected = [
        (Design::MemqSr, nodes * threads),
        (Design::SemqSr, nodes),
        (Design::MesqSr, threads),
        (Design::SesqSr, 1),
    ];
    let (mut seen, mut holds) = (Vec::new(), true);
    for (design, expected) in expected {
        let measured = lab.run(&edr(design, nodes))?;
        let count = measured.nodes[0].endpoints.queue_pairs;
        holds &= count == expected as u64;
        seen.push(format!("{design} {count}"));
    }
    Seen::new(
        format!("with 8 nodes of 14 threads {}", seen.join(", ")),
        holds,
        "as the table has it",
        "not as the table has it",
    )
}
