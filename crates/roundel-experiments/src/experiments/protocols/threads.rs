//! Bandwidth by the number of threads of a node.

use super::super::{Experiment, Options};
use super::{Plot, plan, tell};
use crate::conversation::{FIG_10B, FIG_12B, FIG_14B};

pub const EXPERIMENT: Experiment = Experiment {
    name: "protocols-threads",
    title: "Message passing protocols by the number of threads",
    figures: &[
        "Huang, Ghandeharizadeh 10b",
        "Huang, Ghandeharizadeh 12b",
        "Huang, Ghandeharizadeh 14b",
    ],
    simulated: true,
    on_devices: false,
    hardware: "fdr",
    plan: |options: &Options| plan(options, PLOTS.iter().map(|plot| plot.sweep)),
    tell: |results| tell(results, &PLOTS),
};

const PLOTS: [Plot; 3] = [
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
