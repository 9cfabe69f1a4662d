//! What the designs are compared with: models of TCP and MPI (sections 7.1.4, 7.2 and 7.3.4).

use super::lab::{Lab, broadcast, edr, fdr, giga, is_near, on};
use super::{Judge, Seen};
use crate::claims::claim;
use crate::error::Result;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;
use roundel_verbs::sim::Parameters;

pub(super) const JUDGES: &[Judge] = &[
    ("SH14", |lab| {
        let mesq = edr(Design::MesqSr, 16);
        ahead(lab, "SH14", &mesq, &on("edr", Transport::Mpi, 16))
    }),
    ("SH15", |lab| {
        let mesq = fdr(Design::MesqSr, 8);
        ahead(lab, "SH15", &mesq, &on("fdr", Transport::Sockets, 8))
    }),
    ("SH20", |lab| {
        let semq = broadcast(edr(Design::SemqSr, 16));
        let mpi = broadcast(on("edr", Transport::Mpi, 16));
        ahead(lab, "SH20", &semq, &mpi)
    }),
    ("SH21", |lab| {
        let mesq = broadcast(fdr(Design::MesqSr, 16));
        let sockets = broadcast(on("fdr", Transport::Sockets, 16));
        ahead(lab, "SH21", &mesq, &sockets)
    }),
    ("SH23", in_the_kernel),
    ("SH25a", senders_idle),
    ("SH25b", receivers_idle),
    ("SH40", processes_do_better),
];

fn processes_do_better(lab: &Lab) -> Result<Seen> {
    let qperf = lab.rate(&on("edr", Transport::Qperf, 8))?;
    let threads = lab.rate(&on("edr", Transport::Mpi, 8))?;
    let processes = lab.rate(&on("edr", Transport::MpiProcesses, 8))?;
    Seen::new(
        format!(
            "{} with threads, {} with processes, 8 nodes on EDR",
            giga(threads),
            giga(processes)
        ),
        threads <= 0.75 * processes && processes >= 0.85 * qperf,
        "threads share a lock, and processes do not",
        "their lock is not what holds threads up, or not all that holds processes up",
    )
}

fn ahead(lab: &Lab, id: &str, design: &Setting, other: &Setting) -> Result<Seen> {
    let (own, theirs) = (lab.rate(design)?, lab.rate(other)?);
    let ratio = own / theirs;
    Seen::new(
        format!("{ratio:.2} times: {} against {}", giga(own), giga(theirs)),
        is_near(ratio, claim(id).times),
        "the cost of the model limits it",
        "the model costs less, or more, than what it stands for",
    )
}

/// Picoseconds of a MiB: to hash it, and to copy it.
fn costs(parameters: &Parameters) -> [f64; 2] {
    const BYTES: usize = 1 << 20;
    let cpu = &parameters.cpu;
    [cpu.hash, cpu.copy].map(|rate| rate.time(BYTES).as_picos() as f64)
}

/// Of the time in which a node's threads work, what they spend in the kernel.
fn in_the_kernel(lab: &Lab) -> Result<Seen> {
    let measured = lab.run(&on("edr", Transport::Sockets, 8))?;
    let share = measured.endpoints().in_kernel / measured.cpu_seconds;
    Seen::new(
        format!("{:.0} %", 100.0 * share),
        (share - 2.0 / 3.0).abs() <= 0.1,
        "what one process gets through the kernel, beside what it hashes and copies",
        "the kernel costs another share",
    )
}

/// Share of their time in which threads of a side of MESQ/SR work, with 8 nodes on EDR.
fn busy(lab: &Lab, costs_of_byte: f64) -> Result<f64> {
    let setting = edr(Design::MesqSr, 8);
    let rate = lab.rate(&setting)? / setting.threads as f64;
    Ok(rate * costs_of_byte * 1e-12 / f64::from(1 << 20))
}

fn senders_idle(lab: &Lab) -> Result<Seen> {
    let [hash, copy] = costs(&Parameters::edr());
    let idle = 1.0 - busy(lab, hash + copy)?;
    Seen::new(
        format!("{:.0} %", 100.0 * idle),
        (idle - 0.3).abs() <= 0.1,
        "they hash and copy for the rest of it",
        "14 threads hash and copy faster here than in the paper",
    )
}

fn receivers_idle(lab: &Lab) -> Result<Seen> {
    let [_, copy] = costs(&Parameters::edr());
    let idle = 1.0 - busy(lab, copy)?;
    Seen::new(
        format!("{:.0} %", 100.0 * idle),
        (idle - 0.9).abs() <= 0.1,
        "copying is all that they do",
        "they work for another share of it",
    )
}
