//! Bandwidth by the number of calls pending on each connection.

use super::super::{Experiment, Options};
use super::{Plot, plan, tell};
use crate::conversation::{FIG_10A, FIG_12A, FIG_14A};

pub const EXPERIMENT: Experiment = Experiment {
    name: "protocols-pending",
    title: "Message passing protocols by the number of pending calls",
    figures: &[
        "Huang, Ghandeharizadeh 10a",
        "Huang, Ghandeharizadeh 12a",
        "Huang, Ghandeharizadeh 14a",
    ],
    simulated: true,
    on_devices: false,
    hardware: "fdr",
    plan: |options: &Options| plan(options, PLOTS.iter().map(|plot| plot.sweep)),
    tell: |results| tell(results, &PLOTS),
};

const PLOTS: [Plot; 3] = [
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
