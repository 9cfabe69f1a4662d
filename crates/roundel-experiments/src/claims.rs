//! What the papers claim: one row for each claim, or for each part of it that is judged by itself.
//!
//! A scorecard judges rows by simulation, an experiment by what it measured. Both tell them in these words and by these
//! numbers. This knows nothing of how a row is judged.

use serde::{Deserialize, Serialize};
use strum::Display;

/// What a simulation says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Serialize, Deserialize)]
pub enum Test {
    /// All of it.
    #[serde(rename = "Y")]
    #[strum(to_string = "Y")]
    Fully,
    /// It depends on a cost of the host, which comes from elsewhere.
    #[serde(rename = "P")]
    #[strum(to_string = "P")]
    Partly,
    /// Nothing: only experiments judge it.
    #[serde(rename = "N")]
    #[strum(to_string = "N")]
    Not,
    /// It is a number of things, or a product of what the hardware has: no time decides it.
    #[serde(rename = "C")]
    #[strum(to_string = "C")]
    Counted,
    /// It follows from a number that was put in. It is shown, and not judged.
    #[serde(rename = "G")]
    #[strum(to_string = "G")]
    Given,
}

/// A claim of a paper, or a part of one.
pub(crate) struct Claim {
    /// Its name: `SH15`, and `SH15a` for a part.
    pub id: &'static str,
    /// How much of it a simulation tests.
    pub test: Test,
    /// What the paper saw.
    pub says: &'static str,
    /// How many times as fast something is; 1 where the claim is not that.
    pub times: f64,
}

/// The claim of this name.
///
/// # Panics
/// When no row has it: tests judge all rows and experiments.
pub(crate) fn claim(id: &str) -> &'static Claim {
    let row = CLAIMS.iter().find(|claim| claim.id == id);
    row.unwrap_or_else(|| panic!("no row of the table of claims is {id}"))
}

/// Those that nobody looks at while the simulator gains a mechanism: a fifth of the claims of each paper, drawn from
/// a seed on 28 November 2026, before the NIC had translations of addresses. Whoever adds one runs `scorecard --only open`
/// until its constants are frozen.
const HELD_OUT: &[&str] = &[
    "SH07", "SH08", "SH18", "SH19", "SH20", "SH24", "SH27", "CJ05", "CJ10", "MP08", "MP09", "MP16",
    "HY01",
];

/// Whether a claim, or the one that this is a part of, is held out.
pub(crate) fn is_held_out(id: &str) -> bool {
    HELD_OUT.contains(&claim_of(id))
}

/// The whole claim of a part: `SH15` of `SH15a`.
pub(crate) fn claim_of(part: &str) -> &str {
    part.trim_end_matches(|letter: char| letter.is_ascii_lowercase())
}

const fn fully(id: &'static str, says: &'static str) -> Claim {
    Claim {
        id,
        test: Test::Fully,
        says,
        times: 1.0,
    }
}

const fn partly(id: &'static str, says: &'static str) -> Claim {
    Claim {
        test: Test::Partly,
        ..fully(id, says)
    }
}

/// A claim that is counted, and takes no time to be run.
const fn counted(id: &'static str, says: &'static str) -> Claim {
    Claim {
        test: Test::Counted,
        ..fully(id, says)
    }
}

/// A claim that follows from the rates that are put in.
const fn given(id: &'static str, says: &'static str) -> Claim {
    Claim {
        test: Test::Given,
        ..fully(id, says)
    }
}

/// A claim that only experiments judge.
const fn measured(id: &'static str, says: &'static str) -> Claim {
    Claim {
        test: Test::Not,
        ..fully(id, says)
    }
}

impl Claim {
    const fn times(self, times: f64) -> Self {
        Self { times, ..self }
    }
}

