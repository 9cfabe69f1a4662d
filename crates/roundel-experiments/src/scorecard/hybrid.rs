//! Multiplexers and their schedule (Rödiger et al. 2015), on QDR.

use super::lab::Lab;
use super::{Judge, Seen};
use crate::error::Result;
use crate::fabric::FabricChoice;
use crate::hybrid::{Hybrid, Mix, Order, Way, ideal, straggler};
use crate::setting::{Setting, Transport};
use roundel_exchange::{Architecture, Scheduling};

/// Servers of the paper's cluster, and threads that keep a link busy.
const NODES: usize = 6;
const THREADS: usize = 4;
/// More of them, which collide more often.
const MANY_NODES: usize = 16;
/// Bytes of the paper's messages.
const MESSAGE_BYTES: usize = 512 << 10;

pub(super) const JUDGES: &[Judge] = &[
    ("HY01", gain),
    ("HY02", phases),
    ("HY03a", bandwidth),
    ("HY03b", bandwidth_of_queries),
    ("HY04a", connections),
    ("HY04b", slow),
];

fn fabric(name: &str) -> FabricChoice {
    format!("sim:{name}").parse().expect("a generation")
}

/// All send to all others at once.
fn all_to_all(nodes: usize, scheduling: Scheduling) -> Hybrid {
    Hybrid {
        threads: THREADS,
        scheduling,
        message_bytes: MESSAGE_BYTES,
        messages: 25,
        order: Order::Flows,
        ..Hybrid::new(fabric("qdr"), Architecture::Multiplexer, nodes)
    }
}

fn gain(lab: &Lab) -> Result<Seen> {
    let gain_in = |servers, order| {
        let rate = |scheduling| {
            let one = Hybrid {
                order,
                ..all_to_all(servers, scheduling)
            };
            Ok::<_, crate::error::Error>(lab.hybrid(&one)?.bytes_per_second)
        };
        Ok::<_, crate::error::Error>(rate(Scheduling::On)? / rate(Scheduling::Off)?)
    };
    let [gain, many] = [NODES, MANY_NODES].map(|servers| gain_in(servers, Order::Flows));
    let (gain, many) = (gain?, many?);
    let random = gain_in(MANY_NODES, Order::Random)?;
    let seen = Seen::new(
        format!(
            "with messages of 512 KiB {gain:.2} times as fast on {NODES} servers and {many:.2} times on {MANY_NODES}, which \
             send to all others at once; {random:.2} times where the threads of {MANY_NODES} send to one after the other in \
             any order"
        ),
        gain >= 1.2,
        "flows to all others at once wait for each other at the receivers' ports, and then for messages of the pool, of which \
         each has few; threads that send to one after the other seldom meet",
        "a receiver has a message of the pool for each of its few senders, so that they do not wait for each other; on many \
         servers they do",
    )?;
    Ok(seen.beside(&[(gain, 1.4)]))
}

/// A round is all that goes to each other server in one phase.
fn phases(lab: &Lab) -> Result<Seen> {
    let of = |nodes: usize| {
        // Two messages make a phase.
        let one_round = Hybrid {
            threads: 1,
            messages: 2,
            ..all_to_all(nodes, Scheduling::On)
        };
        Ok::<_, crate::error::Error>(lab.hybrid(&one_round)?.phases)
    };
    let seen = [of(3)?, of(4)?, of(6)?];
    Seen::new(
        format!(
            "{}, {} and {} phases with 3, 4 and 6 servers",
            seen[0], seen[1], seen[2]
        ),
        seen == [2, 3, 5],
        "in phase p a server sends to the p-th after it",
        "phases end before all that goes to a server was sent",
    )
}

