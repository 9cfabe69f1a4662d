//! Cyclo-joins on rings of hosts: how long the phases of a join take (Frey et al. 2010, section V); and the same joins
//! where rows are sent to who needs them.
//!
//! Between processes they join real rows. On simulated hosts elements go around by the same code, but have lengths only;
//! what joining them costs is charged to the cores of their hosts, by the [`rates`] of the paper's. Knows neither figures
//! nor claims.

mod costs;
mod exchange;
mod host;
mod joins;
pub mod keys;
mod process;
pub mod rates;
mod rows;
mod simulation;

use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
pub(crate) use joins::{FULL, SIZES, by_element, carried, large, raw, skewed};
use keys::Distribution;
pub use keys::Keys;
pub use roundel_ring::cost::{Method, Way};
use roundel_ring::cost::{Shape, Size};
use roundel_ring::roundabout::HOSTS_MAX;
use serde::{Deserialize, Serialize};
use strum::Display;
pub(crate) use {process::measure, rows::verify};

/// Rows of a relation that there can be, and bytes of an element.
const ROWS_MAX: u64 = 1 << 40;
const ELEMENT_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 30;
/// How long a host can stand still.
const STALL_SECONDS: std::ops::RangeInclusive<f64> = 0.0..=1e3;
/// Seconds of waiting that are told one by one.
const WAIT_LEAST: f64 = 1e-4;

/// A join on a ring, or on hosts that send rows to each other.
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
    /// How hosts get each other's rows.
    pub way: Way,
    /// What runs on simulated hosts.
    pub program: Program,
    /// How a host of a ring joins.
    pub method: Method,
    /// Rows of both relations.
    pub rows: RelationRows,
    /// Of the pairs that are found, the share that matches a predicate, where they are tested against one.
    pub predicate: Option<f64>,
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

/// Rows of the relations of a join, on all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelationRows {
    /// Of the one that spins, or of which tables are built.
    pub spinning: u64,
    /// Of the other one.
    pub stationary: u64,
}

/// What runs on simulated hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// The paper's: a thread sets up each relation, and elements are sent as they lie in memory.
    Paper,
    /// Roundel's: all threads set both up, and what is sent is made of rows, and rows of it.
    Roundel,
}

/// What moves elements between hosts (section V-G).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Carrier {
    /// NICs, by themselves.
    Rdma,
    /// The kernels of both hosts: a thread that receives and one that transmits.
    Tcp,
}

/// A host that does nothing for a while before it joins an element.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// The host, by its place in the ring.
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
    /// Joining elements.
    pub join: f64,
    /// Waiting for elements.
    pub synchronisation: f64,
    /// What all its cores worked while it joined and waited, where it is simulated.
    pub worked: f64,
    /// Bytes of rows that came from its predecessor, or from all others.
    pub bytes: u64,
    /// Elements that it joined, or messages that came.
    pub elements: u64,
    /// Pairs that it found, where it has rows.
    pub pairs: u64,
    /// Where it is simulated: when it waited for 0.1 ms and more, and when it stood still, since its relations were set up.
    pub waits: Vec<f64>,
    /// See [`waits`](Self::waits).
    pub stalls: Vec<f64>,
}

/// What a join took, by host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
            way: Way::Cyclo,
            program: Program::Paper,
            method,
            rows: RelationRows::alike(rates::ROWS_OF_HOST * hosts as u64),
            predicate: None,
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
        } else if ![self.rows.spinning, self.rows.stationary]
            .iter()
            .all(|rows| (self.hosts as u64..=ROWS_MAX).contains(rows))
        {
            format!(
                "{} and {} rows; each host has one of either relation, and all have 2^40 at most",
                self.rows.spinning, self.rows.stationary
            )
        } else if !ELEMENT_BYTES.contains(&self.element_bytes) {
            "elements have 1 KiB to 1 GiB".into()
        } else if !(8..=512).contains(&self.row_bytes) {
            format!("rows of {} bytes; 8 to 512", self.row_bytes)
        } else if self.method == Method::NestedLoops && self.program == Program::Paper {
            "the paper does not say what nested loops cost".into()
        } else if self.way == Way::Repartition && self.method != Method::Hash {
            "rows are partitioned by hashes, where keys are equal".into()
        } else if self.way != Way::Cyclo && self.program == Program::Paper {
            "the paper's program knows rings only".into()
        } else if self.way != Way::Cyclo
            && (self.carrier != Carrier::Rdma || !self.stalls.is_empty())
        {
            "kernels that carry elements, and hosts that stand still, are on rings only".into()
        } else if self.way != Way::Cyclo
            && matches!(self.keys, Keys::Zipf(exponent) if exponent > 0.0)
        {
            "of skewed keys it is not known where they are sent to".into()
        } else if self
            .predicate
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            "a predicate matches 0 to 1 of the pairs".into()
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

    /// What is known of it before it runs.
    pub fn shape(&self) -> Shape {
        let size = |rows: u64| Size {
            rows: rows as f64,
            width: self.row_bytes as f64,
        };
        let RelationRows {
            spinning,
            stationary,
        } = self.rows;
        let all = spinning as f64 * stationary as f64;
        let found = match self.method {
            Method::NestedLoops => all,
            Method::Hash | Method::Merge => {
                Distribution::new(self.keys, spinning, self.seed).found(0.0, 1.0) * all
            }
        };
        Shape {
            hosts: self.hosts as f64,
            threads: self.threads as f64,
            spinning: size(spinning),
            stationary: size(stationary),
            found,
            tested: self.predicate.is_some(),
            result: found * self.predicate.unwrap_or(1.0),
        }
    }
}

impl RelationRows {
    /// As many of each.
    pub fn alike(each: u64) -> Self {
        Self {
            spinning: each,
            stationary: each,
        }
    }

    /// Those that each host has; what cannot be dealt evenly is left out.
    pub fn of_host(self, hosts: usize) -> Self {
        Self {
            spinning: self.spinning / hosts as u64,
            stationary: self.stationary / hosts as u64,
        }
    }
}

/// Runs a join on simulated hosts once. The same join measures the same.
///
/// # Errors
/// When the join makes no sense, or the hosts cannot reach each other.
pub fn simulate(join: &RingJoin) -> Result<RingMeasured> {
    join.check()?;
    match join.way {
        Way::Cyclo => simulation::run(join),
        Way::Repartition | Way::Broadcast => exchange::run(join),
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
