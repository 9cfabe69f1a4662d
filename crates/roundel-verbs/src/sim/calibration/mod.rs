//! What raw verbs do on the hardware of the `fdr` preset, against what others measured of the same on real
//! hardware. With `--nocapture` each test prints what it compares.

mod bench;

use super::Parameters;
use crate::queue_pair::Transport::{ReliableConnection, UnreliableConnection, UnreliableDatagram};
use bench::{Bench, Load, Rates, Verb, round_trip};

/// How far the model may be from what was measured, except where it is said why it is further.
const TOLERANCE: f64 = 0.25;

/// A column of numbers, and how they compare.
struct Table {
    name: &'static str,
    off: Vec<String>,
}

impl Table {
    fn new(name: &'static str) -> Self {
        println!("{name}");
        Self {
            name,
            off: Vec::new(),
        }
    }

    fn compare(&mut self, what: impl ToString, published: f64, simulated: f64) {
        self.within(what, published, simulated, TOLERANCE);
    }

    fn within(&mut self, what: impl ToString, published: f64, simulated: f64, tolerance: f64) {
        let ratio = simulated / published;
        let line = format!(
            "{:>24} {published:>8.2} {simulated:>8.2} {ratio:>6.2}",
            what.to_string()
        );
        println!("{line}");
        if !(1.0 - tolerance..=1.0 + tolerance).contains(&ratio) {
            self.off.push(line);
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.off.is_empty(), "{}: {:#?}", self.name, self.off);
        }
    }
}

/// `rc-swarm` of rdma_bench: so many threads on each node, each with `times` queue pairs to every other node's
/// thread of the same number. Returns what an average node asks for.
fn swarm(parameters: Parameters, [nodes, threads, times]: [usize; 3], load: Load) -> f64 {
    let mut bench = Bench::new(parameters, nodes, threads, |_| true, load);
    for thread in 0..threads {
        for one in 0..nodes {
            for other in one + 1..nodes {
                for _ in 0..times {
                    bench.connect((one, thread), (other, thread));
                }
            }
        }
    }
    let rates = bench.run();
    rates.iter().map(|rates| rates.asked).sum::<f64>() / nodes as f64
}

/// The same with FDR and 8 threads, which READ.
fn swarm_reads(nodes: usize, times: usize, bytes: usize) -> f64 {
    let load = Load {
        verb: Verb::Read(bytes),
        transport: ReliableConnection,
        window: 16,
    };
    swarm(Parameters::fdr(), [nodes, 8, times], load)
}

/// Node 0 with 16 threads and so many queue pairs, and eight others. Returns what node 0 does when it asks, or
/// what comes to it when the others ask.
fn star(load: Load, pairs: usize, outbound: bool) -> Vec<Rates> {
    const THREADS: usize = 16;
    const OTHERS: usize = 8;
    let mut bench = Bench::new(
        Parameters::fdr(),
        1 + OTHERS,
        THREADS,
        |node| (node == 0) == outbound,
        load,
    );
    for pair in 0..pairs {
        let (thread, other) = (pair % THREADS, pair % OTHERS);
        let theirs = pair / OTHERS % THREADS;
        bench.connect((0, thread), (1 + other, theirs));
    }
    bench.run()
}

fn outbound(verb: Verb, transport: crate::Transport, pairs: usize, window: usize) -> f64 {
    let load = Load {
        verb,
        transport,
        window,
    };
    star(load, pairs, true)[0].asked
}

fn inbound(verb: Verb, transport: crate::Transport, pairs: usize, window: usize) -> f64 {
    let load = Load {
        verb,
        transport,
        window,
    };
    let rates = star(load, pairs, false);
    match verb {
        Verb::Send(_) => rates[0].received,
        _ => rates[1..].iter().map(|rates| rates.asked).sum(),
    }
}

