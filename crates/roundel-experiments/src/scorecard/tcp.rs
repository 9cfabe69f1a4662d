//! What the designs are compared with: models of TCP and MPI (sections 7.1.4, 7.2 and 7.3.4).

use super::lab::{Lab, broadcast, edr, fdr, giga, is_near, on};
use super::{Claim, Seen};
use crate::error::Result;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;
use roundel_verbs::sim::Parameters;

pub(super) fn claims() -> Vec<Claim> {
    vec![
        Claim::partly(
            "SH14",
            "MESQ/SR is up to 2 times as fast as MPI, repartition, 16 nodes on EDR",
            |lab| {
                ahead(
                    lab,
                    &edr(Design::MesqSr, 16),
                    &on("edr", Transport::Mpi, 16),
                    2.0,
                )
            },
        ),
        Claim::partly(
            "SH15",
            "MESQ/SR is up to 3 times as fast as IPoIB, repartition, 8 nodes on FDR",
            |lab| {
                ahead(
                    lab,
                    &fdr(Design::MesqSr, 8),
                    &on("fdr", Transport::Sockets, 8),
                    3.0,
                )
            },
        ),
        Claim::partly(
            "SH20",
            "SEMQ/SR is up to 4 times as fast as MPI, broadcast, 16 nodes on EDR",
            |lab| {
                let semq = broadcast(edr(Design::SemqSr, 16));
                ahead(lab, &semq, &broadcast(on("edr", Transport::Mpi, 16)), 4.0)
            },
        ),
        Claim::partly(
            "SH21",
            "MESQ/SR is up to 3 times as fast as IPoIB, broadcast, 16 nodes on FDR",
            |lab| {
                let mesq = broadcast(fdr(Design::MesqSr, 16));
                ahead(
                    lab,
                    &mesq,
                    &broadcast(on("fdr", Transport::Sockets, 16)),
                    3.0,
                )
            },
        ),
        Claim::partly(
            "SH23",
            "IPoIB spends about two thirds of its cycles in sending and receiving, 8 nodes on EDR",
            in_the_kernel,
        ),
        Claim::partly(
            "SH25a",
            "The best designs leave senders idle for about 30 % of the time",
            senders_idle,
        ),
        Claim::partly(
            "SH25b",
            "Receivers are idle for up to 90 % of the time",
            receivers_idle,
        ),
        Claim::partly(
            "SH40",
            "MPI is poor with many threads, and near the line rate with many processes",
            processes_do_better,
        ),
    ]
}

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

fn ahead(lab: &Lab, design: &Setting, other: &Setting, claimed: f64) -> Result<Seen> {
    let (own, theirs) = (lab.rate(design)?, lab.rate(other)?);
    let ratio = own / theirs;
    Seen::new(
        format!("{ratio:.2} times: {} against {}", giga(own), giga(theirs)),
        is_near(ratio, claimed),
        "the cost of the model limits it",
        "the model costs less, or more, than what it stands for",
    )
}

/// Seconds of a byte: hashing and copying it on the one side, and on the other; and the kernel on each.
fn costs(parameters: &Parameters) -> [f64; 3] {
    const BYTES: usize = 1 << 20;
    let cpu = &parameters.cpu;
    [cpu.hash, cpu.copy, cpu.tcp].map(|rate| rate.time(BYTES).as_picos() as f64)
}

fn in_the_kernel(_: &Lab) -> Result<Seen> {
    let [hash, copy, tcp] = costs(&Parameters::edr());
    let share = 2.0 * tcp / (2.0 * tcp + hash + 2.0 * copy);
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
    let [hash, copy, _] = costs(&Parameters::edr());
    let idle = 1.0 - busy(lab, hash + copy)?;
    Seen::new(
        format!("{:.0} %", 100.0 * idle),
        (idle - 0.3).abs() <= 0.1,
        "they hash and copy for the rest of it",
        "14 threads hash and copy faster here than in the paper",
    )
}

fn receivers_idle(lab: &Lab) -> Result<Seen> {
    let [_, copy, _] = costs(&Parameters::edr());
    let idle = 1.0 - busy(lab, copy)?;
    Seen::new(
        format!("{:.0} %", 100.0 * idle),
        (idle - 0.9).abs() <= 0.1,
        "copying is all that they do",
        "they work for another share of it",
    )
}
