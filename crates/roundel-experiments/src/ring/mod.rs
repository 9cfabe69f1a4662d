//! Cyclo-joins on rings of hosts: how long the phases of a join take (Frey et al. 2010, section V).
//!
//! Between processes they join real rows. On simulated hosts elements go around by the same code, but have lengths only;
//! what joining them costs is charged to the cores of their hosts, by the [`rates`] of the paper's. Knows neither figures
//! nor claims.

mod costs;
mod host;
pub mod keys;
mod process;
pub mod rates;
mod rows;
mod simulation;

use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
pub use keys::Keys;
pub use roundel_ring::cost::Method;
use roundel_ring::roundabout::HOSTS_MAX;
use serde::{Deserialize, Serialize};
pub use simulation::simulate;
use std::fmt;
pub(crate) use {process::measure, rows::verify};

/// Rows of a relation that there can be, and bytes of an element.
const ROWS_MAX: u64 = 1 << 40;
const ELEMENT_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 30;
/// How long a host can stand still.
const STALL_SECONDS: std::ops::RangeInclusive<f64> = 0.0..=1e3;
/// Seconds of waiting that are told one by one.
const WAIT_LEAST: f64 = 1e-4;

/// A join on a ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingJoin {
    /// A device of this host, or simulated hardware.
    pub fabric: FabricChoice,
    /// Hosts of the ring.
    pub hosts: usize,
    /// Threads of each that join.
    pub threads: usize,
    /// What moves elements.
    pub carrier: Carrier,
    /// How a host joins.
    pub method: Method,
    /// Rows of each relation, on all hosts.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// What they are joined by.
    pub keys: Keys,
    /// Says which hashes frequent keys have.
    pub seed: u64,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Hosts that stand still for a while.
    pub stalls: Vec<Stall>,
}

/// What moves elements between hosts (section V-G).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrier {
    /// NICs, by themselves.
    Rdma,
    /// The kernels of both hosts: a thread that receives and one that transmits.
    Tcp,
}

/// A host that does nothing for a while before it joins an element.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Which host.
    pub host: usize,
    /// How many elements it joins before.
    pub after: u64,
    /// For how long.
    pub seconds: f64,
}

/// Where the time of a host went, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostPhases {
    /// Setting up its rows of both relations.
    pub set_up: f64,
    /// Joining.
    pub join: f64,
    /// Waiting for elements.
    pub synchronisation: f64,
    /// What all its cores worked while it joined and waited, where it is simulated.
    pub worked: f64,
    /// Bytes of elements that came from its predecessor.
    pub bytes: u64,
    /// Elements that it joined.
    pub elements: u64,
    /// Pairs that it found, where it has rows.
    pub pairs: u64,
    /// Where it is simulated: when it waited for 0.1 ms and more, and when it stood still, since its relations were set up.
    pub waits: Vec<f64>,
    /// See [`waits`](Self::waits).
    pub stalls: Vec<f64>,
}

/// What a join took, by host.
#[derive(Clone, Debug, PartialEq)]
pub struct RingMeasured {
    /// In the order of the ring.
    pub hosts: Vec<HostPhases>,
}

impl RingJoin {
    /// A join of the paper: uniform keys, as many rows on each of its hosts as there were, over RDMA.
    pub fn new(fabric: FabricChoice, method: Method, hosts: usize) -> Self {
        Self {
            fabric,
            hosts,
            threads: rates::CORES,
            carrier: Carrier::Rdma,
            method,
            rows: rates::ROWS_OF_HOST * hosts as u64,
            row_bytes: rates::ROW_BYTES,
            keys: Keys::Uniform,
            seed: 1,
            element_bytes: roundel_ring::RingOptions::default().element_bytes,
            stalls: Vec::new(),
        }
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<()> {
        let wrong = if !(1..=HOSTS_MAX).contains(&self.hosts) {
            format!("{} hosts; there can be 1 to {HOSTS_MAX}", self.hosts)
        } else if !(1..=rates::CORES).contains(&self.threads) {
            format!(
                "{} threads; hosts have {} cores",
                self.threads,
                rates::CORES
            )
        } else if !(self.hosts as u64..=ROWS_MAX).contains(&self.rows) {
            format!(
                "{} rows; each host has one, and all have 2^40 at most",
                self.rows
            )
        } else if !ELEMENT_BYTES.contains(&self.element_bytes) {
            "elements have 1 KiB to 1 GiB".into()
        } else if !(8..=512).contains(&self.row_bytes) {
            format!("rows of {} bytes; 8 to 512", self.row_bytes)
        } else if self.method == Method::NestedLoops {
            "the paper does not say what nested loops cost".into()
        } else if matches!(self.keys, Keys::Zipf(exponent) if !(0.0..=1.0).contains(&exponent)) {
            "keys are skewed by 0 to 1".into()
        } else if self
            .stalls
            .iter()
            .any(|stall| !STALL_SECONDS.contains(&stall.seconds))
        {
            "a host stands still for 0 to 1000 s".into()
        } else if !self.fabric.is_simulated() {
            return rows::check(self);
        } else {
            return Ok(());
        };
        Err(Error::Setting(wrong))
    }
}

impl RingMeasured {
    /// Seconds until all relations are set up.
    pub fn set_up(&self) -> f64 {
        self.hosts
            .iter()
            .map(|host| host.set_up)
            .fold(0.0, f64::max)
    }

    /// Seconds that a host joins.
    pub fn join(&self) -> f64 {
        self.mean(|host| host.join)
    }

    /// Seconds that a host waits.
    pub fn synchronisation(&self) -> f64 {
        self.mean(|host| host.synchronisation)
    }

    /// Seconds of both.
    pub fn after_set_up(&self) -> f64 {
        self.mean(|host| host.join + host.synchronisation)
    }

    /// Seconds of all phases.
    pub fn total(&self) -> f64 {
        self.set_up() + self.after_set_up()
    }

    /// The share of its cores' time in which a host works after set-up.
    pub fn load(&self) -> f64 {
        let worked = self.mean(|host| host.worked);
        worked / (self.after_set_up() * rates::CORES as f64)
    }

    /// Bytes per second of a link after set-up.
    pub fn link_rate(&self) -> f64 {
        self.mean(|host| host.bytes as f64) / self.after_set_up()
    }

    fn mean(&self, of: impl Fn(&HostPhases) -> f64) -> f64 {
        self.hosts.iter().map(of).sum::<f64>() / self.hosts.len().max(1) as f64
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "RDMA",
            Self::Tcp => "TCP",
        })
    }
}
