//! Queries of TPC-H, replayed (section 7.2).

use super::lab::{Lab, is_near, on};
use super::{Judge, Seen};
use crate::error::Result;
use crate::recorded::Recording;
use crate::setting::Transport;
use roundel_exchange::Design;

const MESQ: Transport = Transport::Design(Design::MesqSr);
/// A gain that differs by no more than this is near.
const NEAR: f64 = 0.15;
/// And by no more than this, the same.
const NONE: f64 = 0.02;
/// What 14 threads gain over 10.
const THREADS_GAIN: f64 = 0.4;

pub(super) const JUDGES: &[Judge] = &[
    ("SH38a", as_local),
    ("SH38b", |lab| gains(lab, MESQ, 0.5)),
    ("SH38c", |lab| gains(lab, Transport::Mpi, 0.3)),
    ("SH39a", |lab| faster(lab, 4, 16, 1.7)),
    ("SH39b", |lab| faster(lab, 3, 16, 1.55)),
    ("SH39c", |lab| faster(lab, 10, 16, 2.0)),
    ("SH39d", alike_when_small),
];

fn seconds(
    lab: &Lab,
    query: u32,
    generation: &str,
    transport: Transport,
    nodes: usize,
) -> Result<f64> {
    let setting = on(generation, transport, nodes);
    Recording::of(query)?.seconds(&setting, |setting| lab.rate(setting))
}

fn as_local(lab: &Lab) -> Result<Seen> {
    let moved = seconds(lab, 4, "edr", MESQ, 8)?;
    let local = Recording::of(4)?.local_seconds(&on("edr", MESQ, 8))?;
    Seen::new(
        format!("{moved:.2} s, and {local:.2} s over local data"),
        moved <= 1.25 * local,
        "it computes for longer than it exchanges",
        "exchanging takes longer than computing",
    )
}

/// What a query gains from FDR to EDR, where nodes have 14 threads instead of 10 besides.
fn gains(lab: &Lab, transport: Transport, claimed: f64) -> Result<Seen> {
    let local = |generation| Recording::of(4)?.local_seconds(&on(generation, transport, 8));
    let (fdr, edr) = (
        seconds(lab, 4, "fdr", transport, 8)?,
        seconds(lab, 4, "edr", transport, 8)?,
    );
    let (gain, of_threads) = (fdr / edr - 1.0, local("fdr")? / local("edr")? - 1.0);
    // The paper's nodes gain 40 % by their threads: a transport that claims less holds queries up, and one that claims more does not.
    let ordered = (gain < of_threads - NONE) == (claimed < THREADS_GAIN);
    Seen::new(
        format!(
            "{:.0} %, where local data gain {:.0} %: {fdr:.2} s and {edr:.2} s",
            100.0 * gain,
            100.0 * of_threads
        ),
        (gain - claimed).abs() <= NEAR && ordered,
        "processors and network grow by as much together",
        match ordered {
            true => "what limits it grows by another share",
            false => {
                "it gains what its threads gain: the network holds it up on neither, or on both"
            }
        },
    )
}

fn faster(lab: &Lab, query: u32, nodes: usize, claimed: f64) -> Result<Seen> {
    let (own, theirs) = (
        seconds(lab, query, "edr", MESQ, nodes)?,
        seconds(lab, query, "edr", Transport::Mpi, nodes)?,
    );
    let times = theirs / own;
    Seen::new(
        format!("{times:.2} times: {own:.2} s and {theirs:.2} s"),
        is_near(times, claimed),
        "exchanging limits it with MPI",
        match times < claimed {
            true => "the query computes for about as long as MPI exchanges what it exchanges here",
            false => {
                "the model of MPI costs more than what it stands for, or the query computes for less long"
            }
        },
    )
}

fn alike_when_small(lab: &Lab) -> Result<Seen> {
    let mut ratios = Vec::new();
    for query in [3, 4] {
        let own = seconds(lab, query, "edr", MESQ, 2)?;
        ratios.push(seconds(lab, query, "edr", Transport::Mpi, 2)? / own);
    }
    let near = |ratio: &f64| (ratio - 1.0).abs() <= NEAR;
    Seen::new(
        format!(
            "{:.2} and {:.2} times as long with MPI",
            ratios[0], ratios[1]
        ),
        ratios.iter().all(near),
        "they compute for longer than they exchange",
        "exchanging limits one of them",
    )
}
