//! Joins on a ring (Frey et al. 2010). What joining costs is from one place of the paper for each rate
//! ([`rates`]); claims are about other sizes, hosts, threads and keys, and about the network.

use super::lab::{Lab, giga, is_near, range};
use super::{Claim, Seen};
use crate::error::Result;
use crate::experiments::ring::{by_element, carried, large, raw, skewed};
use crate::fabric::FabricChoice;
use crate::ring::{Carrier, Method, RingJoin, RingMeasured, Stall, rates};
use std::sync::Arc;

/// A share of the highest throughput that is as good as all of it.
const FULL: f64 = 0.95;
/// Times that differ by no more than this share are the same, and waiting for no longer than it is none.
const SAME: f64 = 0.05;
const NONE: f64 = 0.02;
/// Sizes of messages and elements, in bytes.
const SIZES: [usize; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];
const SHORT_SIZES: [usize; 4] = [1 << 10, 1 << 11, 1 << 12, 1 << 13];
/// Table I.
const LOAD_OF_TCP: [f64; 4] = [0.31, 0.59, 0.84, 0.86];
const LOAD_OF_RDMA: [f64; 4] = [0.25, 0.5, 0.76, 1.0];
/// Most hosts of a ring that sorting is looked for to be faster on.
const HOSTS_MAX: usize = 64;

pub(super) fn claims() -> Vec<Claim> {
    vec![
        Claim::fully(
            "CJ01a",
            "RDMA at 10 Gb/s has all of the link only with messages of about 4 kB and more",
            messages_saturate,
        ),
        Claim::fully(
            "CJ01b",
            "With the application, larger units are needed than that",
            elements_are_larger,
        ),
        Claim::fully(
            "CJ01c",
            "With the application, the link is saturated from units of about 1 MB on",
            elements_saturate,
        ),
        Claim::partly(
            "CJ02",
            "Setting up a hash join takes 16.2 s on one host and 2.7 s on six",
            set_up_is_shared,
        ),
        Claim::fully(
            "CJ03a",
            "The join phase of a hash join takes as long on any number of hosts",
            join_is_the_same,
        ),
        Claim::fully(
            "CJ03b",
            "A hash join hides the network in full",
            network_is_hidden,
        ),
        Claim::partly(
            "CJ04a",
            "As each host adds 3.2 GB, set-up of a hash join takes as long as before",
            set_up_is_flat,
        ),
        Claim::partly(
            "CJ04b",
            "As each host adds 3.2 GB, the join phase grows as the relation that spins",
            join_is_linear,
        ),
        Claim::fully(
            "CJ05a",
            "With 19.2 GB on six hosts, merging and waiting are 1.8 times as fast as joining by hashes",
            merging_is_faster,
        ),
        Claim::fully(
            "CJ05b",
            "With 19.2 GB on six hosts, a sort-merge join waits for 2.3 s",
            merging_waits,
        ),
        Claim::fully(
            "CJ05c",
            "Hosts wait for the ring with a sort-merge join only",
            only_merging_waits,
        ),
        Claim::fully(
            "CJ06",
            "A link carries 1.1 GB/s in a sort-merge join, of 1.25",
            link_is_used,
        ),
        Claim::partly(
            "CJ07a",
            "With a Zipf factor of 0.9 a ring of six hosts joins five times as fast as one host",
            |lab| skew(lab, 0.9, |gain| is_near(gain, 5.0)),
        ),
        Claim::partly(
            "CJ07b",
            "With uniform keys a ring joins no faster than one host",
            |lab| skew(lab, 0.0, |gain| is_near(gain, 1.0)),
        ),
        Claim::fully(
            "CJ08a",
            "Buffers balance the speeds of hosts: one that is held up does not slow down the others",
            stalls_are_absorbed,
        ),
        Claim::fully(
            "CJ08b",
            "Where a host stands still, its follower waits only once its buffers are empty",
            follower_goes_on,
        ),
        Claim::partly(
            "CJ09a",
            "RDMA is faster than TCP with 1, 2, 3 and 4 threads that join",
            rdma_is_faster,
        ),
        Claim::partly(
            "CJ09b",
            "RDMA is ahead of TCP by most with 4 threads that join",
            most_with_all_threads,
        ),
        Claim::partly(
            "CJ09c",
            "TCP does not hide waiting for the ring, and RDMA does",
            tcp_waits,
        ),
        Claim::partly(
            "CJ10a",
            "TCP loads the cores of a host by 31, 59, 84 and 86 % with 1 to 4 threads that join",
            |lab| loads(lab, Carrier::Tcp, LOAD_OF_TCP),
        ),
        Claim::partly(
            "CJ10b",
            "RDMA loads the cores of a host by 25, 50, 76 and 100 % with 1 to 4 threads that join",
            |lab| loads(lab, Carrier::Rdma, LOAD_OF_RDMA),
        ),
        Claim::partly(
            "CJ11",
            "From about 30 hosts on, with 100 GB, a sort-merge join is faster than a hash join",
            merging_overtakes,
        ),
    ]
}

fn fabric() -> FabricChoice {
    "sim:iwarp10".parse().expect("a generation")
}

/// A join of as many rows on each host as in the paper.
fn growing(method: Method, hosts: usize) -> RingJoin {
    RingJoin::new(fabric(), method, hosts)
}

/// A join of as many rows on all hosts together.
fn fixed(method: Method, hosts: usize) -> RingJoin {
    RingJoin {
        rows: rates::ROWS_OF_HOST,
        ..growing(method, hosts)
    }
}

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

fn kilo(bytes: usize) -> String {
    format!("{} KiB", bytes >> 10)
}

/// The least size with all of the throughput.
fn saturates(sizes: &[usize], rate: impl Fn(usize) -> Result<f64>) -> Result<(usize, f64)> {
    let most = 4 << 20;
    let best = rate(most)?;
    for &size in sizes {
        if rate(size)? >= FULL * best {
            return Ok((size, best));
        }
    }
    Ok((most, best))
}

fn messages(lab: &Lab) -> Result<(usize, f64)> {
    saturates(&SHORT_SIZES, |size| lab.rate(&raw(&fabric(), size)))
}

fn elements(lab: &Lab) -> Result<(usize, f64)> {
    saturates(&SIZES, |size| {
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
        is_near(ratio, 1.8),
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

fn skew(lab: &Lab, exponent: f64, holds: fn(f64) -> bool) -> Result<Seen> {
    let of = |hosts| {
        let join = skewed(growing(Method::Hash, hosts), exponent);
        Ok::<_, crate::error::Error>(lab.ring(&join)?.after_set_up())
    };
    let (one, six) = (of(1)?, of(rates::HOSTS)?);
    Seen::new(
        format!("{:.2} times: {one:.1} s and {six:.1} s", one / six),
        holds(one / six),
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
    let in_turn = (0..hosts).map(|host| (host, (1 + host) as f64 / (hosts + 2) as f64));
    let ([plain, stalled], of_element) = stalled(lab, length, in_turn)?;
    let longer = (stalled.after_set_up() - plain.after_set_up()) / of_element;
    Seen::new(
        format!(
            "{hosts} hosts that stand still for {length} elements each, in turn, hold the join up by {longer:.1} elements"
        ),
        longer <= 1.5 * length,
        "others join what is in their buffers, or begin their own elements, and catch up while the next one stands still",
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
