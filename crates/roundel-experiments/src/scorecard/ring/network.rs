//! What moves elements: how large they have to be, and what NICs and kernels leave to those that join (sections III-C and
//! V-G).

use super::super::lab::{Lab, giga, is_near, range};
use super::super::{Judge, Seen};
use super::{NONE, SAME, fabric, growing};
use crate::error::Result;
use crate::ring::{Carrier, FULL, Method, RingMeasured, SIZES, by_element, carried, rates, raw};
use std::sync::Arc;

/// Table I.
const LOAD_OF_TCP: [f64; 4] = [0.31, 0.59, 0.84, 0.86];
const LOAD_OF_RDMA: [f64; 4] = [0.25, 0.5, 0.76, 1.0];

pub(super) const JUDGES: &[Judge] = &[
    ("CJ01a", messages_saturate),
    ("CJ01b", elements_are_larger),
    ("CJ01c", elements_saturate),
    ("CJ09a", rdma_is_faster),
    ("CJ09b", most_with_all_threads),
    ("CJ09c", tcp_waits),
    ("CJ10a", |lab| loads(lab, Carrier::Tcp, LOAD_OF_TCP)),
    ("CJ10b", |lab| loads(lab, Carrier::Rdma, LOAD_OF_RDMA)),
];

fn kilo(bytes: usize) -> String {
    format!("{} KiB", bytes >> 10)
}

/// The least size with all of the throughput, and the highest.
fn saturates(rate: impl Fn(usize) -> Result<f64>) -> Result<(usize, f64)> {
    let rates = SIZES.map(rate).into_iter().collect::<Result<Vec<_>>>()?;
    let (_, best) = range(rates.iter().copied());
    let full = rates
        .iter()
        .zip(SIZES)
        .find(|(rate, _)| **rate >= FULL * best);
    let (_, size) = full.unwrap_or((&best, SIZES[SIZES.len() - 1]));
    Ok((size, best))
}

fn messages(lab: &Lab) -> Result<(usize, f64)> {
    saturates(|size| lab.rate(&raw(&fabric(), size)))
}

fn elements(lab: &Lab) -> Result<(usize, f64)> {
    saturates(|size| {
        let join = growing(Method::Merge, rates::HOSTS);
        Ok(lab.ring(&by_element(join, size))?.link_rate())
    })
}

fn messages_saturate(lab: &Lab) -> Result<Seen> {
    let (size, best) = messages(lab)?;
    Seen::new(
        format!("from {}, of {}", kilo(size), giga(best)),
        (2 << 10..=8 << 10).contains(&size),
        "shorter ones have more headers, and acknowledgements share the NIC with them",
        "the NIC takes short messages as fast as the link",
    )
}

fn elements_are_larger(lab: &Lab) -> Result<Seen> {
    let ((raw, _), (ring, best)) = (messages(lab)?, elements(lab)?);
    Seen::new(
        format!("{} instead of {}, of {}", kilo(ring), kilo(raw), giga(best)),
        ring > raw,
        "an element has credit and threads to wait for besides",
        "the ring costs nothing that messages do not",
    )
}

fn elements_saturate(lab: &Lab) -> Result<Seen> {
    let (size, best) = elements(lab)?;
    Seen::new(
        format!("from {}, of {}", kilo(size), giga(best)),
        (1 << 19..=2 << 20).contains(&size),
        "what an element costs besides its bytes takes so long",
        "eight elements on their way cover what an element costs besides its bytes, as handing it from thread to thread \
         takes no time in the model",
    )
}

/// Both carriers with 1 to 4 threads.
fn carriers(lab: &Lab) -> Result<Vec<[Arc<RingMeasured>; 2]>> {
    let of = |carrier, threads| {
        lab.ring(&carried(
            growing(Method::Hash, rates::HOSTS),
            carrier,
            threads,
        ))
    };
    (1..=rates::CORES)
        .map(|threads| Ok([of(Carrier::Rdma, threads)?, of(Carrier::Tcp, threads)?]))
        .collect()
}

/// How many times as long TCP takes.
fn gaps(lab: &Lab) -> Result<(Vec<f64>, String)> {
    let gaps: Vec<f64> = carriers(lab)?
        .iter()
        .map(|[rdma, tcp]| tcp.after_set_up() / rdma.after_set_up())
        .collect();
    let told: Vec<_> = gaps.iter().map(|gap| format!("{gap:.3}")).collect();
    let told = format!("{} times as long over TCP", told.join(", "));
    Ok((gaps, told))
}

fn rdma_is_faster(lab: &Lab) -> Result<Seen> {
    let (gaps, told) = gaps(lab)?;
    Seen::new(
        told,
        gaps.iter().all(|gap| *gap >= 1.01),
        "what the kernel copies takes time from those that join",
        "with a core for each, threads that move bytes do not disturb those that join: in the model caches, memory and \
         interrupts are not shared",
    )
}

fn most_with_all_threads(lab: &Lab) -> Result<Seen> {
    let (gaps, told) = gaps(lab)?;
    let most = gaps.iter().all(|gap| *gap <= gaps[gaps.len() - 1]);
    Seen::new(
        told,
        most && gaps[gaps.len() - 1] > 1.01,
        "threads that move bytes have no core of their own any more",
        "other threads are held up by more",
    )
}

fn tcp_waits(lab: &Lab) -> Result<Seen> {
    let all = carriers(lab)?;
    let share = |measured: &RingMeasured| measured.synchronisation() / measured.after_set_up();
    let (_, rdma) = range(all.iter().map(|[rdma, _]| share(rdma)));
    let (_, tcp) = range(all.iter().map(|[_, tcp]| share(tcp)));
    Seen::new(
        format!(
            "up to {:.1} % of the time over TCP, and {:.1} % over RDMA",
            100.0 * tcp,
            100.0 * rdma
        ),
        tcp > SAME && rdma <= NONE,
        "kernels move bytes more slowly than hosts join",
        "both are fast enough, or neither is",
    )
}

fn loads(lab: &Lab, carrier: Carrier, claimed: [f64; 4]) -> Result<Seen> {
    let seen: Vec<f64> = carriers(lab)?
        .iter()
        .map(|[rdma, tcp]| match carrier {
            Carrier::Rdma => rdma.load(),
            Carrier::Tcp => tcp.load(),
        })
        .collect();
    let told: Vec<_> = seen
        .iter()
        .map(|load| format!("{:.0}", 100.0 * load))
        .collect();
    let near = |(seen, claimed): (&f64, f64)| is_near(*seen, claimed);
    Seen::new(
        format!("{} %", told.join(", ")),
        seen.iter().zip(claimed).all(near),
        "those that join, and what kernels copy for each byte",
        "kernels copy for longer, or less long",
    )
}