fn bandwidth(lab: &Lab) -> Result<Seen> {
    let tcp = |name: &str| {
        let setting = Setting {
            nodes: NODES,
            threads: THREADS,
            rows: 1 << 14,
            seconds: 0.02,
            ..Setting::new(Transport::Sockets, fabric(name))
        };
        lab.rate(&setting)
    };
    let slow = tcp("10gbe-tcp")?;
    let (fast, multiplexer) = (
        tcp("qdr")?,
        lab.hybrid(&all_to_all(NODES, Scheduling::On))?
            .bytes_per_second,
    );
    let (by_tcp, by_rdma) = (fast / slow, multiplexer / slow);
    Seen::new(
        format!(
            "from 10 GbE to QDR TCP gets {by_tcp:.2} times the throughput, multiplexers {by_rdma:.2} times: {:.2} and \
             {:.2} GB/s",
            fast / 1e9,
            multiplexer / 1e9
        ),
        by_rdma >= 1.5 * by_tcp,
        "TCP copies each byte in the kernel on the one thread that receives, whatever the link could carry",
        "threads keep up with the link over TCP, too",
    )
}

/// All queries on a network, as they were recorded, by TCP and by RDMA through multiplexers.
fn bandwidth_of_queries(lab: &Lab) -> Result<Seen> {
    let hourly = |hardware, way| {
        let mix = Mix::new(hardware, way, NODES);
        let seconds = mix.total_seconds(|one| Ok(lab.hybrid(one)?.bytes_per_second))?;
        Ok::<_, crate::error::Error>(3600.0 * mix.count() as f64 / seconds)
    };
    let (slow, fast) = (
        hourly("10gbe-tcp", Way::TunedTcp)?,
        hourly("qdr", Way::TunedTcp)?,
    );
    let rdma = hourly("qdr", Way::Rdma)?;
    Seen::new(
        format!(
            "{slow:.0} queries per hour over tuned TCP on 10 GbE, {fast:.0} on QDR, and {rdma:.0} there through multiplexers"
        ),
        rdma >= 1.2 * fast,
        "the kernel hands bytes out on one thread of a node at a time, which RDMA does not need",
        "queries compute for longer than TCP exchanges",
    )
}

fn connections(lab: &Lab) -> Result<Seen> {
    let of = |architecture, operators| {
        let one = Hybrid {
            threads: THREADS,
            operators,
            messages: 4,
            ..Hybrid::new(fabric("qdr"), architecture, NODES)
        };
        Ok::<_, crate::error::Error>(lab.hybrid(&one)?.queue_pairs)
    };
    // Each side of an operator has its own; units of one server hand rows over in memory.
    let unit = of(Architecture::Classic, 1)? / (2 * THREADS) + THREADS - 1;
    let multiplexer = [1, 4].map(|operators| of(Architecture::Multiplexer, operators));
    let [one, four] = multiplexer;
    let (one, four) = (one?, four?);
    Seen::new(
        format!(
            "{unit} for each of {NODES}·{THREADS} units and operator, {} of them within the server; {one} for a multiplexer \
             with 1 operator and {four} with 4",
            THREADS - 1
        ),
        unit == NODES * THREADS - 1 && one == NODES - 1 && four == one,
        "links of all operators share the multiplexer's connection to a server",
        "the verbs layer counts others",
    )
}

fn slow(lab: &Lab) -> Result<Seen> {
    const TIMES: u32 = 10;
    let times = |architecture| {
        let seconds = |slow| {
            let one = straggler(fabric("qdr"), architecture, slow);
            Ok::<_, crate::error::Error>(lab.hybrid(&one)?.seconds)
        };
        Ok::<_, crate::error::Error>(seconds(TIMES)? / seconds(1)?)
    };
    let (classic, multiplexer) = (
        times(Architecture::Classic)?,
        times(Architecture::Multiplexer)?,
    );
    Seen::new(
        format!(
            "one of 4 cores {TIMES} times as slow: {classic:.2} times as long between units, {multiplexer:.2} times through \
             multiplexers, where {:.2} times is the least",
            ideal(TIMES)
        ),
        multiplexer <= 1.1 * ideal(TIMES) && classic > 2.0 * multiplexer,
        "threads behind a multiplexer take the next message whoever it would have been for",
        "messages are too long, or too few, to be shared out evenly",
    )
}
