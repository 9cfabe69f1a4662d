//! Figures of bandwidth by pending calls, threads, nodes and the size of values: each with its sweeps of the paper.

use super::super::Experiment;
use super::{Plot, plan, simulated, tell};
use crate::conversation::{
    FIG_10A, FIG_10B, FIG_10C, FIG_11, FIG_12A, FIG_12B, FIG_12C, FIG_13, FIG_14A, FIG_14B,
    FIG_14C, FIG_15, Sweep,
};

pub const PENDING: Experiment = simulated(
    "protocols-pending",
    "Message passing protocols by the number of pending calls",
    &["10a", "12a", "14a"],
    |options| plan(options, sweeps(&OF_PENDING)),
    |results| tell(results, &OF_PENDING),
);

pub const THREADS: Experiment = simulated(
    "protocols-threads",
    "Message passing protocols by the number of threads",
    &["10b", "12b", "14b"],
    |options| plan(options, sweeps(&OF_THREADS)),
    |results| tell(results, &OF_THREADS),
);

pub const NODES: Experiment = simulated(
    "protocols-nodes",
    "Message passing protocols by the number of nodes",
    &["10c", "12c", "14c"],
    |options| plan(options, sweeps(&OF_NODES)),
    |results| tell(results, &OF_NODES),
);

pub const VALUES: Experiment = simulated(
    "protocols-values",
    "Message passing protocols by the size of values",
    &["11", "13", "15"],
    |options| plan(options, sweeps(&OF_VALUES)),
    |results| tell(results, &OF_VALUES),
);

