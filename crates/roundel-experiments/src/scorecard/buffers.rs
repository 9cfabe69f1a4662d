//! Adaptive buffers (section 7.1.8): two nodes, MESQ/SR.

use super::lab::{Lab, edr, giga, is_near, range};
use super::{Judge, Seen};
use crate::error::Result;
use crate::setting::Setting;
use roundel_exchange::{Buffers, Design};
use roundel_verbs::sim::Parameters;

/// Buffers of each thread for each node, where they are fixed.
const FIXED: [usize; 5] = [2, 4, 8, 16, 32];
/// Rounds of 5 cycles: 21 and 95 cycles for each tuple.
const LITTLE: u32 = 4;
const MUCH: u32 = 19;
/// Enough for windows to settle.
const SECONDS: f64 = 0.05;
const FIXED_SECONDS: f64 = 0.01;

pub(super) const JUDGES: &[Judge] = &[
    ("SH35a", product),
    ("SH35b", product_is_not_enough),
    ("SH36a", fewer_with_more_work),
    ("SH36b", never_worse),
    ("SH36c", better_with_much_work),
    ("SH37a", fewer_on_the_slower),
    ("SH37b", fixed_is_suboptimal),
];

fn two(buffers: Buffers, work: &[u32]) -> Setting {
    Setting {
        buffers,
        work: work.to_vec(),
        seconds: SECONDS,
        ..edr(Design::MesqSr, 2)
    }
}

fn fixed(lab: &Lab, work: &[u32]) -> Result<Vec<f64>> {
    let rate = |count: &usize| {
        lab.rate(&Setting {
            seconds: FIXED_SECONDS,
            ..two(Buffers::Fixed(*count), work)
        })
    };
    FIXED.iter().map(rate).collect()
}

fn product(_: &Lab) -> Result<Seen> {
    let edr = Parameters::edr();
    let packet = edr.link.rate.time(edr.link.packet_bytes).as_picos() as f64;
    let count = edr.round_trip().as_secs_f64() * 1e12 / packet;
    Seen::new(
        format!("{count:.0}"),
        is_near(count, 44.0),
        "a round trip takes as long as these",
        "a round trip of 44 datagrams takes 14 µs: the paper's has more in it than network and NIC",
    )
}

fn product_is_not_enough(lab: &Lab) -> Result<Seen> {
    let threads = edr(Design::MesqSr, 2).threads;
    // 44 buffers of a node's 14 threads for two nodes, and at least two each.
    let product = lab.rate(&two(Buffers::Fixed((44 / threads / 2).max(2)), &[0]))?;
    let (_, peak) = range(fixed(lab, &[0])?);
    Seen::new(
        format!("{} of {}", giga(product), giga(peak)),
        product < 0.97 * peak,
        "receivers that work keep buffers longer than the network does",
        "two buffers of each thread suffice to fill the link",
    )
}

fn window(lab: &Lab, work: &[u32], node: usize) -> Result<f64> {
    let measured = lab.run(&two(Buffers::AdaptivePaper, work))?;
    Ok(measured.nodes[node].endpoints.window)
}

fn fewer_with_more_work(lab: &Lab) -> Result<Seen> {
    let (little, much) = (window(lab, &[LITTLE], 0)?, window(lab, &[MUCH], 0)?);
    Seen::new(
        format!("{little:.0} and {much:.0} of a link"),
        much <= 0.9 * little,
        "who computes needs no more than it can take",
        "they do not become fewer",
    )
}

fn never_worse(lab: &Lab) -> Result<Seen> {
    let mut worst: f64 = f64::INFINITY;
    for work in [0, LITTLE, MUCH] {
        let (_, best) = range(fixed(lab, &[work])?);
        worst = worst.min(lab.rate(&two(Buffers::AdaptivePaper, &[work]))? / best);
    }
    Seen::new(
        format!("{:.0} % of the best fixed number at least", 100.0 * worst),
        worst >= 0.97,
        "windows grow as far as needed",
        "some fixed number is better",
    )
}

fn better_with_much_work(lab: &Lab) -> Result<Seen> {
    let (_, best) = range(fixed(lab, &[MUCH])?);
    let adaptive = lab.rate(&two(Buffers::AdaptivePaper, &[MUCH]))?;
    Seen::new(
        format!("{} against {}", giga(adaptive), giga(best)),
        adaptive > 1.01 * best,
        "more completions are taken at a time",
        "completions are taken in batches with fixed buffers too: both keep processors busy",
    )
}

fn fewer_on_the_slower(lab: &Lab) -> Result<Seen> {
    let skewed = [LITTLE, MUCH];
    let (little, much) = (window(lab, &skewed, 0)?, window(lab, &skewed, 1)?);
    Seen::new(
        format!("{little:.0} and {much:.0} of a link"),
        much <= 0.8 * little,
        "who computes needs no more than it can take",
        "an end gives back what it did not need: the slower node's buffers are full while they wait for it, so that it keeps them, \
         and the faster node gives its own back",
    )
}

/// The least fixed number of buffers that is as good as any.
fn enough(lab: &Lab, work: u32) -> Result<usize> {
    let rates = fixed(lab, &[work])?;
    let (_, best) = range(rates.iter().copied());
    let mut counts = FIXED.iter().zip(&rates);
    let enough = counts.find(|(_, rate)| **rate >= 0.99 * best);
    Ok(enough.map_or(FIXED[0], |(count, _)| *count))
}

fn fixed_is_suboptimal(lab: &Lab) -> Result<Seen> {
    let (fast, slow) = (enough(lab, LITTLE)?, enough(lab, MUCH)?);
    Seen::new(
        format!("{fast} buffers are enough with 21 cycles, {slow} with 95"),
        slow != fast,
        "one number is too many for the one or too few for the other",
        "the same number is enough for both",
    )
}
