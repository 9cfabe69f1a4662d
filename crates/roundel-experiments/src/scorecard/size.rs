//! The size of messages (section 7.1.3).

use super::lab::{Lab, MEMQ_WR, SEMQ_WR, edr, giga, range};
use super::{Judge, Seen};
use crate::error::Result;
use crate::setting::Setting;
use roundel_exchange::Design;

const NODES: usize = 8;
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Of these, those up to 16 KiB.
const SMALL: usize = 2;
const SINGLE: [Design; 3] = [Design::SemqSr, Design::SemqRd, SEMQ_WR];
const MULTIPLE: [Design; 3] = [Design::MemqSr, Design::MemqRd, MEMQ_WR];
/// Seconds of virtual time for each size: a large message takes long to fill.
const SECONDS: f64 = 0.004;

pub(super) const JUDGES: &[Judge] = &[
    ("SH10a", one_endpoint_underuses),
    ("SH10b", one_endpoint_rises),
    ("SH11", many_endpoints_stay),
];

fn of_size(design: Design, bytes: usize) -> Setting {
    Setting {
        message_bytes: Some(bytes),
        seconds: SECONDS * (bytes as f64 / f64::from(64 << 10)).max(0.5),
        ..edr(design, NODES)
    }
}

/// Whether something holds of the throughputs of each design, from the smallest message to the largest.
fn of_sizes(
    lab: &Lab,
    designs: [Design; 3],
    holds: fn(&[f64]) -> bool,
    yes: &str,
    no: &str,
) -> Result<Seen> {
    let (mut seen, mut all) = (Vec::new(), true);
    for design in designs {
        let rates = SIZES.map(|bytes| lab.rate(&of_size(design, bytes)));
        let rates = rates.into_iter().collect::<Result<Vec<_>>>()?;
        all &= holds(&rates);
        let told: Vec<_> = rates.iter().map(|rate| giga(*rate)).collect();
        seen.push(format!("{design} {}", told.join(", ")));
    }
    let seen = format!("from 4 KiB to 1 MiB: {}", seen.join("; "));
    Seen::new(seen, all, yes, no)
}

fn peak(rates: &[f64]) -> f64 {
    range(rates.iter().copied()).1
}

fn one_endpoint_underuses(lab: &Lab) -> Result<Seen> {
    of_sizes(
        lab,
        SINGLE,
        // The smallest by much, all of them by some.
        |rates| {
            let peak = peak(rates);
            rates[0] <= 0.8 * peak && rates[..SMALL].iter().all(|rate| *rate <= 0.97 * peak)
        },
        "all threads go through the locks of one endpoint for each message",
        "locks do not limit all of them at 16 KiB",
    )
}

fn one_endpoint_rises(lab: &Lab) -> Result<Seen> {
    of_sizes(
        lab,
        SINGLE,
        |rates| {
            let (peak, last) = (peak(rates), rates[SIZES.len() - 1]);
            rates[0] < rates[1] && last < peak && last >= 0.7 * peak
        },
        "fewer messages first, and then messages so long that they get into each other's way",
        "not all of them have their peak in between",
    )
}

fn many_endpoints_stay(lab: &Lab) -> Result<Seen> {
    of_sizes(
        lab,
        MULTIPLE,
        |rates| range(rates.iter().copied()).0 >= 0.85 * peak(rates),
        "each thread posts on its own",
        "a READ and what announces it take more trips than a message, and two small buffers do not cover them",
    )
}
