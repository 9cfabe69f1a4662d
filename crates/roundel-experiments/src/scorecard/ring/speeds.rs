//! Hosts that take longer for an element than others: for the rows that are in it, or because they stand still (section
//! V-D).

use super::super::lab::{Lab, is_near, range};
use super::super::{Judge, Seen};
use super::{fixed, growing};
use crate::error::Result;
use crate::ring::{Method, RingJoin, RingMeasured, Stall, rates, skewed};
use std::sync::Arc;

/// Of hashes: where frequent keys lie decides which threads and elements have them.
const DRAWS: u64 = 9;
/// How often each host stands still.
const ROUNDS: usize = 10;

pub(super) const JUDGES: &[Judge] = &[
    ("CJ07a", |lab| skew(lab, 0.9, |gain| is_near(gain, 5.0))),
    ("CJ07b", |lab| skew(lab, 0.0, |gain| is_near(gain, 1.0))),
    ("CJ08a", stalls_are_absorbed),
    ("CJ08b", follower_goes_on),
];

fn skew(lab: &Lab, exponent: f64, holds: fn(f64) -> bool) -> Result<Seen> {
    let mut gains = Vec::new();
    for seed in 1..=DRAWS {
        let of = |hosts| {
            let join = skewed(growing(Method::Hash, hosts), exponent);
            Ok::<_, crate::error::Error>(lab.ring(&RingJoin { seed, ..join })?.after_set_up())
        };
        gains.push(of(1)? / of(rates::HOSTS)?);
    }
    let (least, most) = range(gains.iter().copied());
    gains.sort_by(f64::total_cmp);
    let gain = gains[gains.len() / 2];
    Seen::new(
        format!("{gain:.2} times, the median of {DRAWS} draws: {least:.2} to {most:.2} times"),
        holds(gain),
        "rows look for their partners among all that stay; of those that have many, each host has a part",
        "partners take another share of the time, or hosts wait for each other",
    )
}

/// A hash join, and the same where hosts stand still for so many elements' time at these shares of it; how long an element
/// takes.
fn stalled(
    lab: &Lab,
    elements: f64,
    hosts: impl IntoIterator<Item = (usize, f64)>,
) -> Result<([Arc<RingMeasured>; 2], f64)> {
    let join = fixed(Method::Hash, rates::HOSTS);
    let plain = lab.ring(&join)?;
    let joined = plain.hosts[0].elements as f64;
    let of_element = plain.join() / joined;
    let stall = |(host, share): (usize, f64)| Stall {
        host,
        after: (joined * share) as u64,
        seconds: elements * of_element,
    };
    let stalls = hosts.into_iter().map(stall).collect();
    let stalled = lab.ring(&RingJoin { stalls, ..join })?;
    Ok(([plain, stalled], of_element))
}

/// Buffers of a host.
fn buffers() -> f64 {
    roundel_ring::RingOptions::default().elements as f64
}

fn stalls_are_absorbed(lab: &Lab) -> Result<Seen> {
    let (hosts, length) = (rates::HOSTS, buffers() / 2.0);
    let turns = hosts * ROUNDS;
    let in_turn = (0..turns).map(|turn| (turn % hosts, (1 + turn) as f64 / (turns + 2) as f64));
    let ([plain, stalled], of_element) = stalled(lab, length, in_turn)?;
    let longer = (stalled.after_set_up() - plain.after_set_up()) / of_element;
    let own = ROUNDS as f64 * length;
    let others = (hosts - 1) as f64 * own;
    let felt = longer - own;
    Seen::new(
        format!(
            "hosts that stand still in turn, each for {own:.0} elements in all, are held up by {felt:.1} of the {others:.0} \
             of others"
        ),
        felt <= 0.25 * others,
        "others join what is in their buffers, or begin their own elements, and catch up while the next one stands still; \
         in the last revolution there is less to join meanwhile",
        "others wait meanwhile",
    )
}

fn follower_goes_on(lab: &Lab) -> Result<Seen> {
    let length = 50.0 * buffers();
    let ([_, stalled], of_element) = stalled(lab, length, [(0, 0.5)])?;
    let began = stalled.hosts[0]
        .stalls
        .first()
        .copied()
        .unwrap_or(f64::INFINITY);
    let waits = stalled.hosts[1].waits.iter().find(|wait| **wait >= began);
    let goes_on = waits.map_or(0.0, |wait| (wait - began) / of_element);
    Seen::new(
        format!(
            "it goes on for {goes_on:.1} elements of {length}, with {} buffers",
            buffers()
        ),
        goes_on >= 0.75 * buffers(),
        "it joins what has come, and begins its own elements while others have room for them",
        "it waits before that",
    )
}
