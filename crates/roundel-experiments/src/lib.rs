//! The papers' experiments, to be run on one's own machines.
//!
//! ```text
//!   experiments ──settings──► run ──starts──► nodes (processes): workload over a transport
//!        ▲                     │                │
//!        └──────measured───────┘◄───reports─────┘
//!        └──► figures, each beside what the paper saw
//! ```
//!
//! * [`setting`]: what is run, [`fabric`] over what, and [`measured`] what came of it.
//! * [`transport`]: what moves messages: the designs over verbs, and what they are compared with.
//! * [`workload`]: the relation, and the operators over a transport.
//! * [`node`] and [`run`]: the processes.
//! * [`ring`]: joins on rings of hosts, simulated ones and processes.
//! * [`conversation`]: message passing protocols between many simulated nodes.
//! * [`hybrid`]: whole operators over endpoints, through multiplexers, and between units.
//! * `recorded`: what the queries of TPC-H exchange and compute.
//! * [`experiments`]: the catalogue.
//! * `claims`: what the papers claim, for experiments and scorecards.
//! * [`advise`]: which design to use, by what candidates measure.
//! * [`scorecard`]: what simulated hardware says of the claims of a paper.
//! * [`kept`]: points that were measured, so that what was stopped goes on from there.
//! * [`figure`]: what an experiment tells, and [`report`] how it is shown.
//!
//! This crate knows nothing of queries: what it measures of them it has the program `roundel` measure.

pub mod advise;
mod claims;
pub mod clock;
pub mod conversation;
pub mod error;
pub mod experiments;
pub mod fabric;
pub mod figure;
pub mod hybrid;
pub mod kept;
pub mod measured;
mod meeting;
pub mod node;
pub mod outcome;
mod paper;
mod parallel;
mod recorded;
pub mod report;
pub mod ring;
pub mod run;
pub mod scorecard;
pub mod setting;
pub mod transport;
pub mod workload;

pub use error::Error;
pub use experiments::{
    Chosen, Experiment, Failed, Flag, Options, Progress, catalogue, choose as choose_experiments,
    default_fabric, run as run_experiments,
};
pub use fabric::FabricChoice;
pub use measured::Measured;
pub use node::node_main;
pub use run::{Hosts, NodeCommand};
pub use setting::Setting;