/// All claims, by paper and by name.
pub(crate) const CLAIMS: &[Claim] = &[
    // Liu et al. 2019.
    fully("SH01a", "How often credit is written back, every 1 to 16 receives, has very little effect on throughput"),
    fully("SH01b", "Throughput with flow control is near that of qperf"),
    fully("SH02", "The time to update credit is negligible, except for MESQ/SR that does it for every message"),
    fully("SH03", "Writes of credit stay far below what a queue pair can write, even one for every message"),
    measured("SH04", "Registered memory grows in proportion to the receives for each credit"),
    fully("SH05a", "The time that a sender is blocked for credit does not depend on how often credit is written"),
    fully("SH05b", "The time that a sender is blocked for credit is comparable between algorithms"),
    partly("SH06", "With a polled completion queue all communication is overlapped from 3.5 µs for 32 KiB on"),
    partly("SH07", "A polled completion queue is up to 1.5 times as fast as the other notifications when computing").times(1.5),
    fully("SH08", "With polled buffers a buffer is returned about 0.5 ms later than with the other two notifications"),
    measured("SH09", "A message takes 2.5, 3 and 2 WRITEs"),
    fully("SH10a", "Designs of one endpoint underuse the network with messages of up to 16 KiB"),
    fully("SH10b", "Their throughput rises with the size, and drops slightly after its peak"),
    fully("SH11", "Designs of an endpoint for each thread stay near their peak from 4 KiB to 1 MiB"),
    measured("SH12", "Messages of 1 MiB take more than 100 MiB for each operator"),
    measured("SH13", "Repartitioning is close to what limits it"),
    fully("SH13a", "Repartitioning is close to the line rate on FDR"),
    fully("SH13b", "Repartitioning is close to the line rate on EDR"),
    partly("SH14", "MESQ/SR is up to 2 times as fast as MPI, repartition, 16 nodes on EDR").times(2.0),
    partly("SH15", "MESQ/SR is up to 3 times as fast as IPoIB, repartition, 8 nodes on FDR").times(3.0),
    measured("SH16", "MESQ/SR keeps its throughput as nodes are added"),
    fully("SH16a", "On FDR all designs are alike in small clusters"),
    fully("SH16b", "On FDR the designs over connections degrade towards 16 nodes"),
    fully("SH16c", "On FDR MESQ/SR does not degrade towards 16 nodes"),
    fully("SH17", "On FDR with 16 nodes MESQ/SR is faster than qperf, which needs connections"),
    fully("SH18", "On EDR MQ/SR and MQ/WR do not degrade up to 16 nodes"),
    fully("SH19", "In larger clusters the same degradation is to be expected on EDR"),
    partly("SH20", "SEMQ/SR is up to 4 times as fast as MPI, broadcast, 16 nodes on EDR").times(4.0),
    partly("SH21", "MESQ/SR is up to 3 times as fast as IPoIB, broadcast, 16 nodes on FDR").times(3.0),
    fully("SH22a", "MEMQ/RD degrades strongly in broadcast, and not in repartition"),
    fully("SH22b", "SEMQ/RD degrades strongly in broadcast, and not in repartition"),
    partly("SH23", "IPoIB spends about two thirds of its cycles in sending and receiving, 8 nodes on EDR"),
    fully("SH24", "SESQ/SR is limited by threads that contend for posting"),
    partly("SH25a", "The best designs leave senders idle for about 30 % of the time"),
    partly("SH25b", "Receivers are idle for up to 90 % of the time"),
    fully("SH26a", "MEMQ/SR and MESQ/SR are blocked for credit"),
    fully("SH26b", "The other designs are blocked on the completion of what they have posted"),
    fully("SH27a", "MESQ/SR has more throughput than the designs over connections, 16 nodes on EDR"),
    counted("SH27b", "A node needs n·t queue pairs with MEMQ, n with SEMQ, t with MESQ, and one with SESQ"),
    partly("SH28", "Set-up time is linear in the nodes with MQ and flat with SQ, and ME takes longer than SE"),
    partly("SH29", "MESQ/SR is set up in about 40 ms or less, for any number of nodes"),
    measured("SH30", "MESQ/SR that connects for 250 MB is done before IPoIB and MPI alone"),
    fully("SH30a", "From 250 MB on, connecting first and then shuffling with MESQ/SR is faster than IPoIB alone"),
    fully("SH30b", "From 250 MB on, connecting first and then shuffling with MESQ/SR is faster than MPI alone"),
    fully("SH31a", "With minimal work a shuffle has about 11 GiB/s"),
    partly("SH31b", "With minimal work a shuffle has about 20 % of the 50 GiB/s of local processing"),
    fully("SH32", "MQ/SR, MQ/WR and MESQ/SR reach local processing with less work than MQ/RD"),
    measured("SH33", "IPoIB and MPI never overlap communication and computation fully"),
    partly("SH33a", "IPoIB never overlaps communication fully"),
    partly("SH33b", "MPI never overlaps communication fully"),
    measured("SH34", "All designs but SESQ/SR beat IPoIB and MPI, whatever the work"),
    fully("SH34a", "All designs but SESQ/SR beat IPoIB, whatever the work"),
    fully("SH34b", "All designs but SESQ/SR beat MPI, whatever the work"),
    counted("SH35a", "The bandwidth-delay product of EDR is 44 datagrams"),
    fully("SH35b", "As many buffers as the bandwidth-delay product has do not reach the peak"),
    fully("SH36a", "Adaptive buffers are fewer when a tuple takes 95 cycles than when it takes 21"),
    fully("SH36b", "Adaptive buffers are never worse than the best fixed number"),
    fully("SH36c", "Adaptive buffers are better than any fixed number when tuples take long"),
    measured("SH36d", "With consumers that change, adaptive buffers are as good as the best fixed number"),
    measured("SH36e", "Registered memory falls when consumers become slow"),
    fully("SH37a", "With 21 and 95 cycles on two nodes adaptive buffers are fewer on the slower one"),
    fully("SH37b", "Any fixed depth is suboptimal for one of two such nodes"),
    measured("SH37c", "With skew adaptive buffers are as good as the best fixed number"),
    partly("SH38a", "Query 4 takes about as long with MESQ/SR as over local data, 8 nodes"),
    partly("SH38b", "From FDR to EDR query 4 gains about 50 % with MESQ/SR, 8 nodes"),
    partly("SH38c", "From FDR to EDR query 4 gains about 30 % with MPI, 8 nodes"),
    measured(
        "SH39",
        "Queries are as fast with MESQ/SR as with MPI on 2 nodes, and faster on more",
    ),
    partly("SH39a", "With 16 nodes query 4 is 70 % faster with MESQ/SR than with MPI"),
    partly("SH39b", "With 16 nodes query 3 is 55 % faster with MESQ/SR than with MPI"),
    partly("SH39c", "With 16 nodes query 10 is 100 % faster with MESQ/SR than with MPI"),
    partly("SH39d", "With 2 nodes queries 3 and 4 take as long with MESQ/SR as with MPI"),
    partly("SH40", "MPI is poor with many threads, and near the line rate with many processes"),
    // Frey et al. 2010.
    fully("CJ01a", "RDMA at 10 Gb/s has all of the link only with messages of about 4 kB and more"),
    fully("CJ01b", "With the application, larger units are needed than that"),
    fully("CJ01c", "With the application, the link is saturated from units of about 1 MB on"),
    given("CJ02", "Setting up a hash join takes 16.2 s on one host and 2.7 s on six"),
    given("CJ03a", "The join phase of a hash join takes as long on any number of hosts"),
    fully("CJ03b", "A hash join hides the network in full"),
    given("CJ04a", "As each host adds 3.2 GB, set-up of a hash join takes as long as before"),
    given("CJ04b", "As each host adds 3.2 GB, the join phase grows as the relation that spins"),
    given("CJ05a", "With 19.2 GB on six hosts, merging and waiting are 1.8 times as fast as joining by hashes"),
    fully("CJ05b", "With 19.2 GB on six hosts, a sort-merge join waits for 2.3 s"),
    fully("CJ05c", "Hosts wait for the ring with a sort-merge join only"),
    fully("CJ06", "A link carries 1.1 GB/s in a sort-merge join, of 1.25"),
    partly("CJ07a", "With a Zipf factor of 0.9 a ring of six hosts joins five times as fast as one host"),
    partly("CJ07b", "With uniform keys a ring joins no faster than one host"),
    fully("CJ08a", "Buffers balance the speeds of hosts: one that is held up does not slow down the others"),
    fully("CJ08b", "Where a host stands still, its follower waits only once its buffers are empty"),
    measured("CJ09", "RDMA is faster than TCP, most so with all threads"),
    partly("CJ09a", "RDMA is faster than TCP with 1, 2, 3 and 4 threads that join"),
    partly("CJ09b", "RDMA is ahead of TCP by most with 4 threads that join"),
    partly("CJ09c", "TCP does not hide waiting for the ring, and RDMA does"),
    partly("CJ10a", "TCP loads the cores of a host by 31, 59, 84 and 86 % with 1 to 4 threads that join"),
    given("CJ10b", "RDMA loads the cores of a host by 25, 50, 76 and 100 % with 1 to 4 threads that join"),
    partly("CJ11", "From about 30 hosts on, with 100 GB, a sort-merge join is faster than a hash join"),
    // Huang, Ghandeharizadeh 2019.
    fully("MP01a", "In M:1 READ is best, of all that was tried"),
    fully("MP01b", "In 1:M a protocol is best that writes"),
    fully("MP01c", "In M:M READ is best, of all that was tried"),
    fully("MP01d", "The best of M:1 is 42 Gb/s, which is three times the best of 1:M, 14 Gb/s"),
    fully("MP02a", "With 16 calls pending READ has all it gets: 43 Gb/s"),
    fully("MP02b", "With 16 calls pending READ has 2 to 6 times as much as others"),
    fully("MP03a", "Requests by WRITE: no more from 128 calls pending on, 28 Gb/s"),
    fully("MP03b", "Requests by SEND are slower: 24 and 22 Gb/s with 256 calls pending"),
    fully("MP03c", "It hardly matters which verb responses go by"),
    fully("MP04a", "READ is first with any number of threads, most with one: 40 Gb/s"),
    fully("MP04b", "Requests by WRITE are second, and most with one thread: 33 Gb/s"),
    fully("MP04c", "All fall with more threads, requests by SEND most"),
    fully("MP05a", "With one node that asks all are similar: 20 Gb/s"),
    fully("MP05b", "READ is first with any number of nodes, and stays at 36 Gb/s from 8 on"),
    fully("MP05c", "Requests by WRITE stay at 30 Gb/s from 4 nodes on"),
    fully("MP05d", "Requests by SEND have 28 Gb/s with 4 nodes, and fall to 19 with 28"),
    fully("MP06a", "With 4 calls pending READ has its most from 4 KB on: 52 Gb/s"),
    fully("MP06b", "With 4 calls pending others have their most from 8 KB on: 47 Gb/s"),
    fully("MP06c", "READ is first with values of any size"),
    fully("MP06d", "128 calls pending instead of 4 give READ 14 Gb/s more with 365 bytes"),
    fully("MP06e", "128 calls pending instead of 4 take 5 Gb/s from READ with 1 KB"),
    fully("MP06f", "Above 4 KB READ has as much with 128 calls pending as with 4"),
    fully("MP07a", "READ has most with one call pending, 4.2 Gb/s, and 2 from 16 on"),
    fully("MP07b", "READ is last from 16 calls pending on"),
    fully("MP07c", "Responses by WRITE reach 14 Gb/s, and by SEND 11"),
    fully("MP07d", "It does not matter which verb requests go by"),
    fully("MP08a", "READ falls from 11 Gb/s with one thread to 2 with 16"),
    fully("MP08b", "Responses by WRITE reach 13.8 Gb/s, and by SEND 11"),
    fully("MP08c", "READ is last with 2 threads and more"),
    fully("MP09a", "READ falls from 17 Gb/s with one node that is asked to 2 with 28"),
    fully("MP09b", "Responses by WRITE reach 16 Gb/s, and by SEND 15"),
    fully("MP09c", "It does not matter which verb requests go by, with any number of nodes"),
    fully("MP10a", "Responses by WRITE have most from 16 KB on, 49 Gb/s, and by SEND 42"),
    fully("MP10b", "READ is behind others until values have 64 KB and 128 calls are pending"),
    fully("MP10c", "With 4 calls pending responses by WRITE are first with values of any size"),
    fully("MP11a", "READ has most with 8 calls pending, 13.5 Gb/s, twice as much as others"),
    fully("MP11b", "READ falls after that, and stays at 10 Gb/s from 32 on"),
    fully("MP11c", "SEND/SEND is first of the others, and has its most with 64: 9 Gb/s"),
    fully("MP11d", "The others stay at 7 Gb/s from 8 on"),
    fully("MP12a", "READ falls from 10 Gb/s with one thread to 1 with 8"),
    fully("MP12b", "READ is first with one thread, and last with 2 and more"),
    fully("MP12c", "With 2 threads WRITE/WRITE has the most of all: 11 Gb/s"),
    fully("MP13a", "Each node has less with more nodes, by all protocols"),
    fully("MP13b", "READ is first with any number of nodes, and the others are comparable"),
    fully("MP13c", "With 28 nodes each protocol has less of what is ideal than with 4, but READ in M:1"),
    fully("MP14a", "With 4 calls pending READ has its most with 4 KB: 25 Gb/s"),
    fully("MP14b", "With 4 calls pending WRITE/WRITE has 17 Gb/s with 1 KB and 26 with 4 KB"),
    fully("MP14c", "With 4 calls pending SEND/SEND is last with values of any size"),
    fully("MP14d", "With 128 calls pending READ is first with 365 bytes, and last from 1 KB on"),
    fully("MP14e", "With 128 calls pending all are alike from 8 KB on"),
    fully("MP14f", "With 128 calls pending the others are alike with values of any size"),
    fully("MP15a", "M:1, READ: 35 Gb/s with 365 bytes, 50 with 4 KB"),
    fully("MP15b", "1:M, READ: 2 Gb/s with 365 bytes, 16 with 4 KB"),
    fully("MP15c", "M:M, READ: 10 Gb/s with 365 bytes, 20 with 4 KB"),
    fully("MP16a", "With 8 threads all but READ have more than with one in 1:M, though not eight times as much"),
    fully("MP16b", "With 8 threads READ has less than with one in all paradigms"),
    // Rödiger et al. 2015.
    fully("HY01", "A schedule of round robin makes all to all up to 40 % faster"),
    counted("HY02", "A schedule without conflicts has n − 1 phases: 3 for 4 servers"),
    partly("HY03a", "More bandwidth alone is not enough: TCP leaves it unused, multiplexers over RDMA do not"),
    partly("HY03b", "For the queries of TPC-H, too, more bandwidth alone is not enough"),
    counted("HY04a", "In a classic exchange each unit has n·t − 1 connections for an operator; a multiplexer connects servers only"),
    fully("HY04b", "A slow thread holds up a classic exchange, and no multiplexer"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::seq::IndexedRandom as _;
    use rand_chacha::ChaCha8Rng;
    use std::collections::{BTreeSet, HashSet};

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = CLAIMS.iter().map(|claim| claim.id).collect();
        assert_eq!(names.len(), CLAIMS.len());
    }

    #[test]
    fn those_held_out_were_drawn() {
        const SEED: u64 = 20_261_128;
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut drawn = Vec::new();
        for paper in ["SH", "CJ", "MP", "HY"] {
            let simulated = CLAIMS.iter().filter(|claim| {
                claim.id.starts_with(paper) && matches!(claim.test, Test::Fully | Test::Partly)
            });
            let all: BTreeSet<_> = simulated.map(|claim| claim_of(claim.id)).collect();
            let all: Vec<_> = all.into_iter().collect();
            let mut some: Vec<_> = all
                .choose_multiple(&mut random, (all.len() + 2) / 5)
                .collect();
            some.sort_unstable();
            drawn.extend(some.into_iter().copied());
        }
        assert_eq!(drawn, HELD_OUT);
    }
}
