//! Bandwidth by the size of values, with few and with many calls pending.

use super::super::{Experiment, Options};
use super::{Plot, plan, tell};
use crate::conversation::{FIG_11, FIG_13, FIG_15};

pub const EXPERIMENT: Experiment = Experiment {
    name: "protocols-values",
    title: "Message passing protocols by the size of values",
    figures: &[
        "Huang, Ghandeharizadeh 11",
        "Huang, Ghandeharizadeh 13",
        "Huang, Ghandeharizadeh 15",
    ],
    simulated: true,
    on_devices: false,
    hardware: "fdr",
    plan: |options: &Options| plan(options, PLOTS.iter().map(|plot| plot.sweep)),
    tell: |results| tell(results, &PLOTS),
};

const M1: &str = "READ has 52 Gb/s from 4 KB on with 4 calls pending, and others 47 from 8 KB on. 128 give READ 14 Gb/s more \
                  with 365 bytes, take 5 with 1 KB, and do not matter above 4 KB.";
const ONE_M: &str = "From 16 KB on responses by WRITE have 49 Gb/s, and by SEND 42. READ is behind until values have 64 KB and 128 \
                     calls are pending.";
const MM: &str = "With 4 calls pending READ has 25 Gb/s with 4 KB, WRITE/WRITE 17 with 1 KB and 26 with 4 KB, and SEND/SEND is \
                  last. With 128 READ is first with 365 bytes and last from 1 KB on; from 8 KB on all are alike.";

const PLOTS: [Plot; 6] = [
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