#[test]
fn reads_asked_for_and_answered_against_queue_pairs() {
    let mut table = Table::new("READs of 32 bytes, M/s of each node (rdma_bench)");
    let six = [(1, 10.98), (3, 3.11), (5, 1.89), (9, 1.4), (15, 1.2)];
    let eleven = [(1, 7.67), (2, 2.19), (4, 1.37), (9, 1.13)];
    let of = |nodes| move |(times, published)| (nodes, times, published);
    for (nodes, times, published) in six.map(of(6)).into_iter().chain(eleven.map(of(11))) {
        let pairs = 8 * (nodes - 1) * times;
        let simulated = swarm_reads(nodes, times, 32);
        table.compare(format!("{pairs} queue pairs"), published, simulated);
    }
}

#[test]
fn reads_asked_for_and_answered_against_size() {
    let mut table = Table::new("READs of 40 queue pairs, M/s of each node (rdma_bench)");
    for (bytes, published) in [
        (8, 11.07),
        (200, 9.99),
        (232, 9.71),
        (264, 6.95),
        (296, 6.77),
        (392, 6.42),
    ] {
        table.compare(
            format!("{bytes} bytes"),
            published,
            swarm_reads(6, 1, bytes),
        );
    }
}

#[test]
fn reads_one_way() {
    let mut table = Table::new("READs, M/s");
    let (out, come) = (
        |bytes| outbound(Verb::Read(bytes), ReliableConnection, 16, 16),
        |bytes| inbound(Verb::Read(bytes), ReliableConnection, 64, 16),
    );
    table.compare("asked for (HERD)", 22.0, out(32));
    table.compare("answered (HERD)", 26.0, come(32));
    let bits = come(256) * 256.0 * 8.0 / 1000.0;
    table.compare("256 bytes, Gb/s (ATC)", 56.0, bits);
}

#[test]
fn writes_against_queue_pairs() {
    let mut table = Table::new("WRITEs of 32 bytes, M/s (HERD; the last ScaleRPC)");
    // HERD does not say how many are outstanding: as many of each thread as in rdma_bench, assumed.
    let out = |pairs| outbound(Verb::Write(32), UnreliableConnection, pairs, 16);
    table.compare("out, 16 queue pairs", 34.0, out(16));
    table.compare("out, 256", 7.1, out(256));
    let come = |pairs| inbound(Verb::Write(32), UnreliableConnection, pairs, 16);
    table.compare("in, 16", 35.0, come(16));
    table.compare("in, 256", 35.0, come(256));
    // A queue pair seldom has two of them, so that each pays for its context.
    let few = outbound(Verb::Write(32), ReliableConnection, 800, 4);
    table.compare("out, 800, few at a time", 2.0, few);
}

#[test]
fn datagrams() {
    let mut table = Table::new("Datagrams of 32 bytes, M/s");
    // As many answers HERD's server sends while requests come in: alone it may send more.
    let out = outbound(Verb::Send(32), UnreliableDatagram, 16, 64);
    table.within("out (HERD)", 26.0, out, 0.35);
    let come = inbound(Verb::Send(32), UnreliableDatagram, 64, 8);
    table.compare("in (ATC)", 22.0, come);
}

#[test]
fn edr_asked_for_and_answered() {
    let mut table = Table::new("EDR, 70 queue pairs, M/s of each node (rdma_bench)");
    let all = [
        (Verb::Read(32), ReliableConnection, 50.3),
        (Verb::Write(16), UnreliableConnection, 99.0),
        (Verb::Write(32), ReliableConnection, 52.0),
    ];
    for (verb, transport, published) in all {
        let load = Load {
            verb,
            transport,
            window: 24,
        };
        let simulated = swarm(Parameters::edr(), [6, 14, 1], load);
        table.compare(format!("{verb:?}"), published, simulated);
    }
}

#[test]
fn latencies() {
    let mut table = Table::new("Between two idle nodes, µs (perftest)");
    let write = round_trip(Verb::Write(8)) / 2.0;
    table.compare("WRITE, one way", 0.935, write);
    table.compare("READ and its answer", 1.89, round_trip(Verb::Read(8)));
}
