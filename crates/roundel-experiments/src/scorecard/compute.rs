//! Queries that compute (sections 7.1.2 and 7.1.7).

use super::lab::{Lab, MEMQ_WR, edr, giga, is_near, on};
use super::{Judge, Seen};
use crate::error::Result;
use crate::setting::{Setting, Transport};
use roundel_exchange::{Design, Notification};

const NODES: usize = 8;
/// Rounds of work for each tuple, of 5 cycles each: from a shuffle that the network limits to one that processors do.
const WORK: [u32; 7] = [0, 4, 6, 8, 10, 14, 20];
/// Of local processing: what counts as all of it.
const ALL: f64 = 0.95;

pub(super) const JUDGES: &[Judge] = &[
    ("SH06", overlaps_early),
    ("SH07", notifications),
    ("SH31a", minimal_work),
    ("SH31b", share_of_local),
    ("SH32", reads_later),
    ("SH33a", |lab| never_overlaps(lab, Transport::Sockets)),
    ("SH33b", |lab| never_overlaps(lab, Transport::Mpi)),
    ("SH34a", |lab| always_ahead(lab, Transport::Sockets)),
    ("SH34b", |lab| always_ahead(lab, Transport::Mpi)),
];

fn working(transport: Transport, work: u32) -> Setting {
    Setting {
        work: vec![work],
        ..on("edr", transport, NODES)
    }
}

fn local(lab: &Lab, work: u32) -> Result<f64> {
    lab.rate(&working(Transport::Consume, work))
}

/// Throughput as a share of local processing.
fn relative(lab: &Lab, transport: Transport, work: u32) -> Result<f64> {
    Ok(lab.rate(&working(transport, work))? / local(lab, work)?)
}

/// The least work at which a transport is as fast as local processing.
fn reaches(lab: &Lab, transport: Transport) -> Result<Option<u32>> {
    for work in WORK {
        if relative(lab, transport, work)? >= ALL {
            return Ok(Some(work));
        }
    }
    Ok(None)
}

fn overlaps_early(lab: &Lab) -> Result<Seen> {
    let reached = reaches(lab, Transport::Design(MEMQ_WR))?;
    let batch = match reached {
        Some(work) => f64::from(32 << 10) / local(lab, work)? * 1e6,
        None => f64::INFINITY,
    };
    Seen::new(
        format!("from {batch:.1} µs on"),
        // Between the points at which it was looked.
        batch <= 3.5 * 1.25,
        "threads that receive wait for nothing but the network",
        "it takes more work until everything is overlapped",
    )
}

fn notifications(lab: &Lab) -> Result<Seen> {
    let work = 10;
    let rate = |notification| {
        lab.rate(&working(
            Transport::Design(Design::MemqWr(notification)),
            work,
        ))
    };
    let queue = rate(Notification::CompletionQueue)?;
    let (messages, buffers) = (
        rate(Notification::MessageQueue)?,
        rate(Notification::AllBuffers)?,
    );
    let ratio = queue / messages.min(buffers);
    Seen::new(
        format!(
            "{ratio:.2} times: {} against {} and {}",
            giga(queue),
            giga(messages),
            giga(buffers)
        ),
        ratio >= 1.25,
        "polling memory takes time",
        "polling all buffers takes little of the time",
    )
}

fn minimal_work(lab: &Lab) -> Result<Seen> {
    let rate = lab.rate(&edr(Design::MesqSr, NODES))? / f64::from(1 << 30);
    Seen::new(
        format!("{rate:.1} GiB/s"),
        (rate / 11.0 - 1.0).abs() <= 0.1,
        "the link is the limit",
        "the link is not the limit",
    )
}

fn share_of_local(lab: &Lab) -> Result<Seen> {
    let share = relative(lab, Transport::Design(Design::MesqSr), 0)?;
    Seen::new(
        format!("{:.0} % of {}", 100.0 * share, giga(local(lab, 0)?)),
        is_near(share, 0.2),
        "memory is the limit of local processing",
        "local processing has another limit",
    )
}

fn reads_later(lab: &Lab) -> Result<Seen> {
    let reads = reaches(lab, Transport::Design(Design::MemqRd))?.unwrap_or(u32::MAX);
    let (mut seen, mut holds) = (Vec::new(), true);
    for design in [Design::MemqSr, MEMQ_WR, Design::MesqSr] {
        let others = reaches(lab, Transport::Design(design))?;
        holds &= others.is_some_and(|work| work < reads);
        seen.push(match others {
            Some(work) => format!("{design} with {work} rounds"),
            None => format!("{design} never"),
        });
    }
    Seen::new(
        format!("{}, MEMQ/RD with {reads}", seen.join(", ")),
        holds,
        "a READ begins only when its receiver has time",
        "all reach it with about the same work",
    )
}

fn never_overlaps(lab: &Lab, transport: Transport) -> Result<Seen> {
    let mut most: f64 = 0.0;
    for work in WORK {
        most = most.max(relative(lab, transport, work)?);
    }
    Seen::new(
        format!("{:.0} % of local processing at most", 100.0 * most),
        most < ALL,
        "what it takes of the processors is missing for work",
        "the model leaves processors time enough",
    )
}

fn always_ahead(lab: &Lab, other: Transport) -> Result<Seen> {
    let mut least = (f64::INFINITY, Design::MesqSr, 0);
    for work in [WORK[0], WORK[3], WORK[6]] {
        let theirs = lab.rate(&working(other, work))?;
        for design in [
            Design::MesqSr,
            Design::MemqSr,
            Design::SemqSr,
            Design::MemqRd,
            MEMQ_WR,
        ] {
            let ratio = lab.rate(&working(Transport::Design(design), work))? / theirs;
            if ratio < least.0 {
                least = (ratio, design, work);
            }
        }
    }
    Seen::new(
        format!(
            "{:.2} times at least ({} with {} rounds)",
            least.0, least.1, least.2
        ),
        least.0 > 1.0,
        "it costs more of processors, whatever is the limit",
        "the model costs too little",
    )
}
