//! The size of messages (section 7.1.3).

use super::lab::{Lab, MEMQ_WR, SEMQ_WR, edr, giga, range};
use super::{Claim, Seen, Test};
use crate::error::Result;
use crate::setting::Setting;
use roundel_exchange::Design;

const NODES: usize = 8;
const SMALL: [usize; 2] = [4 << 10, 16 << 10];
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const SINGLE: [Design; 3] = [Design::SemqSr, Design::SemqRd, SEMQ_WR];
const MULTIPLE: [Design; 3] = [Design::MemqSr, Design::MemqRd, MEMQ_WR];
/// Seconds of virtual time for each size: a large message takes long to fill.
const SECONDS: f64 = 0.004;

pub(super) fn claims() -> Vec<Claim> {
    vec![
        Claim {
            id: "SH10a",
            test: Test::Fully,
            paper: "Designs of one endpoint underuse the network with messages of up to 16 KiB",
            judge: one_endpoint_underuses,
        },
        Claim {
            id: "SH10b",
            test: Test::Fully,
            paper: "Their throughput rises with the size, and drops slightly after its peak",
            judge: one_endpoint_rises,
        },
        Claim {
            id: "SH11",
            test: Test::Fully,
            paper: "Designs of an endpoint for each thread stay near their peak from 4 KiB to 1 MiB",
            judge: many_endpoints_stay,
        },
    ]
}

fn of_size(design: Design, bytes: usize) -> Setting {
    Setting {
        message_bytes: Some(bytes),
        seconds: SECONDS * (bytes as f64 / f64::from(64 << 10)).max(0.5),
        ..edr(design, NODES)
    }
}

fn rates(lab: &Lab, design: Design) -> Result<Vec<f64>> {
    SIZES
        .iter()
        .map(|bytes| lab.rate(&of_size(design, *bytes)))
        .collect()
}

fn told(design: Design, rates: &[f64]) -> String {
    let rates: Vec<_> = rates.iter().map(|rate| giga(*rate)).collect();
    format!("{design} {}", rates.join(", "))
}

fn one_endpoint_underuses(lab: &Lab) -> Result<Seen> {
    let (mut seen, mut holds) = (Vec::new(), true);
    for design in SINGLE {
        let rates = rates(lab, design)?;
        let (_, peak) = range(rates.iter().copied());
        // The smallest by much, all of them by some.
        holds &=
            rates[0] <= 0.8 * peak && rates[..SMALL.len()].iter().all(|rate| *rate <= 0.97 * peak);
        seen.push(told(design, &rates));
    }
    Seen::new(
        format!("from 4 KiB to 1 MiB: {}", seen.join("; ")),
        holds,
        "all threads go through the locks of one endpoint for each message",
        "locks do not limit all of them at 16 KiB",
    )
}

fn one_endpoint_rises(lab: &Lab) -> Result<Seen> {
    let (mut seen, mut holds) = (Vec::new(), true);
    for design in SINGLE {
        let rates = rates(lab, design)?;
        let (_, peak) = range(rates.iter().copied());
        let last = rates[SIZES.len() - 1];
        holds &= rates[0] < rates[1] && last < peak && last >= 0.7 * peak;
        seen.push(told(design, &rates));
    }
    Seen::new(
        format!("from 4 KiB to 1 MiB: {}", seen.join("; ")),
        holds,
        "fewer messages first, and then messages so long that they get into each other's way",
        "not all of them have their peak in between",
    )
}

fn many_endpoints_stay(lab: &Lab) -> Result<Seen> {
    let (mut seen, mut holds) = (Vec::new(), true);
    for design in MULTIPLE {
        let rates = rates(lab, design)?;
        let (least, peak) = range(rates.iter().copied());
        holds &= least >= 0.85 * peak;
        seen.push(told(design, &rates));
    }
    Seen::new(
        format!("from 4 KiB to 1 MiB: {}", seen.join("; ")),
        holds,
        "each thread posts on its own",
        "some design loses more than 15 % at some size",
    )
}