fn sweeps(plots: &'static [Plot]) -> impl Iterator<Item = &'static Sweep> {
    plots.iter().map(|plot| plot.sweep)
}

const OF_PENDING: [Plot; 3] = [
    Plot {
        id: "protocols-fig10a",
        title: "M:1, pending calls: 28 nodes of 16 threads ask one",
        place: "Figure 10a, section 4.1.1",
        paper_saw: "READ has 43 Gb/s with 16 calls pending, 2 to 6 times as much as the others. Requests by WRITE come to 28 \
                    Gb/s with 128, and by SEND to 24 and 22 with 256.",
        sweep: &FIG_10A,
        claims: &["MP02", "MP03"],
    },
    Plot {
        id: "protocols-fig12a",
        title: "1:M, pending calls: one node of 16 threads asks 28",
        place: "Figure 12a, section 4.2.1",
        paper_saw: "READ has 4.2 Gb/s with one call pending, and 2 with 16 and more. Responses by WRITE come to 14 Gb/s, and by \
                    SEND to 11.",
        sweep: &FIG_12A,
        claims: &["MP07"],
    },
    Plot {
        id: "protocols-fig14a",
        title: "M:M, pending calls: 28 nodes of one thread ask each other; bandwidth of a node",
        place: "Figure 14a, section 4.3.1",
        paper_saw: "READ has 13.5 Gb/s with 8 calls pending, twice as much as the others, and 10 with 32 and more. SEND/SEND \
                    comes to 9 Gb/s with 64, and the rest stay at 7 from 8 on.",
        sweep: &FIG_14A,
        claims: &["MP11"],
    },
];

const OF_THREADS: [Plot; 3] = [
    Plot {
        id: "protocols-fig10b",
        title: "M:1, threads: 28 nodes ask one, 128 calls pending",
        place: "Figure 10b, section 4.1.2",
        paper_saw: "READ is first with any number of threads, and has most with one: 40 Gb/s. Requests by WRITE have 33 with one. \
                    All fall with more threads, and requests by SEND most.",
        sweep: &FIG_10B,
        claims: &["MP04"],
    },
    Plot {
        id: "protocols-fig12b",
        title: "1:M, threads: one node asks 28, 128 calls pending",
        place: "Figure 12b, section 4.2.2",
        paper_saw: "Responses by WRITE come to 13.8 Gb/s, and by SEND to 11. READ falls from 11 Gb/s with one thread to 2 with \
                    16.",
        sweep: &FIG_12B,
        claims: &["MP08"],
    },
    Plot {
        id: "protocols-fig14b",
        title: "M:M, threads: 28 nodes ask each other, 128 calls pending; bandwidth of a node",
        place: "Figure 14b, section 4.3.2",
        paper_saw: "READ falls from 10 Gb/s with one thread to 1 with 8, and is last from 2 on. WRITE/WRITE has 11 with 2, the \
                    most of all.",
        sweep: &FIG_14B,
        claims: &["MP12"],
    },
];

const OF_NODES: [Plot; 3] = [
    Plot {
        id: "protocols-fig10c",
        title: "M:1, nodes: 16 threads each ask one, 128 calls pending",
        place: "Figure 10c, section 4.1.3",
        paper_saw: "With one node all have 20 Gb/s. READ stays at 36 from 8 nodes on, requests by WRITE at 30 from 4 on; those \
                    by SEND have 28 with 4, and fall to 19 with 28.",
        sweep: &FIG_10C,
        claims: &["MP05"],
    },
    Plot {
        id: "protocols-fig12c",
        title: "1:M, nodes: one node of 16 threads asks them, 128 calls pending",
        place: "Figure 12c, section 4.2.3",
        paper_saw: "READ falls from 17 Gb/s with one node to 2 with 28. Responses by WRITE come to 16, and by SEND to 15.",
        sweep: &FIG_12C,
        claims: &["MP09"],
    },
    Plot {
        id: "protocols-fig14c",
        title: "M:M, nodes: one thread each, 128 calls pending; bandwidth of a node",
        place: "Figure 14c, section 4.3.3",
        paper_saw: "All fall with more nodes. READ is first, and the others are comparable.",
        sweep: &FIG_14C,
        claims: &["MP13a", "MP13b"],
    },
];

const M1: &str = "READ has 52 Gb/s from 4 KB on with 4 calls pending, and others 47 from 8 KB on. 128 give READ 14 Gb/s more \
                  with 365 bytes, take 5 with 1 KB, and do not matter above 4 KB.";
const ONE_M: &str = "From 16 KB on responses by WRITE have 49 Gb/s, and by SEND 42. READ is behind until values have 64 KB and 128 \
                     calls are pending.";
const MM: &str = "With 4 calls pending READ has 25 Gb/s with 4 KB, WRITE/WRITE 17 with 1 KB and 26 with 4 KB, and SEND/SEND is \
                  last. With 128 READ is first with 365 bytes and last from 1 KB on; from 8 KB on all are alike.";

const OF_VALUES: [Plot; 6] = [
    Plot {
        id: "protocols-fig11-4",
        title: "M:1, values, 4 calls pending: 28 nodes of 16 threads ask one",
        place: "Figure 11, section 4.1.4",
        paper_saw: M1,
        sweep: &FIG_11[0],
        claims: &[],
    },
    Plot {
        id: "protocols-fig11-128",
        title: "M:1, values, 128 calls pending: 28 nodes of 16 threads ask one",
        place: "Figure 11, section 4.1.4",
        paper_saw: M1,
        sweep: &FIG_11[1],
        claims: &["MP06"],
    },
    Plot {
        id: "protocols-fig13-4",
        title: "1:M, values, 4 calls pending: one node of 16 threads asks 28",
        place: "Figure 13, section 4.2.4",
        paper_saw: ONE_M,
        sweep: &FIG_13[0],
        claims: &[],
    },
    Plot {
        id: "protocols-fig13-128",
        title: "1:M, values, 128 calls pending: one node of 16 threads asks 28",
        place: "Figure 13, section 4.2.4",
        paper_saw: ONE_M,
        sweep: &FIG_13[1],
        claims: &["MP10"],
    },
    Plot {
        id: "protocols-fig15-4",
        title: "M:M, values, 4 calls pending: 28 nodes of one thread; bandwidth of a node",
        place: "Figure 15, section 4.3.4",
        paper_saw: MM,
        sweep: &FIG_15[0],
        claims: &[],
    },
    Plot {
        id: "protocols-fig15-128",
        title: "M:M, values, 128 calls pending: 28 nodes of one thread; bandwidth of a node",
        place: "Figure 15, section 4.3.4",
        paper_saw: MM,
        sweep: &FIG_15[1],
        claims: &["MP14"],
    },
];
