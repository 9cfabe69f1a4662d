//! Bandwidth by the number of nodes.

use super::super::{Experiment, Options};
use super::{Plot, plan, tell};
use crate::conversation::{FIG_10C, FIG_12C, FIG_14C};

pub const EXPERIMENT: Experiment = Experiment {
    name: "protocols-nodes",
    title: "Message passing protocols by the number of nodes",
    figures: &[
        "Huang, Ghandeharizadeh 10c",
        "Huang, Ghandeharizadeh 12c",
        "Huang, Ghandeharizadeh 14c",
    ],
    simulated: true,
    on_devices: false,
    hardware: "fdr",
    plan: |options: &Options| plan(options, PLOTS.iter().map(|plot| plot.sweep)),
    tell: |results| tell(results, &PLOTS),
};

const PLOTS: [Plot; 3] = [
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
