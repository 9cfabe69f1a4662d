//! The advice in words: what was measured of what is advised, and what speaks against the others.

use super::limit::{Hardware, Limit};
use super::search::Found;
use super::tried::Tried;
use super::{AS_GOOD, IN_SEQUENCE, ShuffleWish, is_datagrams};
use crate::figure::Unit;
use crate::report::quantity;

/// The order in which what holds others up is told.
const LIMITS: [Limit; 7] = [
    Limit::Contexts,
    Limit::Lock,
    Limit::Credit,
    Limit::Buffers,
    Limit::Threads,
    Limit::Link,
    Limit::Unknown,
];

/// Why this one and not the others, of which there is the best of each design.
pub(super) fn reasons(
    wish: &ShuffleWish,
    advised: &Tried,
    others: &[Tried],
    found: &Found,
    hardware: Option<&Hardware>,
) -> Vec<String> {
    let mut reasons = vec![itself(advised, hardware)];
    let slower = |one: &&Tried| wish.worth(one) < AS_GOOD * wish.worth(advised);
    for limit in LIMITS {
        let those = others.iter().filter(slower);
        let those: Vec<_> = those.filter(|one| one.limit == limit).collect();
        if !those.is_empty() {
            reasons.push(held_up(limit, &those, hardware));
        }
    }
    let alike: Vec<_> = others.iter().filter(|one| !slower(one)).collect();
    if !alike.is_empty() {
        reasons.push(format!(
            "{} as fast within {:.0} %, and {} registers less, or as much with fewer queue pairs",
            are(&alike),
            100.0 * (1.0 - AS_GOOD),
            advised.candidate.design
        ));
    }
    reasons.extend(order(wish, advised, others));
    reasons.extend(memory(wish, found));
    reasons
}

fn rate(bytes_per_second: f64) -> String {
    quantity(bytes_per_second, Unit::BytesPerSecond)
}

fn bytes(bytes: u64) -> String {
    quantity(bytes as f64, Unit::Bytes)
}

fn names(those: &[&Tried]) -> String {
    let names = those.iter().map(|one| one.candidate.design.name());
    names.collect::<Vec<_>>().join(", ")
}

fn are(those: &[&Tried]) -> String {
    let verb = if those.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names(those))
}

/// The least and the most of a value, once where they are written alike.
fn span<T: PartialOrd + Copy>(
    those: &[&Tried],
    of: impl Fn(&Tried) -> T,
    write: fn(T) -> String,
) -> String {
    let (mut least, mut most) = (of(those[0]), of(those[0]));
    for value in those.iter().map(|one| of(one)) {
        least = if value < least { value } else { least };
        most = if value > most { value } else { most };
    }
    match (write(least), write(most)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    }
}

fn itself(advised: &Tried, hardware: Option<&Hardware>) -> String {
    let share = hardware.map_or(String::new(), |hardware| {
        let share = 100.0 * advised.bytes_per_second / hardware.link;
        format!(", {share:.0} % of what a link carries")
    });
    format!(
        "{} moves {} per node{share}, registers {} and has {} queue pairs; {}",
        advised.candidate,
        rate(advised.bytes_per_second),
        bytes(advised.registered_bytes),
        advised.queue_pairs,
        waits(advised)
    )
}

/// What holds it up, with how much it waits.
fn waits(tried: &Tried) -> String {
    let share = match tried.limit {
        Limit::Credit => tried.blocked_for_credit,
        Limit::Buffers => tried.blocked_for_buffers,
        limit => return limit.to_string(),
    };
    format!("{}, {:.0} % of the time", tried.limit, 100.0 * share)
}

/// What others reach, and what is in their way.
fn held_up(limit: Limit, those: &[&Tried], hardware: Option<&Hardware>) -> String {
    let rates = span(those, |one| one.bytes_per_second, rate);
    let why = match (limit, hardware) {
        (Limit::Contexts, Some(hardware)) => format!(
            "of {} queue pairs the NIC has the contexts of {} at hand, and fetches the others",
            span(those, |one| one.queue_pairs, |count| count.to_string()),
            hardware.contexts
        ),
        (Limit::Credit, _) => {
            let share = span(those, |one| 100.0 * one.blocked_for_credit, percent);
            format!("{limit}, {share} of the time")
        }
        (Limit::Buffers, _) => {
            let share = span(those, |one| 100.0 * one.blocked_for_buffers, percent);
            format!("{limit}, {share} of the time")
        }
        _ => limit.to_string(),
    };
    let verb = if those.len() == 1 { "reaches" } else { "reach" };
    format!("{} {verb} {rates}: {why}", names(those))
}

fn percent(value: f64) -> String {
    format!("{value:.0} %")
}

fn order(wish: &ShuffleWish, advised: &Tried, others: &[Tried]) -> Option<String> {
    if !wish.ordered {
        return None;
    }
    let datagrams = is_datagrams(advised.candidate.design);
    let rival = others
        .iter()
        .find(|one| is_datagrams(one.candidate.design) != datagrams);
    let off = 100.0 * (1.0 - IN_SEQUENCE);
    Some(match (datagrams, rival) {
        (true, Some(rival)) => format!(
            "rows have an order: datagrams are put back in sequence, for which {off:.0} % are taken off; connections, \
             which keep the order, reach {}",
            rate(rival.bytes_per_second)
        ),
        (true, None) => {
            "rows have an order: datagrams are put back in sequence, as no connection can be used"
                .into()
        }
        (false, Some(rival)) => format!(
            "rows have an order, which connections keep; datagrams would have to be put back in sequence, for which \
             {off:.0} % are taken off what they reach, {}",
            rate(rival.bytes_per_second)
        ),
        (false, None) => "rows have an order, which connections keep".into(),
    })
}

/// What the limit of memory has cost.
fn memory(wish: &ShuffleWish, found: &Found) -> Option<String> {
    let limit = bytes(wish.memory_limit_bytes?);
    let fastest = found
        .too_large
        .iter()
        .max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))?;
    Some(format!(
        "the limit of {limit} excludes {} of the candidates that were run; the fastest of them, {}, registers {} and \
         moves {}",
        found.too_large.len(),
        fastest.candidate,
        bytes(fastest.registered_bytes),
        rate(fastest.bytes_per_second)
    ))
}
