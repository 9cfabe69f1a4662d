//! The phases of joins, by their rows and hosts (sections V-B, V-C, V-E and V-F).

use super::super::lab::{Lab, giga, is_near, range};
use super::super::{Judge, Seen};
use super::{NONE, SAME, fixed, growing};
use crate::error::Result;
use crate::ring::{Method, RingJoin, RingMeasured, large, rates};
use std::sync::Arc;

/// 16.2 s against 6.4 and 2.3 s (section V-E), which the paper calls a factor of 1.8.
const FASTER: f64 = 16.2 / (6.4 + 2.3);
/// Most hosts of a ring that sorting is looked for to be faster on.
const HOSTS_MAX: usize = 64;

pub(super) const JUDGES: &[Judge] = &[
    ("CJ02", set_up_is_shared),
    ("CJ03a", join_is_the_same),
    ("CJ03b", network_is_hidden),
    ("CJ04a", set_up_is_flat),
    ("CJ04b", join_is_linear),
    ("CJ05a", merging_is_faster),
    ("CJ05b", merging_waits),
    ("CJ05c", only_merging_waits),
    ("CJ06", link_is_used),
    ("CJ11", merging_overtakes),
];

/// The largest of the paper.
fn largest(lab: &Lab, method: Method) -> Result<Arc<RingMeasured>> {
    lab.ring(&growing(method, rates::HOSTS))
}

/// A value of the joins on 1 to 6 hosts.
fn by_hosts(
    lab: &Lab,
    join: fn(Method, usize) -> RingJoin,
    value: impl Fn(usize, &RingMeasured) -> f64,
) -> Result<Vec<f64>> {
    let hosts = 1..=rates::HOSTS;
    hosts
        .map(|hosts| Ok(value(hosts, &*lab.ring(&join(Method::Hash, hosts))?)))
        .collect()
}

fn set_up_is_shared(lab: &Lab) -> Result<Seen> {
    let of = |hosts| Ok::<_, crate::error::Error>(lab.ring(&fixed(Method::Hash, hosts))?.set_up());
    let (one, six) = (of(1)?, of(rates::HOSTS)?);
    Seen::new(
        format!("{one:.1} s and {six:.1} s"),
        is_near(one, 16.2) && is_near(six, 2.7),
        "the first number is what the rate is from; hosts share the rows evenly",
        "hosts do not share it evenly",
    )
}

fn join_is_the_same(lab: &Lab) -> Result<Seen> {
    let (least, most) = range(by_hosts(lab, fixed, |_, measured| measured.join())?);
    Seen::new(
        format!("{least:.2} to {most:.2} s on 1 to 6 hosts"),
        most <= (1.0 + SAME) * least,
        "each host looks all rows of the spinning relation up",
        "something else than looking rows up takes a part of it",
    )
}

fn network_is_hidden(lab: &Lab) -> Result<Seen> {
    let shares = by_hosts(lab, fixed, |_, measured| {
        measured.synchronisation() / measured.after_set_up()
    })?;
    let (_, most) = range(shares);
    Seen::new(
        format!("hosts wait for {:.1} % of the time at most", 100.0 * most),
        most <= NONE,
        "an element takes longer to join than to send",
        "elements come later than they could be joined",
    )
}

fn set_up_is_flat(lab: &Lab) -> Result<Seen> {
    let (least, most) = range(by_hosts(lab, growing, |_, measured| measured.set_up())?);
    Seen::new(
        format!("{least:.1} to {most:.1} s on 1 to 6 hosts"),
        most <= (1.0 + SAME) * least,
        "each host has as many rows",
        "it depends on more than a host's rows",
    )
}

fn join_is_linear(lab: &Lab) -> Result<Seen> {
    let of_host = by_hosts(lab, growing, |hosts, measured| {
        measured.after_set_up() / hosts as f64
    })?;
    let (least, most) = range(of_host);
    Seen::new(
        format!("{least:.2} to {most:.2} s for each host's part of the relation"),
        most <= (1.0 + SAME) * least,
        "a row takes as long to look up in any table",
        "it grows by more, or less",
    )
}

fn merging_is_faster(lab: &Lab) -> Result<Seen> {
    let (hash, merge) = (largest(lab, Method::Hash)?, largest(lab, Method::Merge)?);
    let ratio = hash.after_set_up() / merge.after_set_up();
    Seen::new(
        format!(
            "{ratio:.2} times: {:.1} s instead of {:.1} s",
            merge.after_set_up(),
            hash.after_set_up()
        ),
        is_near(ratio, FASTER),
        "rates say how long joining takes, and the link how long merging waits",
        "a link of the ring carries less than all of the relation, so that merging waits for less long",
    )
}

fn merging_waits(lab: &Lab) -> Result<Seen> {
    let merge = largest(lab, Method::Merge)?;
    Seen::new(
        format!(
            "{:.1} s, and {:.1} s of joining",
            merge.synchronisation(),
            merge.join()
        ),
        is_near(merge.synchronisation(), 2.3),
        "the link needs so much longer than the hosts",
        "in the paper all of the relation crosses each link; here elements end at the last host that has not seen them, \
         and a sixth of the bytes is saved",
    )
}

fn only_merging_waits(lab: &Lab) -> Result<Seen> {
    let waits = |measured: &RingMeasured| measured.synchronisation() / measured.after_set_up();
    let hash = waits(&*largest(lab, Method::Hash)?);
    let merge = waits(&*largest(lab, Method::Merge)?);
    Seen::new(
        format!(
            "{:.1} % of the time, and {:.1} % with hashes",
            100.0 * merge,
            100.0 * hash
        ),
        merge > SAME && hash <= NONE,
        "an element takes longer to look up than to send, and not to merge",
        "both wait, or neither does",
    )
}

fn link_is_used(lab: &Lab) -> Result<Seen> {
    let merge = largest(lab, Method::Merge)?;
    let rate = merge.link_rate();
    Seen::new(
        format!("{}, in {:.1} s", giga(rate), merge.after_set_up()),
        is_near(rate, 1.1e9),
        "merging is faster than the link, less its headers",
        "something else than the link is the limit",
    )
}

fn merging_overtakes(lab: &Lab) -> Result<Seen> {
    let total = |method, hosts| {
        let join = large(growing(method, hosts));
        Ok::<_, crate::error::Error>(lab.ring(&join)?.total())
    };
    // The more hosts there are, the better it is.
    let (mut slower, mut faster) = (1, HOSTS_MAX + 1);
    while faster - slower > 1 {
        let hosts = (slower + faster) / 2;
        match total(Method::Merge, hosts)? < total(Method::Hash, hosts)? {
            true => faster = hosts,
            false => slower = hosts,
        }
    }
    let bytes = 2.0 * (faster * rates::ROW_BYTES) as f64 * rates::ROWS_OF_HOST as f64;
    let seen = match faster > HOSTS_MAX {
        true => format!("not with up to {HOSTS_MAX} hosts"),
        false => format!("from {faster} hosts on, with {:.0} GB", bytes / 1e9),
    };
    Seen::new(
        seen,
        is_near(faster as f64, 30.0),
        "sorting is done once, and each host that is added makes up for a part of it",
        "sorting costs less, or more, than where the paper expects it",
    )
}
